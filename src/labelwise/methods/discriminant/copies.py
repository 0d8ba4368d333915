"""Copies: near-duplicate images of one label (saved again, brightened, frames of a burst).

Copies are left out together, so that estimates are not biased. They do not change the classifier: each image has full
weight, since all images of a label may look alike (tiles without a defect).

Two images of one label are copies if their squared distance is below

    min(c t, q)

where t is the mean squared distance of two images of a label. c is ``COPY_DISTANCE``, or less in few dimensions, so that at
most a share ``CHANCE`` of images are that near by chance. q separates images of *different* labels: all but ``LOOKALIKES`` of
the images are farther from every image of another label. A few may be nearer, since data contain copies under wrong labels.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from labelwise.methods.discriminant.leave_one_out import Floats, Ints, segment_sums, square_norms
from labelwise.support.rows import connected_groups

COPY_DISTANCE = (
    0.05  # brightened photos, and photos saved again with little loss, are below it; see docs/discriminant.md
)
CHANCE = 0.01
LOOKALIKES = 0.005  # share of images that may be nearer than q to an image of another label, and FEWEST of few
FEWEST = 2
MOST_COMPARED = 4_096  # rows of a label of which all pairs are compared
MOST_ROWS = 1_000  # images compared with other labels, and used to estimate the number of directions


def copy_groups(embeddings: Floats, targets: Ints) -> Ints:
    """Group the copies within each label, transitively, by embeddings ``[n, d]``; return the group of each image ``[n]``.

    Duplicates under different labels are not grouped: one of the labels is wrong, and leave-one-out reveals it.
    """
    n, x = len(embeddings), np.asarray(embeddings, np.float32)
    counts = np.bincount(targets)
    means = segment_sums(x, targets, len(counts)) / np.maximum(counts, 1).astype(np.float32)[:, None]
    residuals = x - means[targets]  # shorter rows make products more exact
    limit = min(_inside_labels(residuals, counts), _between_labels(x - x.mean(0), targets))
    pairs = [np.empty((0, 2), np.int64)]
    for label in np.split(targets.argsort(kind="stable"), counts.cumsum()[:-1]):
        for rows in _windows(residuals, label) if len(label) > 1 else ():
            pairs.append(rows[np.argwhere(square_distances(residuals[rows]) < limit)])
    return connected_groups(n, *np.concatenate(pairs).T)


def join_groups(copies: Ints, groups: Sequence[str]) -> Ints:
    """Merge groups of copies with named groups; return the group of each image ``[n]``. A blank name, or (), is no group."""
    names = [name or row for row, name in enumerate(groups)]
    if not any(groups):
        return copies
    first = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))
    _, place = np.unique(copies, return_index=True)
    pairs = [(first[name], row) for row, name in enumerate(names)] + list(
        zip(place[copies], range(len(names)), strict=True)
    )
    return connected_groups(len(names), *np.array(pairs).T)


def square_distances(rows: Floats, columns: Floats | None = None) -> Floats:
    """Return the squared distances ``[n, m]`` of rows ``[n, d]`` to others, or ``[n, n]`` to each other; of a row to itself 0."""
    itself = columns is None
    columns = rows if columns is None else columns
    squares = rows @ columns.T
    squares *= -2
    squares += square_norms(rows)[:, None]
    squares += square_norms(columns)
    np.maximum(squares, 0, out=squares)
    if itself:
        np.fill_diagonal(squares, 0)
    return squares


def _inside_labels(residuals: Floats, counts: Ints) -> float:
    """Return c t, see the head of this file, from embeddings around the mean of their label ``[n, d]``.

    Squared distances of a Gaussian vary as a chi-square of as many degrees as it has directions of equal variance.
    """
    n, pairs = len(residuals), float((counts * (counts - 1)).sum()) / 2
    chance = min(0.5, CHANCE * n / max(pairs, 1.0))
    typical = 2 * float(square_norms(residuals).sum()) / max(1, n - int((counts > 0).sum()))
    return _chi_square_share(max(_effective_dimensions(residuals), 1e-3), chance) * typical


def _between_labels(x: Floats, targets: Ints) -> float:
    """Return q, see the head of this file, from embeddings ``[n, d]``; of many images some are compared with all."""
    some = np.arange(0, len(x), -(-len(x) // MOST_ROWS))
    squares = square_distances(x[some], x)
    squares[targets[some][:, None] == targets] = np.inf
    nearest = np.sort(squares.min(1))
    return float(nearest[min(max(FEWEST, round(LOOKALIKES * len(some))), len(some) - 1)])


def _windows(x: Floats, rows: Ints) -> Iterator[Ints]:
    """Yield the rows of a label in sets whose pairs are compared: all of them, or of many those that are near each other.

    Copies are near in every direction, so also along the first principal direction.
    """
    if len(rows) <= MOST_COMPARED:
        yield rows
        return
    some = x[rows[:: -(-len(rows) // MOST_COMPARED)]]
    axis = np.linalg.eigh(np.cov(some.T))[1][:, -1].astype(np.float32)
    order = rows[(x[rows] @ axis).argsort(kind="stable")]
    for start in range(0, len(rows) - MOST_COMPARED, MOST_COMPARED // 2):
        yield order[start : start + MOST_COMPARED]
    yield order[-MOST_COMPARED:]


def _chi_square_share(degrees: float, chance: float) -> float:
    """Return the share of its mean below which a chi-square is with this probability, at most ``COPY_DISTANCE``; by bisection."""
    low, high = 0.0, COPY_DISTANCE
    if _lower_gamma(degrees / 2, degrees / 2 * high) <= chance:
        return high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _lower_gamma(degrees / 2, degrees / 2 * middle) < chance else (low, middle)
    return high


def _lower_gamma(a: float, x: float) -> float:
    """Return the regularised lower incomplete gamma function P(a, x) for x < a + 1, by its series (DLMF 8.7.1)."""
    if x <= 0:
        return 0.0
    term = total = math.exp(a * math.log(x) - x - math.lgamma(a + 1))
    n = 0
    while term > 1e-17 * total:
        n += 1
        term *= x / (a + n)
        total += term
    return total


def _effective_dimensions(residuals: Floats) -> float:
    """Return in how many directions of equal variance rows ``[n, d]`` vary: (tr C)^2 / tr C^2, from at most ``MOST_ROWS`` of them.

    Of tr C^2, the squared products of all pairs of rows, those of two rows are as many times more as there are more pairs.
    """
    some = residuals[:: -(-len(residuals) // MOST_ROWS)]
    scale = len(residuals) / len(some)
    norms = square_norms(some).astype(np.float64)
    own = float((norms**2).sum())
    pairs = (float(((some @ some.T) ** 2).sum()) - own) * scale * (len(residuals) - 1) / max(1, len(some) - 1)
    return float((scale * norms.sum()) ** 2 / max(scale * own + pairs, 1e-30))
