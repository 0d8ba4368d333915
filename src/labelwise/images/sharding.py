"""Write data as WebDataset shards: tar files of images with labels (``.cls``) and metadata (``.json``).

Image files are copied unchanged; other images become PNG. The order is random, so that shards are similar.
"""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from labelwise.images.dataset import Dataset, Split
from labelwise.images.decode.headers import SHAPE
from labelwise.images.file_images import StoredImages
from labelwise.images.sources.paths import address, is_image, is_remote, plain_errors, url_to_fs
from labelwise.images.sources.shards import CLASSES
from labelwise.images.split.divide import pool
from labelwise.support.errors import DataError, UsageError
from labelwise.support.files import read_regular
from labelwise.support.rows import Draws
from labelwise.support.writable import check_room, check_writable

_STARTS = {b"\x89PNG": "png", b"GIF8": "gif", b"BM": "bmp", b"RIFF": "webp", b"II*\0": "tif", b"MM\0*": "tif"}
MEGABYTES = 256  # approximate size of a shard


@dataclass(frozen=True, kw_only=True)
class Shards:
    """The written shards."""

    folder: str  # or an address
    shards: int
    images: int
    bytes: int


def write_shards(dataset: Dataset, folder: str | Path, *, megabytes: float = MEGABYTES, seed: int = 0) -> Shards:
    """Write a data set as shards of about ``megabytes`` each to a new folder, which appears once it is complete.

    At an address (``s3://bucket/birds``) shards appear one by one, and label names last. Splits named by the data are kept,
    and each shard holds images of one split. Groups are written, too.
    """
    if dataset.features:
        raise DataError(f'"{dataset.name}" holds features, not images. A table or an .npz pack holds these.')
    if not megabytes > 0:
        raise UsageError(f"A shard has a size above 0 megabytes; given {megabytes}.")
    parts = dataset.splits if dataset.own_splits else {"shard": pool(dataset)}
    names, shards, images, size = dataset.labels.names, 0, 0, 0
    target = address(folder)
    with _new_folder(target) as (place, keep):
        for kind, split in parts.items():
            for number, samples in enumerate(_fill_shards(_samples(split, names, seed), megabytes * 1e6)):
                check_room(place, sum(len(each) for sample in samples for each in sample.values()))
                file = place / f"{kind}-{number:06d}.tar"
                with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as tar:
                    for i, sample in enumerate(samples):
                        for suffix, content in sample.items():
                            entry = tarfile.TarInfo(f"{images + i:09d}.{suffix}")
                            entry.size = len(content)
                            tar.addfile(entry, io.BytesIO(content))
                shards, images, size = shards + 1, images + len(samples), size + file.stat().st_size
                keep(file)
        (place / CLASSES).write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        keep(place / CLASSES)
    return Shards(folder=target, shards=shards, images=images, bytes=size)


def check_new(folder: str | Path) -> None:
    """Raise an error unless shards can be written to a folder, or an address, that does not exist yet."""
    target = address(folder)
    if is_remote(target):
        with plain_errors(target):
            fs, path = url_to_fs(target)
            exists = bool(fs.find(path))
    else:
        check_writable(Path(target))
        exists = Path(target).exists()
    if exists:
        raise UsageError(f"{target} exists already. Choose another name, or remove it.")


@contextmanager
def _new_folder(target: str) -> Iterator[tuple[Path, Callable[[Path], None]]]:
    """Yield a folder to write to, and a function to call with each complete file; after an error, nothing is left."""
    check_new(target)
    if is_remote(target):
        with TemporaryDirectory() as place, _uploading(target) as keep:
            yield Path(place), keep
        return
    target_folder = Path(target)
    part = target_folder.with_name(f".{target_folder.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
        yield part, lambda _: None
        part.rename(target_folder)
    except OSError as error:
        raise DataError(
            f'Cannot write "{target}": {error.strerror or error}. Free some space, or choose another place.'
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _uploading(target: str) -> Iterator[Callable[[Path], None]]:
    """Yield a function that moves a file to an address; after an error, remove the uploaded files."""
    with plain_errors(target):
        fs, path = url_to_fs(target)
    uploads: list[str] = []

    def keep(file: Path) -> None:
        uploads.append(f"{path.rstrip('/')}/{file.name}")
        with plain_errors(target):
            fs.put_file(str(file), uploads[-1])
        file.unlink()

    try:
        yield keep
    except BaseException:
        with suppress(Exception):  # raise the original error
            fs.rm([each for each in uploads if fs.exists(each)])
        raise


def _fill_shards(samples: Iterator[dict[str, bytes]], most: float) -> Iterator[list[dict[str, bytes]]]:
    """Yield the samples of each shard: as many as fit into ``most`` bytes, and at least one."""
    shard: list[dict[str, bytes]] = []
    size = 0
    for sample in samples:
        length = sum(1024 + len(content) for content in sample.values())
        if shard and size + length > most:
            yield shard
            shard, size = [], 0
        shard.append(sample)
        size += length
    if shard:
        yield shard


def _samples(split: Split, names: tuple[str, ...], seed: int) -> Iterator[dict[str, bytes]]:
    """Yield the members of each image by their suffix, in random order."""
    words, content = split.words(names), _content_of(split)
    for row in Draws(seed).permutation(len(split)).tolist():
        about: dict[str, Any] = {"file": split.files[row].rpartition("/")[2]} if split.files else {}
        sample = dict([content(row)])
        if split.multilabel:
            about["labels"] = [name for name, true in zip(names, split.targets[row].tolist(), strict=True) if true]
        elif words[row]:
            about["label"] = words[row]
            sample["cls"] = str(int(split.targets[row])).encode()
        cells = {"domain": split.domains, "group": split.groups, "texts": split.texts}
        about |= {name: column[row] for name, column in cells.items() if column and column[row]}
        sample["json"] = json.dumps(about).encode()
        yield sample


def _content_of(split: Split) -> Callable[[int], tuple[str, bytes]]:
    """Return a function from a row to the suffix and the content of its image."""
    images = split.images

    def content(row: int) -> tuple[str, bytes]:
        if isinstance(images, StoredImages):
            (whole,), name = images.contents(images.rows[[row]].tolist()), images.ids[row]
            if isinstance(whole, str | Path):
                return _suffix(name) or "jpg", read_regular(whole)
            if isinstance(whole, bytes):
                return _suffix(name) or _kind(whole), whole
        if split.files and Path(split.files[row]).is_file():
            return _suffix(split.files[row]) or "jpg", read_regular(split.files[row])
        (pixels,), file = images.read([row], split.shape or SHAPE), io.BytesIO()
        Image.fromarray(pixels.transpose(1, 2, 0) if len(pixels) == 3 else pixels[0]).save(file, "PNG")
        return "png", file.getvalue()

    return content


def _suffix(name: str) -> str:
    """Return the image suffix of a name; blank if it has none."""
    return Path(name).suffix[1:].lower() if is_image(name) else ""


def _kind(content: bytes) -> str:
    """Return the suffix of an image from its first bytes."""
    return next((kind for start, kind in _STARTS.items() if content.startswith(start)), "jpg")
