"""Images of one label that look alike: copies, crops, bursts of a camera."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from labelwise.methods.discriminant.leave_one_out import Floats, Ints, segment_sums, square_norms
from labelwise.support.segments import connected_groups

# Squared distance below which two images are copies, relative to the mean of two images of a label. Photos planted a second time
# (re-encoded, cropped, brightened, mirrored) lie below it, and 0 to 4 % of the photos of four real sets do. In few dimensions many
# images come that near by chance: at most this share of all.
COPY_DISTANCE, CHANCE = 0.3, 0.01
# Where a label has modes (photos and sketches), all images of one mode are near each other. So copies are also nearer than this share
# of the mean squared distance to so many neighbours: copies of photos are, and 2 % of the sketches of a set that has none.
NEIGHBOUR_SHARE, NEIGHBOURS = 0.45, 20
MOST_COMPARED = 4_096  # rows of a label of which all pairs are compared
MOST_ROWS = 1_000  # from which the number of dimensions is estimated


def group_copies(embeddings: Floats, targets: Ints, groups: Sequence[str] = ()) -> Ints:
    """Return the group of each image ``[n]`` that is left out with it: copies, and images of one group of the data.

    An image whose group is blank has none.
    """
    names = [name or row for row, name in enumerate(groups)]
    numbers = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return copy_groups(embeddings, targets, np.array([numbers[name] for name in names]) if groups else None)


def copy_groups(embeddings: Floats, targets: Ints, groups: Ints | None = None) -> Ints:
    """Return the group of each image ``[n]``: images of one label whose embeddings ``[n, d]`` are near each other, or to others of it.

    Images of one of the ``groups [n]``, where these are given, stay together. A copy under another label is none: one of the
    two labels is wrong, which leaving the other images out shows.
    """
    n, x = len(embeddings), np.asarray(embeddings, np.float32)
    counts = np.bincount(targets)
    means = segment_sums(x, targets, len(counts)) / np.maximum(counts, 1).astype(np.float32)[:, None]
    x = x - means[targets]  # shorter rows make products more exact
    typical, limit = _limits(x, counts)
    pairs = [np.empty((0, 2), np.int64)]
    for label in np.split(targets.argsort(kind="stable"), counts.cumsum()[:-1]):
        for rows in _windows(x, label) if len(label) > 1 else ():
            squares = square_distances(x[rows])
            count = min(NEIGHBOURS + 1, len(rows))  # and the image itself, at 0
            near = np.partition(squares, count - 1, axis=1)[:, :count].sum(1)
            around = NEIGHBOUR_SHARE * (near + (NEIGHBOURS + 1 - count) * typical) / NEIGHBOURS
            nearest = np.minimum(np.minimum(around[:, None], around), limit)
            pairs.append(rows[np.argwhere(squares < nearest)])
    if groups is not None:
        _, first, place = np.unique(groups, return_index=True, return_inverse=True)
        pairs.append(np.stack([np.arange(n), first[place]], 1))
    return connected_groups(n, *np.concatenate(pairs).T)


def square_distances(rows: Floats) -> Floats:
    """Return the squared distances of all pairs of rows ``[n, n]``; of a row to itself 0."""
    norms = square_norms(rows)
    squares = rows @ rows.T
    squares *= -2
    squares += norms[:, None]
    squares += norms
    np.maximum(squares, 0, out=squares)
    np.fill_diagonal(squares, 0)
    return squares


def _windows(x: Floats, rows: Ints) -> Iterator[Ints]:
    """Yield the rows of a label in sets whose pairs are compared: all of them, or of many those that are near each other.

    Copies are near each other in every direction, so also in that in which rows vary most.
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


def _limits(residuals: Floats, counts: Ints) -> tuple[float, float]:
    """Return the mean squared distance of two images of a label, and that of copies at most; from embeddings around its mean ``[n, d]``.

    Squared distances of a Gaussian vary as a chi-square of as many degrees as it has directions of equal variance.
    """
    n = len(residuals)
    pairs = float((counts * (counts - 1)).sum()) / 2
    chance = min(0.5, CHANCE * n / max(pairs, 1.0))
    share = _chi_square_share(max(_effective_dimensions(residuals), 1e-3), chance)
    typical = 2 * float(square_norms(residuals).sum()) / max(1, n - int((counts > 0).sum()))
    return typical, share * typical


def _chi_square_share(degrees: float, chance: float) -> float:
    """Return the share of its mean below which a chi-square lies with this chance, at most ``COPY_DISTANCE``; by bisection."""
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
    more = len(residuals) / len(some)
    norms = square_norms(some).astype(np.float64)
    own = float((norms**2).sum())
    pairs = (float(((some @ some.T) ** 2).sum()) - own) * more * (len(residuals) - 1) / max(1, len(some) - 1)
    return float((more * norms.sum()) ** 2 / max(more * own + pairs, 1e-30))
