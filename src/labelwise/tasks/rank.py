"""Rank: place images on ordered labels, such as grades, ages or qualities.

A level is a label in the order. The mean of the level probabilities is a rank between two levels. Their median is the level
with the smallest expected distance from the true one. An interval of levels shows the
uncertainty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.support.errors import UnsupportedError, UsageError, listing


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The rank of one image."""

    image: int  # its position in the input
    rank: float  # expected rank, from 1 (all probability on the lowest level) to k (all on the highest)
    median: str  # median level: the lowest at which the cumulative probability reaches one half
    best: str  # the most probable level
    # the ends of the shortest interval of levels with the requested coverage
    interval: tuple[str, str]
    probabilities: dict[str, float]  # of each level, from lowest to highest
    known: bool  # False if the image is unknown; its rank then means little


def rank(scores: Scores, *, order: Sequence[str] | None = None, coverage: float = 0.8) -> list[Ranked]:
    """Return the rank of each image, sorted from lowest to highest.

    ``order`` is all labels from the lowest to the highest, None that which they have; an interval of levels holds a probability
    of ``coverage`` at least.
    """
    classifier = scores.classifier
    columns = level_columns(classifier, order)
    levels = level_probabilities(scores, columns)
    first, last = (ends.tolist() for ends in covering_levels(levels, coverage))
    medians, best = median_levels(levels).tolist(), levels.argmax(1).tolist()
    unknown = scores.unknown.tolist()
    names = [classifier.labels.names[column] for column in columns]
    ranks = expected_ranks(levels)
    return [
        Ranked(
            image=i,
            rank=float(ranks[i]),
            median=names[medians[i]],
            best=names[best[i]],
            interval=(names[first[i]], names[last[i]]),
            probabilities=dict(zip(names, levels[i].tolist(), strict=True)),
            known=not unknown[i],
        )
        for i in ranks.argsort(kind="stable").tolist()
    ]


def level_columns(classifier: Classifier, order: Sequence[str] | None = None) -> list[int]:
    """Return the columns of the levels from lowest to highest, in this order or the labels' own."""
    labels = classifier.labels
    if classifier.calibration.multilabel:
        raise UnsupportedError("Several labels may be true of one image, so they have no order. Ask about each label.")
    if order is not None:
        columns = [labels.index(name) for name in order]
        missing = [name for name in labels.names if name not in set(order)]
        if missing or len(columns) > len(labels):
            repeated = sorted({name for name in order if list(order).count(name) > 1})
            wrong = f"it lacks {listing(missing)}" if missing else f"more than once: {listing(repeated)}"
            raise UsageError(
                f"The order must name every label once, from the lowest to the highest; {wrong}. Given: {listing(order)}."
            )
        return columns
    if labels.order is None:
        raise UsageError(
            f"These labels have no order: {listing(labels.names)}. Give it, from the lowest to the highest: "
            'order=["poor", "fair", "good"] in Python, --order poor,fair,good in the shell. Or store it with the data '
            'and fit again: a column "order" (1, 2, 3, ...) in labels.csv, or order.txt with one label per line.'
        )
    ranks = labels.order
    return sorted(range(len(labels)), key=lambda column: ranks[column])


def level_probabilities(scores: Scores, columns: Sequence[int]) -> Array:
    """Return the probability of each level ``[n, k]``, in double precision."""
    return scores.classifier.calibration.choice(scores.log_odds.astype(np.float64))[:, list(columns)]


def expected_ranks(levels: Array) -> Array:
    """Return the mean rank ``[n]``, from 1 to k, for level probabilities ``[n, k]``."""
    return levels @ np.arange(1.0, levels.shape[1] + 1)


def median_levels(levels: Array) -> Array:
    """Return the median level ``[n]``, from 0, for level probabilities ``[n, k]``."""
    return np.asarray(np.minimum((levels.cumsum(1) < 0.5).sum(1), levels.shape[1] - 1))


def covering_levels(levels: Array, coverage: float = 0.8) -> tuple[Array, Array]:
    """Return the first and last level ``[n]``, from 0, of the shortest interval with this coverage.

    Of intervals as short, the one that holds most is taken. In ``levels [n, k]`` the lowest comes first.
    """
    if not 0 < coverage <= 1:
        raise UsageError(f"The coverage must be above 0 and at most 1; given {coverage}.")
    n, k = levels.shape
    cumulative = np.concatenate([np.zeros((n, 1)), levels.cumsum(1)], 1)
    first, last = np.zeros(n, np.int64), np.full(n, k - 1)
    for width in range(k - 1, 0, -1):
        shares = cumulative[:, width:] - cumulative[:, :-width]
        start, covers = shares.argmax(1), shares.max(1) >= coverage
        first, last = np.where(covers, start, first), np.where(covers, start + width - 1, last)
    return first, last
