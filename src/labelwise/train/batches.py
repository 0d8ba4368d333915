"""Batches of a split in a shuffled, repeatable order, augmented on the device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from labelwise.support.draws import mix
from labelwise.support.errors import UsageError
from labelwise.train.data import TensorSplit
from labelwise.train.model import as_float
from labelwise.train.rng import BatchRng
from labelwise.train.sharing import ahead, uploaded


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """The rows of one training step that this process works on."""

    images: Tensor  # floats in [0, 1] ``[n, c, h, w]``, or features ``[n, a]``
    targets: Tensor  # ``[n]``, or ``[n, k]`` where several labels may be true
    rows: Tensor  # where they stand in the split, ``[n]``
    rng: BatchRng  # random numbers for these rows
    done: float = 1.0  # the share of the stage's steps that came before; 1 outside of training, NaN in a recorded step
    phase: int = 0  # which of the kinds of steps that take turns, see ``Stage.phases``


@dataclass(frozen=True, eq=False, kw_only=True)
class Draw:
    """What a batch is made of, before anything is computed: its rows, and the seed of its random numbers."""

    rows: Tensor  # where this process's images stand in the split ``[n]``, on the device
    images: Tensor | None  # the stored images at these rows, on the device; None where all of the split's are there
    part: slice  # where these rows stand in the whole batch
    total: int  # how many rows the whole batch has
    seed: int

    def rng(self, generator: torch.Generator) -> BatchRng:
        """Return the random numbers of the batch, drawn by a generator that is seeded for it."""
        return BatchRng(generator.manual_seed(self.seed), self.part, self.total)


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

    def epoch(self, seed: int, start: int, shard: Shard) -> Iterator[Draw]:
        """Yield what the batches of one epoch are made of, from step ``start`` on."""
        ...

    def batch(self, rows: Tensor, images: Tensor | None, rng: BatchRng) -> Batch:
        """Return the batch, made on the device without waiting for it."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class ShuffledBatches:
    """Every image once an epoch in random order; an incomplete last batch is left out."""

    split: TensorSplit  # its targets lie on the device to train on; its images do, too, if they fit there
    size: int  # rows of a batch over all processes
    # turns stored images into floats in [0, 1]; None only converts them
    augment: Callable[[Tensor, BatchRng], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"A batch needs at least one image; given {self.size}.")

    def __len__(self) -> int:
        return max(1, len(self.split) // self.size) if len(self.split) else 0

    def epoch(self, seed: int, start: int, shard: Shard) -> Iterator[Draw]:
        """Yield what the batches of one epoch are made of, from step ``start`` on."""
        whole = self.plan(seed)[start:]
        if not whole:
            return
        parts = [shard.rows(len(rows)) for rows in whole]
        mine = [rows[part] for rows, part in zip(whole, parts, strict=True)]
        there = torch.split(torch.cat(mine).to(self.split.targets.device), [len(rows) for rows in mine])
        for step, (rows, images) in enumerate(zip(there, self._images(mine), strict=True)):
            part, total = parts[step], len(whole[step])
            yield Draw(rows=rows, images=images, part=part, total=total, seed=mix(seed, start + step))

    def batch(self, rows: Tensor, images: Tensor | None, rng: BatchRng) -> Batch:
        """Return the batch, made on the device without waiting for it."""
        images = self.split.images[rows] if images is None else images
        images = self.augment(images, rng) if self.augment else as_float(images)
        return Batch(images=images, targets=self.split.targets[rows], rows=rows, rng=rng)

    def plan(self, seed: int) -> list[Tensor]:
        """Return the rows of each batch of an epoch."""
        order = torch.randperm(len(self.split), generator=torch.Generator().manual_seed(mix(seed)))
        return list(torch.split(order, self.size))[: len(self)]

    def _images(self, rows: list[Tensor]) -> Iterator[Tensor | None]:
        """Yield the stored images at each list of rows, fetched ahead from the host; None where they lie on the device."""
        images, device = self.split.images, self.split.targets.device
        if images.device == device:
            return (None for _ in rows)
        return uploaded(ahead(images[here].pin_memory() for here in rows), device)
