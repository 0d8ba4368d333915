"""Images in encoded files: on disk or in memory."""

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import PIL
from PIL import Image

from labelwise.images.decode.crops import Crop, file_of, parse_crop
from labelwise.images.decode.decoding import (
    FINGERPRINTED,
    QUIET,
    File,
    Frame,
    UnreadableError,
    decode_stream,
    decode_with_fingerprint,
    is_quick,
    open_content,
    reason,
)  # fmt: skip
from labelwise.images.decode.framing import fit_image
from labelwise.images.decode.headers import SIDE, Print, fingerprint
from labelwise.images.decode.videos import Moment
from labelwise.images.decode.workers import crew
from labelwise.images.digests import Content as Content
from labelwise.images.digests import content_digest as content_digest
from labelwise.images.digests import crop_digest, file_stamp
from labelwise.images.images import Array, Rows, Selection, Unreadable, positions
from labelwise.images.view import Fit
from labelwise.support.cache import DIGEST_SIZE, DIGESTS, LOOKS, Cache, digest, is_on
from labelwise.support.files import memory
from labelwise.support.processes import parallel_map, threads

FIRST, QUICK = 5, 0.25e-3  # images to time, and the seconds per image below which threads do not pay off
MEMORY_SHARE = 0.4  # share of the machine's memory for decoded images
TOGETHER = 256  # images whose fingerprints are written to the cache together
FORM = f"3 {PIL.__version__}".encode()  # version of fingerprints in the cache

T = TypeVar("T")
U = TypeVar("U")


class _PixelMemory:
    """Results of earlier reads, by row."""

    def __init__(self, count: int, shape: tuple[int, ...], kind: type[np.generic] = np.uint8) -> None:
        self.values = np.empty((count, *shape), kind)  # untouched memory costs nothing
        self.ready = np.zeros(count, np.bool_)

    def keep(self, row: int | Array, value: Array) -> None:
        """Remember the result of one or several images."""
        self.values[row], self.ready[row] = value, True


