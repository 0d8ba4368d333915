"""Images that are never kept: too many for memory, read from where they lie each time a number of them is asked for.

One pass over them (``survey``) says which cannot be read, and notes of each what would need another pass: its hash, the sums of its channels, and
what a frozen encoder makes of it. Several processes share a pass: each reads the rows that are its own.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Protocol

import torch
from torch import Tensor

from labelwise.images.lazy import LazyImages, Source
from labelwise.images.view import Fit
from labelwise.support.errors import DataError, listing
from labelwise.support.interruption import cancel_on_error
from labelwise.support.processes import ROWS, all_gather, current_group, sum_over_processes

PIECE = 64  # images that are read at a time


class Pictures(Protocol):
    """What a stream reads from."""

    names: Sequence[str]  # of all n pictures
    blocks: Tensor  # which of them lie together ``[n]``, not falling: those are best read one after another

    def content(self, row: int) -> bytes:
        """Return the file of a picture."""

    def read(self, rows: Sequence[int], shape: tuple[int, ...], fit: Fit) -> tuple[Tensor, list[int], dict[int, str]]:
        """Return the images of the rows that can be read, which rows these are, and why others cannot."""


class Stream(Source):
    """Where images ``[n, c, h, w]`` of a shape come from that are not kept."""

    def __init__(self, pictures: Pictures, shape: tuple[int, ...], fit: Fit = "cut") -> None:
        n = len(pictures.names)
        super().__init__(
            (), torch.zeros(n, dtype=torch.int64), self._strictly, torch.empty(0, *shape, dtype=torch.uint8)
        )
        self.pictures, self.fit = pictures, fit
        self.faults: dict[int, str] = {}  # why rows cannot be read
        self._others = {(tuple(shape), fit): self}  # the same pictures, seen otherwise
        self._noted = torch.zeros(n, dtype=torch.bool)
        self._sums = torch.zeros(n, 2, shape[0], dtype=torch.int64)  # of each channel, and of its squares
        self._features: dict[bytes, tuple[Tensor, Tensor]] = {}  # by encoder: a table [n, d], and which rows it has

    def again(self, shape: tuple[int, ...], fit: Fit) -> "Stream":
        """Return the same pictures in another shape, or made to fit it otherwise; one stream for each, so that rows of it can be joined."""
        key = (tuple(shape), fit)
        if key not in self._others:
            other = Stream(self.pictures, key[0], fit)
            self._others[key], other._others = other, self._others
        return self._others[key]

    def _read_some(self, rows: list[int]) -> tuple[Tensor, list[int], dict[int, str]]:
        return self.pictures.read(rows, self.shape, self.fit)

    def pixels(self, rows: Tensor) -> Tensor:
        """Return the bytes of these rows."""
        return self._strictly(rows.tolist())

    def _strictly(self, rows: list[int]) -> Tensor:
        pixels, _, faults = self._read_some(rows)
        self.faults |= faults
        self.check(rows)
        return pixels

    def check(self, rows: Sequence[int]) -> None:
        """Raise an error where one of these rows is known not to be readable."""
        bad = [row for row in rows if row in self.faults] if self.faults else []
        if bad:
            words = listing([f"{self.pictures.names[row]}: {self.faults[row]}" for row in bad], 3)
            raise DataError(
                f"{len(bad)} pictures cannot be read. {words} Remove them; data check lists all that cannot."
            )

    def survey(self, rows: Tensor) -> None:
        """Read each of these rows that was not read yet, and note what there is to know of it, faults included."""
        self._pass(rows[~self._noted[rows]], None, torch.empty(0))

    def features(self, key: bytes, rows: Tensor, make: Callable[[Tensor], Tensor], width: int) -> Tensor:
        """Return what an encoder of this key makes of rows ``[n, width]``, once for each; zeros where a row cannot be read."""
        n = len(self.hashes)
        if key not in self._features:
            self._features[key] = torch.zeros(n, width), torch.zeros(n, dtype=torch.bool)
        table, known = self._features[key]
        missing = rows[~known[rows]]
        self._pass(missing, make, table)
        known[missing] = True
        return table[rows]

    def hashes_of(self, rows: Tensor) -> Tensor:
        """Return what ``image_hashes`` says of these rows ``[n]``."""
        self.survey(rows)
        self.check(rows.tolist())
        return self.hashes[rows]

    def sums(self, rows: Tensor) -> Tensor:
        """Return the sum of each channel over these rows, and of its squares ``[2, c]`` (int64)."""
        self.survey(rows)
        self.check(rows.tolist())
        return self._sums[rows].sum(0)

    def _pass(self, rows: Tensor, make: Callable[[Tensor], Tensor] | None, table: Tensor) -> None:
        """Go through rows in the order in which they lie, this process through its share, and bring together what all note."""
        order = torch.unique(rows)
        parts = order[current_group().own(len(order))].split(PIECE) if len(order) else ()
        fresh, before = order[~self._noted[order]], len(self.faults)
        with cancel_on_error(ThreadPoolExecutor(1)) as pool:
            ahead = deque(pool.submit(self._read_some, part.tolist()) for part in parts[:1])
            for following in (*parts[1:], None):
                if not ahead:
                    break
                pixels, readable, faults = ahead.popleft().result()
                if following is not None:
                    ahead.append(pool.submit(self._read_some, following.tolist()))
                self._note(pixels, readable, faults)
                if make is not None and readable:
                    table[readable] = make(pixels).float().cpu()
        self._noted[order] = True
        if current_group().world > 1:
            for faults in all_gather(dict(list(self.faults.items())[before:])):
                self.faults |= faults
            for what in (self.hashes, self._sums):
                what[fresh] = sum_over_processes(what[fresh])
            for part in order.split(ROWS) if make is not None else ():
                table[part] = sum_over_processes(table[part])

    def _note(self, pixels: Tensor, rows: list[int], faults: dict[int, str]) -> None:
        self.faults |= faults
        self.hashes[rows], self._sums[rows] = byte_hashes(pixels), byte_sums(pixels)


def stream_of(images: Tensor) -> Stream | None:
    """Return where images come from that are never kept; None for others."""
    return images.source if isinstance(images, LazyImages) and isinstance(images.source, Stream) else None


def own_rows(images: Tensor) -> Tensor | slice:
    """Return which of the images are this process's to read: all of them, unless several share the work.

    Of files that were shared when they were read those that it read, so that it reads no others.
    """
    if current_group().world == 1 or not isinstance(images, LazyImages) or images.source.share is None:
        return current_group().own(len(images))
    part = images.source.share
    inside: Tensor = (images.rows >= part.start) & (images.rows < part.stop)
    return inside.nonzero()[:, 0]


def map_own_rows(images: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    """Return what is made of images ``[n, d]``, by each process of those that are its own, which may be none."""
    if current_group().world == 1 or not len(images):
        return make(images)
    mine = images[own_rows(images)]
    part = make(mine) if len(mine) else None
    width, kind, device = next(
        filter(None, all_gather(part if part is None else (part.shape[1], part.dtype, part.device.type)))
    )
    table = torch.zeros(len(images), width, dtype=kind, device=device)
    if part is not None:
        table[own_rows(images)] = part
    return sum_over_processes(table)


def uploaded(items: Iterator[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Yield pinned tensors on a GPU, copied beside what it computes meanwhile."""
    aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for item in items:
        with torch.cuda.stream(aside):
            there = item.to(device, non_blocking=True)
        torch.cuda.current_stream(device).wait_stream(aside)
        there.record_stream(torch.cuda.current_stream(device))
        yield there


