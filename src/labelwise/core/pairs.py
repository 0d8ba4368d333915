"""Pairs of images of the same label and of different labels: all of them, or a seeded draw."""

from typing import NamedTuple

import torch
from torch import Tensor


class Pairs(NamedTuple):
    """Rows of two images of one label ``[p, 2]``, and of different labels ``[q, 2]``; no image is paired with itself."""

    same: Tensor
    different: Tensor


def draw_pairs(targets: Tensor, most: int, seed: int = 0) -> Pairs:
    """Return all pairs of each kind, each once, or ``most`` of them drawn evenly (with replacement) where there are more.

    From the label of each image ``[n]``; images without one (-1) are in no pair.
    """
    targets = targets.cpu()
    rows = (targets >= 0).nonzero()[:, 0]
    rows = rows[targets[rows].argsort(stable=True)]
    # Sorted by label, row i makes same pairs with those up to the end of its label, different ones with all after.
    sizes = torch.unique_consecutive(targets[rows], return_counts=True)[1]
    end = sizes.cumsum(0).repeat_interleave(sizes)
    after = torch.arange(1, len(rows) + 1)
    generator = torch.Generator().manual_seed(seed)
    same = _draw(end - after, after, most, generator)
    return Pairs(rows[same], rows[_draw(len(rows) - end, end, most, generator)])


def _draw(counts: Tensor, starts: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Return pairs ``[p, 2]``: row i has ``counts[i]`` partners, which are consecutive from ``starts[i]``."""
    ends = counts.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    chosen = torch.arange(total) if total <= most else torch.randint(total, (most,), generator=generator)
    if not total:
        return torch.empty(0, 2, dtype=torch.int64)
    first = torch.searchsorted(ends, chosen, right=True)
    return torch.stack([first, starts[first] + chosen - (ends - counts)[first]], 1)
