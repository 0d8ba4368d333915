"""Group images that look alike: k-means on the leading directions of their space, with a chosen or given number of groups."""

from dataclasses import dataclass

import numpy as np

from labelwise.core.arrays import Array
from labelwise.support.errors import UsageError
from labelwise.support.processes import on_one_thread
from labelwise.support.rows import Draws, draw_rows, unit_rows

COMPONENTS = 32  # leading directions that images are compared by
SAMPLE, FEW = 4_000, 1_500  # images that first centres, and the number of groups, are found on
MOST = 100  # groups, where no number is given
ROUNDS = 100  # of k-means at most
TRIALS, STARTS = 3, 10  # starts of k-means for each number that is tried, and for the number that is chosen
NEARLY = 0.95  # of the best silhouette: of equally good numbers the larger one, since joining groups is easier than dividing them
ALONE = 5  # images of a group at least, on average, where any number will do
ROWS = 16_384  # whose distances are in memory at a time


@dataclass(frozen=True, eq=False)
class Clustering:
    """Centres ``[k, d]``, the group of each row ``[n]``, and the sum of squared distances to its centre."""

    centres: Array
    groups: Array
    spread: float


@on_one_thread
def divide(directions: Array, count: int) -> tuple[Array, Array]:
    """Return the group of each image ``[n]`` and the centres ``[k, c]`` of this many groups, fewer if images are few: one start of k-means."""
    points = _leading(directions)
    sample = points[draw_rows(len(points), SAMPLE)]
    centres = _best(sample, max(1, min(count, len(points) // ALONE)), 1, Draws(0)).centres
    return _nearest(points, centres)[0], centres


@on_one_thread
def group_images(directions: Array, count: int | None = None, seed: int = 0) -> list[Array]:
    """Return the rows of each group: the largest group first, and its most typical image first.

    >>> [rows.tolist() for rows in group_images(np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 2)]
    [[0, 1], [2]]

    Args:
        directions: of images in their space ``[n, d]``, see ``label.space``.
        count: the number of groups; None chooses it. The result has fewer only if fewer images differ.
        seed: the random seed.
    """
    if count is not None and not 1 <= count <= len(directions):
        raise UsageError(
            f"The number of groups must be between 1 and {len(directions)}, the number of images; given {count}."
        )
    if len(directions) == 1:
        return [np.zeros(1, np.int64)]
    draws, points = Draws(seed), _leading(directions)
    sample = points[draw_rows(len(points), SAMPLE, seed)]
    count = count or choose_count(sample[draw_rows(len(sample), FEW, seed)], draws)
    best = _best(sample, count, STARTS, draws)
    return _by_size(points, _settle(points, best.centres).groups)


def _leading(directions: Array) -> Array:
    """Return unit rows ``[n, c]`` along the directions in which most images lie."""
    sample = directions[draw_rows(len(directions), SAMPLE)].astype(np.float64)
    axes = np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, :COMPONENTS]
    return unit_rows(directions @ axes)


def choose_count(points: Array, draws: Draws) -> int:
    """Return how many groups points ``[n, d]`` make: between half of what the BIC says and that, the most whose silhouette is near the best.

    The silhouette alone takes two kinds of animals for two groups, whatever their breeds; the BIC of round groups of one size
    (Pelleg and Moore, X-means, 2000) divides groups that are not round.
    """
    most = min(MOST, len(points) // 3)
    if most < 3:
        return max(min(2, len(points)), 1)
    tried = {k: _best(points, k, TRIALS, draws) for k in _counts(2, most)}
    upper = min(tried, key=lambda k: _bic(points, tried[k]))
    for k in _counts(max(2, upper // 2), upper):
        tried.setdefault(k, _best(points, k, TRIALS, draws))
    widths = {k: _silhouette(points, tried[k].groups) for k in tried if upper / 2 <= k <= upper}
    best = max(widths.values())  # negative where all images differ alike
    return max(k for k, width in widths.items() if width >= min(NEARLY * best, best))


def _counts(low: int, high: int) -> list[int]:
    """Return at most 16 whole numbers between two, about a constant factor apart."""
    return sorted({round(k) for k in np.geomspace(low, high, 16)})


def _bic(points: Array, clustering: Clustering) -> float:
    """Return the Bayesian information criterion of round groups of equal variance; smaller is better."""
    (n, d), k = points.shape, len(clustering.centres)
    variance = max(clustering.spread / (n * d), 1e-12)
    return float(n * d * np.log(variance) + k * (d + 1) * np.log(n))


def _silhouette(points: Array, groups: Array) -> float:
    """Return the mean silhouette: how much closer a point is to its own group than to the next one, relative to the larger distance."""
    total = _sums_of_distances(points, groups)
    counts = np.bincount(groups, minlength=total.shape[1])
    rows = np.arange(len(points))
    own = total[rows, groups] / np.maximum(counts[groups] - 1, 1)
    total /= np.maximum(counts, 1)
    total[:, counts == 0] = np.inf
    total[rows, groups] = np.inf
    other = total.min(1)
    widths = np.where(counts[groups] > 1, (other - own) / np.maximum(np.maximum(own, other), 1e-12), 0)
    return float(widths.mean()) if np.isfinite(other).all() else 0.0


def _sums_of_distances(points: Array, groups: Array) -> Array:
    """Return the sum of distances of each point to those of each group ``[n, k]``."""
    member = np.eye(int(groups.max()) + 1)[groups]
    pieces = (points[start : start + 1024] for start in range(0, len(points), 1024))
    return np.concatenate([np.sqrt(_squares(piece, points)) @ member for piece in pieces])


def _best(points: Array, count: int, starts: int, draws: Draws) -> Clustering:
    """Return the tightest clustering of several random starts."""
    return min((_settle(points, _first(points, count, draws)) for _ in range(starts)), key=lambda one: one.spread)


def _first(points: Array, count: int, draws: Draws) -> Array:
    """Return first centres ``[k, d]``, each drawn far from those before (k-means++); fewer where fewer points differ."""
    chosen = [int(draws.integers(len(points), 1)[0])]
    far = _squares(points, points[chosen])[:, 0]
    while len(chosen) < count and far.max() > 1e-12:
        rising = np.cumsum(far)
        row = int(np.searchsorted(rising, float(draws.uniform(1)[0]) * rising[-1], side="right"))
        chosen.append(min(row, len(points) - 1))
        far = np.minimum(far, _squares(points, points[chosen[-1:]])[:, 0])
    return points[chosen]


def _settle(points: Array, centres: Array) -> Clustering:
    """Return the clustering that Lloyd's algorithm ends with from first centres; a group that lost all its points gets the farthest one."""
    groups = np.full(len(points), -1)
    for _ in range(ROUNDS):
        nearest, far = _nearest(points, centres)
        if (nearest == groups).all():
            break
        groups = nearest
        counts = np.bincount(groups, minlength=len(centres))
        sums = [np.bincount(groups, column, minlength=len(centres)) for column in points.T]
        centres = np.stack(sums, 1) / np.maximum(counts, 1)[:, None]
        for empty, row in zip(np.flatnonzero(counts == 0), np.argsort(-far, kind="stable"), strict=False):
            centres[empty] = points[row]
    return Clustering(centres, groups, float(far.sum()))


def _nearest(points: Array, centres: Array) -> tuple[Array, Array]:
    """Return the nearest centre of each point ``[n]``, and the squared distance to it ``[n]``."""
    groups, far = np.empty(len(points), np.int64), np.empty(len(points))
    for start in range(0, len(points), ROWS):
        here = slice(start, start + ROWS)
        squares = _squares(points[here], centres)
        groups[here] = squares.argmin(1)
        far[here] = squares.min(1)
    return groups, far


def _squares(points: Array, others: Array) -> Array:
    """Return squared distances ``[n, m]``."""
    squares = (points**2).sum(1)[:, None] + (others**2).sum(1) - 2 * (points @ others.T)
    return np.asarray(np.maximum(squares, 0))


def _by_size(points: Array, groups: Array) -> list[Array]:
    """Return the rows of each group, the largest group and the rows nearest to its mean first; none is empty."""
    found = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    ordered = [inside[np.argsort(-(points[inside] @ points[inside].mean(0)), kind="stable")] for inside in found]
    return sorted(ordered, key=lambda rows: (-len(rows), int(rows.min())))