class StoredImages(Selection):
    """Images in encoded files, decoded at each read unless ``remember`` was called."""

    known_by_stamp: ClassVar[bool] = False  # whether digests are known without reading

    def __init__(self, ids: Sequence[str], shape: tuple[int, ...] | None = None, fit: Fit | None = None) -> None:
        super().__init__(object(), range(len(ids)))
        self._every = ids
        self._shape, self._fit = shape, fit  # their own fit overrides the reader's
        self._readable = np.zeros(len(ids), np.bool_)  # by row of all, shared by all selections
        self._pixels: dict[
            tuple[tuple[int, ...], Fit], _PixelMemory
        ] = {}  # at one shape and fit; shared by all selections
        self._prints: list[_PixelMemory] = []  # fingerprints; shared by all selections

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take the state of a copy; arrays that Ray shares between processes are read-only."""
        self.__dict__.update(state)
        if not self._readable.flags.writeable:
            self._readable, self._pixels, self._prints = self._readable.copy(), {}, []

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The requested shape; None if the reader chooses it."""
        return self._shape

    @property
    def ids(self) -> Sequence[str]:
        """The name of each image."""
        return [self._every[row] for row in self.rows.tolist()]

    @abstractmethod
    def contents(self, rows: Sequence[int]) -> "Sequence[Content | Unreadable]":
        """Return the file of each row: its path, its bytes, an open image, or the reason why there is none.

        An archive reads each on demand, since all together may not fit in memory.
        """

    def remember(self, shape: tuple[int, ...], fit: Fit = "crop") -> None:
        """Keep fingerprints from now on, and images decoded at this shape if all fit in memory."""
        key, count = (tuple(shape), self._fit or fit), len(self._every)
        Frame.of(*key)  # raises an error for an impossible shape
        if fits_in_memory(count, shape) and key not in self._pixels:
            self._pixels.clear()
            self._pixels[key] = _PixelMemory(count, shape)
        if not self._prints:
            self._prints.append(_PixelMemory(count, (SIDE * SIDE,), np.float32))

    def known_readable(self) -> Array:
        """Return which images were read before ``[n]`` (bool)."""
        return np.asarray(self._readable[self.rows])

    def note_readable(self, rows: Rows) -> None:
        """Mark these rows as readable."""
        self._readable[self.rows[positions(rows)]] = True

    def read(self, rows: Rows, shape: tuple[int, ...], fit: Fit = "crop") -> list[Array | Unreadable]:
        """Return images of a shape, decoded by several threads if there are many."""
        at, fit = self.rows[positions(rows)].tolist(), self._fit or fit
        memory = self._pixels.get((tuple(shape), fit))
        missing = list(dict.fromkeys(row for row in at if memory is None or not memory.ready[row]))
        fresh = dict(
            zip(missing, self.decode_rows(missing, Frame.of(shape, fit), decode) if missing else (), strict=True)
        )
        for row, image in fresh.items():
            if not isinstance(image, Unreadable):
                self._remember(row, image, memory)
        return [fresh[row] if row in fresh or memory is None else memory.values[row] for row in at]

    def fingerprints(self) -> tuple[Array, dict[int, str]]:
        """Return the fingerprints ``[n, a]``, zeros if there is none, and why rows cannot be read.

        Those that are remembered, or that the cache knows, are not decoded. The others are decoded once, also for ``remember``.
        """
        memory = self._prints[0] if self._prints else None
        missing = np.arange(len(self)) if memory is None else np.flatnonzero(~memory.ready[self.rows])
        fresh, faults = self.select(missing)._new_fingerprints()
        if memory is None:
            return fresh, faults
        good = [i for i in range(len(missing)) if i not in faults]
        memory.keep(self.rows[missing[good]], fresh[good])
        prints, faults = memory.values[self.rows], {int(missing[i]): reason for i, reason in faults.items()}
        prints[list(faults)] = 0
        return prints, faults

    def _new_fingerprints(self) -> tuple[Array, dict[int, str]]:
        """Return fingerprints from the cache or from the files."""
        prints, faults = np.zeros((len(self), SIDE * SIDE), np.float32), dict[int, str]()
        keys = [digest(FORM, each) for each in self.digests()] if self.known_by_stamp and is_on() else []
        cached = Cache().read_rows(LOOKS, keys, SIDE * SIDE)
        for i, key in enumerate(keys):
            if key in cached:
                prints[i] = cached[key]
        missing = [i for i in range(len(self)) if not keys or keys[i] not in cached]
        for start in range(0, len(missing), TOGETHER):
            some, fresh = missing[start : start + TOGETHER], dict[bytes, bytes]()
            for i, result in zip(some, self._fingerprints_of(self.rows[some].tolist()), strict=True):
                if isinstance(result, Unreadable):
                    faults[i] = result.reason
                    continue
                prints[i] = result
                fresh |= {keys[i]: result.tobytes()} if keys else {}
            Cache().write(LOOKS, fresh)
        return prints, faults

    def _fingerprints_of(self, rows: list[int]) -> list[Print | Unreadable]:
        """Return the fingerprints of some rows by decoding them; pixels are remembered if requested."""
        (shape, fit), memory = next(iter(self._pixels.items()), ((FINGERPRINTED.shape, FINGERPRINTED.fit), None))
        results: list[Print | Unreadable] = []
        for row, decoded in zip(rows, self.decode_rows(rows, Frame.of(shape, fit), decode_both), strict=True):
            if not isinstance(decoded, Unreadable):
                self._remember(row, decoded[0], memory)
            results.append(decoded if isinstance(decoded, Unreadable) else decoded[1])
        return results

    def decode_rows(
        self, rows: Sequence[int], frame: Frame, decode: Callable[[Content, Frame], T]
    ) -> list[T | Unreadable]:
        """Decode some rows; the digests of contents in memory are computed on the way.

        Several threads decode, unless images are so small that one is faster.
        """
        files = self.contents(rows)

        def attempt(place: int) -> T | Unreadable:
            file = files[place]
            if isinstance(file, bytes) and rows[place] not in self._known:
                self._known[rows[place]] = content_digest(file)
            try:
                return file if isinstance(file, Unreadable) else decode(file, frame)
            except UnreadableError as error:
                return Unreadable(str(error))

        with QUIET:
            first = [_time(attempt, place) for place in range(len(rows))[:FIRST]]
            later_rows = range(len(rows))[FIRST:]
            is_sequential = (
                threads() == 1 or not later_rows or sorted(seconds for _, seconds in first)[len(first) // 2] < QUICK
            )
            decoded = [attempt(place) for place in later_rows] if is_sequential else parallel_map(attempt, later_rows)
            return [image for image, _ in first] + decoded

    def _remember(self, row: int, image: Array, memory: _PixelMemory | None) -> None:
        """Mark a row as readable, and remember its pixels if requested."""
        self._readable[row] = True
        if memory is not None:
            memory.keep(row, image)

    def _digests_of(self, rows: list[int]) -> list[bytes]:
        return [content_digest(content) for content in self.contents(rows)]


class FileImages(StoredImages):
    """Image files on disk, and crops of them (``decode.crops``)."""

    known_by_stamp = True

    def __init__(
        self, paths: Sequence[str | Path], shape: tuple[int, ...] | None = None, fit: Fit | None = None
    ) -> None:
        super().__init__([str(path) for path in paths], shape, fit)

    def contents(self, rows: Sequence[int]) -> list[Content]:
        """Return the path of each image, or the address of its crop."""
        return [parse_crop(self._every[row]) or self._every[row] for row in rows]

    def _digests_of(self, rows: list[int]) -> list[bytes]:
        contents = self.contents(rows)
        file_digests = self._file_digests([file_of(self._every[row]) for row in rows])
        return [
            crop_digest(digest_of_file, content) if isinstance(content, Crop) else digest_of_file
            for digest_of_file, content in zip(file_digests, contents, strict=True)
        ]

    @staticmethod
    def _file_digests(paths: list[str]) -> list[bytes]:
        stamps = [file_stamp(path) for path in paths]
        cached = Cache().read(DIGESTS, [stamp for stamp in stamps if stamp], DIGEST_SIZE)
        missing = list(dict.fromkeys(path for path, stamp in zip(paths, stamps, strict=True) if stamp not in cached))
        fresh = dict(zip(missing, parallel_map(content_digest, missing), strict=True))
        digests = [cached.get(stamp) or fresh[path] for path, stamp in zip(paths, stamps, strict=True)]
        Cache().write(DIGESTS, {s: d for s, d, path in zip(stamps, digests, paths, strict=True) if s and path in fresh})
        return digests


def part_of(content: bytes | Unreadable, address: str) -> Content | Unreadable:
    """Return the crop of an image that its address names."""
    crop = parse_crop(address)
    return Crop(content, crop.box) if crop and isinstance(content, bytes) else content


def decode(file: Content, frame: Frame) -> Array:
    """Decode an image file, its content or an open image to bytes ``[c, h, w]``, or raise ``UnreadableError``.

    It is resized to cover the frame and its centre is kept, unless the frame says to stretch it. EXIF orientation is applied;
    transparent parts are white; of an animation the first frame is taken; 16-bit grey is scaled to bytes, and so are 32-bit values.
    A file that will take long is decoded by a worker, and so is a frame of a video, see ``decode.workers``.
    """
    whole, frame = _part(file, frame)
    try:
        if isinstance(whole, Image.Image):
            with QUIET:
                return fit_image(whole, frame)
        if not isinstance(whole, Moment):
            with open_content(whole) as stream:
                if is_quick(stream, frame):
                    return decode_stream(stream, frame)
        (pixels,) = crew().decode([whole], frame)
    except Exception as error:
        raise UnreadableError(reason(error, frame)) from None
    if isinstance(pixels, str):
        raise UnreadableError(pixels)
    return pixels


def _part(file: Content, frame: Frame) -> tuple[File | Moment | Image.Image, Frame]:
    """Return the file of a crop or the moment of a video, and how its box is read."""
    if not isinstance(file, Crop):
        return file, frame
    whole = file.file if file.seconds is None else Moment(str(file.file), file.seconds)
    return whole, replace(frame, box=file.box)


def decode_both(file: Content, frame: Frame) -> tuple[Array, Print]:
    """Decode an image and compute its fingerprint, from one decoding unless a worker decodes."""
    whole, part = _part(file, frame)
    looks = part.fingerprinted
    if part != looks and not isinstance(whole, Image.Image | Moment):
        try:
            with open_content(whole) as stream:
                if is_quick(stream, part):
                    return decode_with_fingerprint(stream, part)
        except Exception as error:
            raise UnreadableError(reason(error, part)) from None
    pixels = decode(file, frame)
    return pixels, fingerprint(pixels if part == looks else decode(file, frame.fingerprinted))


def _time(work: Callable[[T], U], item: T) -> tuple[U, float]:
    """Return the result of ``work`` on an item, and its seconds."""
    begin = time.perf_counter()
    return work(item), time.perf_counter() - begin


def fits_in_memory(count: int, shape: Sequence[int]) -> bool:
    """Return whether ``count`` images of a shape should be held in memory; ``LABELWISE_MEMORY_MB`` sets the limit."""
    megabytes = os.environ.get("LABELWISE_MEMORY_MB")
    return count * prod(shape) <= (float(megabytes) * 2**20 if megabytes else MEMORY_SHARE * memory())
