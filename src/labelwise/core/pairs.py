"""Pairs of images of the same label and of different labels: all of them, or a seeded draw."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.support.draws import Draws


class Pairs(NamedTuple):
    """Rows of two images of one label ``[p, 2]``, and of different labels ``[q, 2]``; no image is paired with itself."""

    same: NDArray[Any]
    different: NDArray[Any]


def draw_pairs(targets: ArrayLike, most: int, seed: int = 0) -> Pairs:
    """Return all pairs of each kind, each once, or ``most`` of them drawn evenly (with replacement) where there are more.

    From the label of each image ``[n]``; images without one (-1) are in no pair.
    """
    every = np.asarray(targets)
    rows = np.flatnonzero(every >= 0)
    rows = rows[every[rows].argsort(kind="stable")]
    # Sorted by label, row i makes same pairs with those up to the end of its label, different ones with all after.
    sizes = np.unique(every[rows], return_counts=True)[1]
    end = sizes.cumsum().repeat(sizes)
    after = np.arange(1, len(rows) + 1)
    draws = Draws(seed)
    same = _draw(end - after, after, most, draws)
    return Pairs(rows[same], rows[_draw(len(rows) - end, end, most, draws)])


def _draw(counts: NDArray[Any], starts: NDArray[Any], most: int, draws: Draws) -> NDArray[Any]:
    """Return pairs ``[p, 2]``: row i has ``counts[i]`` partners, which are consecutive from ``starts[i]``."""
    ends = counts.cumsum()
    total = int(ends[-1]) if len(ends) else 0
    if not total:
        return np.empty((0, 2), np.int64)
    numbers = np.arange(total) if total <= most else draws.integers(total, most)
    first = np.searchsorted(ends, numbers, side="right")
    return np.stack([first, starts[first] + numbers - (ends - counts)[first]], 1)
