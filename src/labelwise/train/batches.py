"""Batches of a split in a shuffled, repeatable order, augmented on the device."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from labelwise.support.errors import UsageError
from labelwise.support.processes import all_gather, cancel_on_error, current_group, sum_over_processes
from labelwise.support.rows import mix
from labelwise.train.model import as_float
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TensorSplit


def map_own_rows(images: Tensor, make: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute an array ``[n, d]`` from images; each process computes its own, possibly empty share."""
    if current_group().world == 1 or not len(images):
        return make(images)
    own = current_group().own(len(images))
    mine = images[own]
    part = make(mine) if len(mine) else None
    width, kind, device = next(
        filter(None, all_gather(part if part is None else (part.shape[1], part.dtype, part.device.type)))
    )
    table = torch.zeros(len(images), width, dtype=kind, device=device)
    if part is not None:
        table[own] = part
    return sum_over_processes(table)


def upload_ahead(items: Iterator[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Yield tensors on a GPU, copied from pinned memory while it computes."""
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for item in items:
        with torch.cuda.stream(stream):
            uploaded_item = item.to(device, non_blocking=True)
        torch.cuda.current_stream(device).wait_stream(stream)
        uploaded_item.record_stream(torch.cuda.current_stream(device))
        yield uploaded_item


def prefetch(items: Iterator[Tensor], depth: int = 3) -> Iterator[Tensor]:
    """Yield the same items, produced by another thread up to ``depth`` in advance."""
    with cancel_on_error(ThreadPoolExecutor(1)) as pool:
        futures = deque(pool.submit(next, items, None) for _ in range(depth))
        while (item := futures.popleft().result()) is not None:
            futures.append(pool.submit(next, items, None))
            yield item


def on_device(parts: Sequence[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Yield parts of images on a device; the next part is read and copied while a GPU computes."""
    if device.type == "cpu" or not parts or parts[0].device.type != "cpu":
        return (part.to(device) for part in parts)
    return upload_ahead(prefetch(part.pin_memory() for part in parts), device)


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """This process's rows of one training step."""

    images: Tensor  # floats in [0, 1] ``[n, c, h, w]``, or features ``[n, a]``
    targets: Tensor  # ``[n]``, or ``[n, k]`` if several labels may be true
    rows: Tensor  # their rows in the split, ``[n]``
    rng: BatchRng  # random numbers for these rows
    progress: float = (
        1.0  # progress of the stage before this step, 0 to 1; 1 outside of training, NaN in a recorded step
    )
    phase: int = 0  # phase of stages with alternating kinds of steps, see ``Stage.phases``


@dataclass(frozen=True, eq=False, kw_only=True)
class Draw:
    """The plan of a batch: its rows, and the seed of its random numbers."""

    rows: Tensor  # this process's rows of the split ``[n]``, on the device
    images: Tensor | None  # the stored images of these rows on the device; None if the whole split is there
    part: slice  # positions of these rows in the whole batch
    total: int  # size of the whole batch
    seed: int

    def rng(self, generator: torch.Generator) -> BatchRng:
        """Return the random numbers of the batch from its own seed."""
        return BatchRng(generator.manual_seed(self.seed), self.part, self.total)


@dataclass(frozen=True)
class Shard:
    """This process's share of each batch: part ``rank`` of ``world`` nearly equal parts."""

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
    """The batches of a stage: ``len`` steps per epoch, reproducible by seed."""

    def __len__(self) -> int: ...

    def epoch(self, seed: int, start: int, shard: Shard) -> Iterator[Draw]:
        """Yield the batch plans of one epoch from step ``start`` on."""
        ...

    def batch(self, rows: Tensor, images: Tensor | None, rng: BatchRng) -> Batch:
        """Build the batch on the device, without waiting for the device."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class ShuffledBatches:
    """Each image once per epoch in random order; an incomplete last batch is dropped."""

    split: TensorSplit  # targets are on the training device; images too, if they fit
    size: int  # batch size over all processes
    # converts stored images to floats in [0, 1]; None: without augmentation
    augment: Callable[[Tensor, BatchRng], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"A batch needs at least one image; given {self.size}.")

    def __len__(self) -> int:
        return max(1, len(self.split) // self.size) if len(self.split) else 0

    def epoch(self, seed: int, start: int, shard: Shard) -> Iterator[Draw]:
        """Yield the batch plans of one epoch from step ``start`` on."""
        plan = self.plan(seed)[start:]
        if not plan:
            return
        parts = [shard.rows(len(rows)) for rows in plan]
        mine = [rows[part] for rows, part in zip(plan, parts, strict=True)]
        there = torch.split(torch.cat(mine).to(self.split.targets.device), [len(rows) for rows in mine])
        for step, (rows, images) in enumerate(zip(there, self._images(mine), strict=True)):
            part, total = parts[step], len(plan[step])
            yield Draw(rows=rows, images=images, part=part, total=total, seed=mix(seed, start + step))

    def batch(self, rows: Tensor, images: Tensor | None, rng: BatchRng) -> Batch:
        """Build the batch on the device, without waiting for the device."""
        images = self.split.images[rows] if images is None else images
        images = self.augment(images, rng) if self.augment else as_float(images)
        return Batch(images=images, targets=self.split.targets[rows], rows=rows, rng=rng)

    def plan(self, seed: int) -> list[Tensor]:
        """Return the rows of each batch of an epoch."""
        order = torch.randperm(len(self.split), generator=torch.Generator().manual_seed(mix(seed)))
        return list(torch.split(order, self.size))[: len(self)]

    def _images(self, rows: list[Tensor]) -> Iterator[Tensor | None]:
        """Yield the stored images of each list of rows, prefetched from the host; None if they are on the device."""
        images, device = self.split.images, self.split.targets.device
        if images.device == device:
            return (None for _ in rows)
        return upload_ahead(prefetch(images[chunk].pin_memory() for chunk in rows), device)


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupedBatches(ShuffledBatches):
    """Each image once per epoch in single-label groups, in random order; an incomplete last batch is dropped.

    The images of a label are divided again in each epoch, into as few groups as the largest size allows, as equal as can be:
    with groups of five, 12 images make three of four, and a label with three images gives one of three.
    A batch has at most ``size`` rows over all processes, and at least two groups.
    """

    group: int = 5  # largest group size

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group < 1:
            raise UsageError(f"A group needs at least one image; given {self.group}.")

    def __len__(self) -> int:
        return max(1, int(self._labels[2].sum()) // self._per_batch) if len(self.split) else 0

    def plan(self, seed: int) -> list[Tensor]:
        """Return the rows of each batch of an epoch, group by group."""
        if not len(self):
            return []
        generator = torch.Generator().manual_seed(mix(seed))
        labels, counts, groups = self._labels
        order = torch.randperm(len(labels), generator=generator)
        order = order[torch.argsort(labels[order], stable=True)]  # by label, at random within a label
        label = labels[order]
        inside = torch.arange(len(order)) - (counts.cumsum(0) - counts)[label]
        group = (groups.cumsum(0) - groups)[label] + inside * groups[label] // counts[label]
        turn = torch.randperm(int(groups.sum()), generator=generator)[group]
        sizes = torch.bincount(turn // self._per_batch).tolist()
        return list(torch.split(order[torch.argsort(turn, stable=True)], sizes))[: len(self)]

    @property
    def _per_batch(self) -> int:
        return max(2, self.size // self.group)

    @cached_property
    def _labels(self) -> tuple[Tensor, Tensor, Tensor]:
        """Dense label numbers of the rows ``[n]``, and the rows and groups of each label ``[k]``."""
        _, labels, counts = torch.unique(self.split.targets.cpu(), return_inverse=True, return_counts=True)
        return labels, counts, (counts + self.group - 1) // self.group