def ahead(items: Iterator[Tensor], depth: int = 3) -> Iterator[Tensor]:
    """Yield the same items, made by another thread up to ``depth`` in advance."""
    with cancel_on_error(ThreadPoolExecutor(1)) as pool:
        futures = deque(pool.submit(next, items, None) for _ in range(depth))
        while (item := futures.popleft().result()) is not None:
            futures.append(pool.submit(next, items, None))
            yield item


def on_device(parts: Sequence[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Yield parts of images on a device; a GPU computes on one while the next are read, decoded and copied."""
    if device.type == "cpu" or not parts or parts[0].device.type != "cpu":
        return (part.to(device) for part in parts)
    return uploaded(ahead(part.pin_memory() for part in parts), device)


def byte_hashes(images: Tensor) -> Tensor:
    """Return one whole number per image ``[n]`` (int64), the same for the same bytes."""
    rows = images.detach().cpu().contiguous().flatten(1).numpy()
    hashes = [int.from_bytes(blake2b(row.tobytes(), digest_size=8).digest(), "big", signed=True) for row in rows]
    return torch.tensor(hashes, dtype=torch.int64)


def byte_sums(images: Tensor) -> Tensor:
    """Return the sum of each channel of each image of bytes, and of its squares ``[n, 2, c]`` (int64): exact."""
    flat = images.flatten(2)
    return torch.stack([flat.sum(2), flat.to(torch.int32).square_().sum(2)], 1)
