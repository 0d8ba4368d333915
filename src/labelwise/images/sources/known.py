"""Picture files that were read before: what is kept of them in the cache stands for their pixels until these are needed.

A file is known by its content, and its content by path, size and times as long as these stay (as version control does it), so
that a known picture is neither decoded nor opened. For each the cache has a digest of its pixels, by which features are kept, and
the hash by which a classifier knows the images it was trained on.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import PIL
import torch
from torch import Tensor

from labelwise.images.dataset import Skipped
from labelwise.images.decode.pictures import check_read, read_files, read_readable
from labelwise.images.lazy import LazyImages, Source
from labelwise.images.split.hashes import image_hashes
from labelwise.images.view import Fit
from labelwise.support.cache import PICTURES, Cache, digest, is_on, pixel_digests
from labelwise.support.errors import DataError
from labelwise.support.interruption import cancel_on_error

FORM = 1  # of what is kept; another one where pictures are decoded otherwise
FRESH = 2e9  # nanoseconds: a file changed so short ago may change again within one tick of its clock
WIDTH = 16  # bytes of a digest, which the hash follows


def read_known(
    paths: Sequence[str | Path], shape: tuple[int, ...], *, fit: Fit = "cut", strict: bool = False, none: bool = False
) -> tuple[Tensor, list[int], tuple[Skipped, ...]]:
    """Return what ``read_files`` does; pictures that the cache knows are not read before a number of them is asked for.

    That not one can be read is an error, unless ``none`` allows it.
    """
    if not is_on():
        images, readable, skipped = read_readable(paths, shape, fit, progress=True)
        if strict or not none:
            check_read(skipped, len(paths), strict=strict)
        return images, readable, skipped
    cache, frame = Cache(), repr((FORM, PIL.__version__, tuple(shape), fit)).encode()
    stamps = [_stamp(path, frame) for path in paths]
    entries = _known(cache, stamps)
    unknown = [i for i, entry in enumerate(entries) if entry is None]
    contents = _contents([paths[i] for i in unknown], frame)
    for i, entry in zip(unknown, _known(cache, contents), strict=True):
        entries[i] = entry
    fresh = [i for i in unknown if entries[i] is None]
    images, readable, skipped = read_readable([paths[i] for i in fresh], shape, fit, progress=True)
    if strict or not none:
        check_read(skipped, len(paths), strict=strict)
    rows = [fresh[i] for i in readable]
    for i, entry in zip(rows, _side_by_side(_entry, images), strict=True):
        entries[i] = entry
    places = [i for i, entry in enumerate(entries) if entry is not None]
    keys = {stamps[i]: entries[i] for i in unknown} | dict(zip(contents, (entries[i] for i in unknown), strict=True))
    cache.write(PICTURES, {key: entry for key, entry in keys.items() if key and entry})
    pixels = images if rows == places else torch.empty((len(places), *images.shape[1:]), dtype=torch.uint8)
    digests, hashes = _parted([entries[i] or b"" for i in places])
    source = Source(digests, hashes, reader([paths[i] for i in places], digests, shape, fit), pixels)
    position = {i: row for row, i in enumerate(places)}
    source.put([position[i] for i in rows], images)
    return LazyImages(source, torch.arange(len(places))), places, skipped


def unread(images: Tensor) -> LazyImages:
    """Return images that are there already, such as those mapped from a file, as ones that are read when numbers are asked for."""
    digests, hashes = _parted(_side_by_side(_entry, images))
    source = Source(digests, hashes, lambda rows: images[rows], images)
    source.put(range(len(images)), images)
    return LazyImages(source, torch.arange(len(images)))


def _known(cache: Cache, keys: Sequence[bytes]) -> list[bytes | None]:
    """Return what is kept under each key; nothing where the key is empty."""
    known = cache.read(PICTURES, [key for key in keys if key])
    return [known.get(key) for key in keys]


def _stamp(path: str | Path, frame: bytes) -> bytes:
    """Return the key of a file by its path, size and times; empty where it was changed just now or is none."""
    try:
        about = os.stat(path)
    except OSError:
        return b""
    if not stat.S_ISREG(about.st_mode) or time.time_ns() - max(about.st_mtime_ns, about.st_ctime_ns) < FRESH:
        return b""
    numbers = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return digest(frame, os.fsencode(os.path.abspath(path)), repr(numbers).encode())


def _contents(paths: Sequence[str | Path], frame: bytes) -> list[bytes]:
    """Return the key of each file by its content; empty where it cannot be read."""

    def key(path: str | Path) -> bytes:
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                return b""
            with open(path, "rb") as file:
                return digest(frame, hashlib.file_digest(file, "blake2b").digest())
        except OSError:
            return b""

    return _side_by_side(key, paths)


def _entry(image: Tensor) -> bytes:
    """Return what is kept of an image ``[c, h, w]``: the digest of its pixels and its hash."""
    (key,), number = pixel_digests(image[None].numpy()), int(image_hashes(image[None]))
    return key + number.to_bytes(8, "big", signed=True)


def _side_by_side(work: Callable[[Any], bytes], items: Iterable[Any]) -> list[bytes]:
    """Return what work makes of each item, several at once."""
    with cancel_on_error(ThreadPoolExecutor(min(8, os.cpu_count() or 1))) as pool:
        return list(pool.map(work, items))


def _parted(entries: Sequence[bytes]) -> tuple[list[bytes], Tensor]:
    """Return the digest and the hash of each entry."""
    hashes = [int.from_bytes(entry[WIDTH:], "big", signed=True) for entry in entries]
    return [entry[:WIDTH] for entry in entries], torch.tensor(hashes, dtype=torch.int64)


def reader(
    paths: Sequence[str | Path], digests: Sequence[bytes], shape: tuple[int, ...], fit: Fit
) -> Callable[[list[int]], Tensor]:
    """Return what reads the pixels of known files by their place; a file that holds others by now is an error."""

    def read(rows: list[int]) -> Tensor:
        images, _, _ = read_files([paths[row] for row in rows], shape, fit=fit, strict=True)
        keys = pixel_digests(images.numpy())
        changed = [paths[row] for row, key in zip(rows, keys, strict=True) if key != digests[row]]
        if changed:
            raise DataError(f'"{changed[0]}" was changed while it was being used. Run the command again.')
        return images

    return read
