"""Batches of a split in a shuffled, repeatable order, augmented on the device."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import torch
from torch import Tensor

from labelwise.data.dataset import Split
from labelwise.data.lanes import lane_plan
from labelwise.data.rng import BatchRng
from labelwise.errors import UsageError
from labelwise.interruption import stoppable
from labelwise.model import as_float
from labelwise.streams import stream_of


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """The rows of one training step that this process works on."""

    images: Tensor  # floats in [0, 1] ``[n, c, h, w]``, or features ``[n, a]``
    targets: Tensor  # ``[n]``, or ``[n, k]`` where several labels may be true
    rows: Tensor  # where they stand in the split, ``[n]``
    rng: BatchRng  # random numbers for these rows
    done: float = 1.0  # the share of the stage's steps that came before; 1 outside of training


@dataclass(frozen=True)
class Shard:
    """Which part of each batch a process takes: part ``rank`` of ``world`` nearly equal ones."""

    rank: int = 0
    world: int = 1

    def rows(self, total: int) -> slice:
        """Return this process's rows of a batch of ``total``, at least one."""
        if total < self.world:
            raise UsageError(
                f"A batch of {total} images cannot be spread over {self.world} processes. Start at most {total}, or make "
                "batches larger."
            )
        return slice(self.rank * total // self.world, (self.rank + 1) * total // self.world)


class Batches(Protocol):
    """What a stage trains on: ``len`` steps an epoch, each epoch the same for the same seed."""

    def __len__(self) -> int: ...

    def epoch(self, seed: int, start: int, shard: Shard) -> Iterator[Batch]:
        """Yield the batches of one epoch from step ``start`` on."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class ShuffledBatches:
    """Every image once an epoch in random order; an incomplete last batch is left out."""

    split: Split  # its targets lie on the device to train on; its images do, too, if they fit there
    size: int  # rows of a batch over all processes
    # turns stored images into floats in [0, 1]; None only converts them
    augment: Callable[[Tensor, BatchRng], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"A batch needs at least one image; given {self.size}.")

    def __len__(self) -> int:
        return max(1, len(self.split) // self.size) if len(self.split) else 0

    def epoch(self, seed: int, start: int, shard: Shard) -> Iterator[Batch]:
        """Yield the batches of one epoch from step ``start`` on."""
        device = self.split.targets.device
        whole = self.plan(seed)[start:]
        parts = [shard.rows(len(rows)) for rows in whole]
        mine = [rows[part] for rows, part in zip(whole, parts, strict=True)]
        for step, (here, images) in enumerate(zip(mine, self._images(mine), strict=True)):
            generator = torch.Generator(device).manual_seed(mix(seed, start + step))
            rng = BatchRng(generator, parts[step], len(whole[step]))
            rows, images = here.to(device, non_blocking=True), images.to(device, non_blocking=True)
            images = self.augment(images, rng) if self.augment else as_float(images)
            yield Batch(images=images, targets=self.split.targets[rows], rows=rows, rng=rng)

    def plan(self, seed: int) -> list[Tensor]:
        """Return the rows of each batch of an epoch."""
        stream = stream_of(self.split.images)
        if stream is not None:
            blocks = stream.pictures.blocks[self.split.images.rows]  # type: ignore[attr-defined]
            return lane_plan(blocks, self.size, len(self), mix(seed))
        order = torch.randperm(len(self.split), generator=torch.Generator().manual_seed(mix(seed)))
        return list(torch.split(order, self.size))[: len(self)]

    def _images(self, rows: list[Tensor]) -> Iterator[Tensor]:
        """Yield the stored images at each list of rows; from the host they are fetched ahead."""
        images, targets = self.split.images, self.split.targets
        if stream_of(images) is not None:
            return ahead(images[here].pixels() for here in rows)  # type: ignore[attr-defined]
        if images.device == targets.device:
            return (images[here.to(images.device, non_blocking=True)] for here in rows)
        return ahead(images[here].pin_memory() for here in rows)


def ahead(items: Iterator[Tensor], depth: int = 3) -> Iterator[Tensor]:
    """Yield the same items, made by another thread up to ``depth`` in advance."""
    with stoppable(ThreadPoolExecutor(1)) as pool:
        futures = deque(pool.submit(next, items, None) for _ in range(depth))
        while (item := futures.popleft().result()) is not None:
            futures.append(pool.submit(next, items, None))
            yield item


def mix(*numbers: int) -> int:
    """Return one seed in [0, 2**63) made of several whole numbers."""
    digest = blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
