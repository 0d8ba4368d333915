"""Splits that keep the share of every class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Shares:
    """How much of the data each split gets; the three sum to one and some of it is for training."""

    train: float = 0.7
    val: float = 0.1
    test: float = 0.2

    def __post_init__(self) -> None:
        """Check that these are shares."""
        parts = (self.train, self.val, self.test)
        if not (all(0 <= part <= 1 for part in parts) and self.train > 0 and math.isclose(sum(parts), 1, abs_tol=1e-6)):
            raise UsageError(
                "The shares of train, val and test must not be negative, must sum to 1, and train must get some; "
                f"given train={self.train}, val={self.val}, test={self.test}."
            )


def stratified(targets: Tensor, shares: Shares, seed: int) -> dict[str, Tensor]:
    """Return the rows of each split that has a positive share: sorted, disjoint, together all of them.

    Each class is divided on its own, so every split gets its share of it within one image. A class with at
    least as many images as there are splits is in all of them, even where that takes more than one image from
    train. With fewer, train comes first, then the split with the larger share: one image goes to train,
    two go to train and test.

    Args:
        targets: the class of each row ``[n]``; any whole numbers.
        shares: how much each split gets.
        seed: the same seed gives the same split.
    """
    others = sorted(("test", "val"), key=lambda name: -float(getattr(shares, name)))
    names = [name for name in ("train", *others) if getattr(shares, name) > 0]
    parts = dict(zip(names, _divide(targets, [getattr(shares, name) for name in names], seed), strict=True))
    return {name: parts[name] for name in ("train", "val", "test") if name in parts}


def split_off(targets: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the rows that stay and the rows held out: sorted, disjoint, together all of them.

    Each class gives its share within one image; a class with two images or more gives at least one and keeps at
    least one, and a class with a single image keeps it.

    Args:
        targets: the class of each row ``[n]``; any whole numbers.
        share: how much is held out, above 0 and below 1.
        seed: the same seed gives the same rows.
    """
    if not 0 < share < 1:
        raise UsageError(f"The share to hold out must lie between 0 and 1; given {share}.")
    kept, held = _divide(targets, [1 - share, share], seed)
    return kept, held


def _divide(targets: Tensor, shares: Sequence[float], seed: int) -> list[Tensor]:
    """Return the rows of each part, sorted; earlier parts come first where a class is too small for all."""
    if targets.ndim != 1 or targets.is_floating_point():
        raise UsageError(f"Targets must be whole numbers [n]; given {list(targets.shape)} of {targets.dtype}.")
    generator = torch.Generator().manual_seed(seed)
    by_class = torch.argsort(targets.cpu(), stable=True)
    sizes = torch.unique(targets.cpu(), return_counts=True)[1].tolist()
    parts: list[list[Tensor]] = [[] for _ in shares]
    for rows in torch.split(by_class, sizes):
        shuffled = rows[torch.randperm(len(rows), generator=generator)]
        for part, piece in zip(parts, torch.split(shuffled, _counts(len(rows), shares)), strict=True):
            part.append(piece)
    return [torch.cat(part).sort().values if part else torch.empty(0, dtype=torch.int64) for part in parts]


def _counts(size: int, shares: Sequence[float]) -> list[int]:
    """Return how many of ``size`` images each part gets: largest remainders, and none empty where that can be."""
    if size <= len(shares):
        return [int(i < size) for i in range(len(shares))]
    wanted = [size * share for share in shares]
    counts = [math.floor(want) for want in wanted]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - wanted[i])
    for i in by_remainder[: size - sum(counts)]:
        counts[i] += 1
    while 0 in counts:
        counts[counts.index(max(counts))] -= 1
        counts[counts.index(0)] += 1
    return counts
