"""Batches of groups: several images of a label together, so that a batch holds pairs of the same label."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from labelwise.support.draws import mix
from labelwise.support.errors import UsageError
from labelwise.train.batches import ShuffledBatches


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupedBatches(ShuffledBatches):
    """Every image once an epoch, in groups of one label; groups are in random order, an incomplete last batch is left out.

    The images of a label are divided anew in each epoch, into as few groups as the largest size allows, as equal as can be:
    with groups of five, 12 images make three of four, and a label with three images gives one of three.
    A batch has at most ``size`` rows over all processes, and at least two groups.
    """

    group: int = 5  # the largest size of a group

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group < 1:
            raise UsageError(f"A group needs at least one image; given {self.group}.")

    def __len__(self) -> int:
        return max(1, int(self._labels[2].sum()) // self._per_batch) if len(self.split) else 0

    def plan(self, seed: int) -> list[Tensor]:
        """Return the rows of each batch of an epoch, one group after another."""
        if not len(self):
            return []
        generator = torch.Generator().manual_seed(mix(seed))
        labels, counts, groups = self._labels
        order = torch.randperm(len(labels), generator=generator)
        order = order[torch.argsort(labels[order], stable=True)]  # by label, at random inside one
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
        """The label of each row as a number from 0 on, without gaps ``[n]``; the rows and the groups of each label ``[k]``."""
        _, labels, counts = torch.unique(self.split.targets.cpu(), return_inverse=True, return_counts=True)
        return labels, counts, (counts + self.group - 1) // self.group
