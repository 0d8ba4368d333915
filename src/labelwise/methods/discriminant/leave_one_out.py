"""Leave-one-out distances of images, or groups of copies, to labels: exact, in closed form.

Lachenbruch and Mickey, "Estimation of error rates in discriminant analysis", Technometrics 10 (1968), extended to groups of rows.

Rows are whitened: the covariance W of rows inside labels, plus its ridge, is the identity. Let U [g, d] be the rows of a group less the
means of their labels, w their weights, D = diag(w), n the sum of the weights of a label and f the degrees of freedom. Without the group,
f W loses U'KU with K = D + ww'/(n - w'1) for the rows of one label, and by the Woodbury identity the inverse covariance becomes

    I + U'HU    with    H = (f K^-1 - UU')^-1,    K^-1 = D^-1 - 11'/n

(K = D where all rows of a label are left out, since w'U = 0 then). The ridge and f do not change.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

TABLE_NUMBERS = 2**22  # entries of a block of distances
ROUNDING = 1e-6  # relative error of a sum of weights
PAIR_NUMBERS = 2**19  # values of a block of row pairs: fits a CPU cache


def segment_sums(rows: Floats, groups: Ints, count: int) -> Floats:
    """Return the sum ``[count, d]`` of the rows ``[n, d]`` of each group; zeros for an empty group."""
    sums = np.zeros((count, rows.shape[1]), rows.dtype)
    sizes = np.bincount(groups, minlength=count)
    members = np.split(groups.argsort(kind="stable"), sizes.cumsum()[:-1])
    for group in sizes.nonzero()[0]:
        rows[members[group]].sum(0, out=sums[group])
    return sums


def _positive(counts: Floats) -> Floats:
    return np.asarray(np.where(counts > 0, counts, 1))


def _first(parts: Ints) -> Ints:
    """Return the first row of each group, in order."""
    return np.asarray(np.unique(parts, return_index=True)[1])


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Labelled rows, the means of labels, and the mean of each row's label without the row's group.

    A row of weight w counts as w rows.
    """

    rows: Floats  # [n, d]
    targets: Ints  # [n]
    groups: Ints  # rows of one group are left out together [n]
    row_weights: Floats  # [n], above 0
    means: Floats  # of labels [k, d]; zeros where a label has no row
    counts: Floats  # of rows of each label, by weight [k]
    other_means: (
        Floats  # mean of a row's label without the rows of its group [n, d]; mean of all labels where no row is left
    )
    other_counts: Floats  # of rows of these [n]; 0 where no row is left

    @classmethod
    def of(
        cls, rows: Floats, targets: Ints, k: int, groups: Ints | None = None, row_weights: Floats | None = None
    ) -> Self:
        """Build the sample of rows ``[n, d]`` of k labels; by default each row is its own group."""
        groups = np.arange(len(rows)) if groups is None else groups
        weights = np.ones(len(rows), rows.dtype) if row_weights is None else row_weights.astype(rows.dtype)
        weighted_rows = rows if row_weights is None else rows * weights[:, None]
        counts = np.bincount(targets, weights, minlength=k).astype(rows.dtype)
        sums = segment_sums(weighted_rows, targets, k)
        means = sums / _positive(counts)[:, None]
        _, part = np.unique(groups * k + targets, return_inverse=True)  # the rows of one label in one group
        parts = int(part.max(initial=-1)) + 1
        sizes = np.bincount(part, weights).astype(rows.dtype)
        fills_label = np.bincount(part, minlength=parts) == np.bincount(targets, minlength=k)[targets[_first(part)]]
        counts_left = np.where(fills_label[part], 0, counts[targets] - sizes[part])
        other_sums = sums[targets]
        other_sums -= weighted_rows if parts == len(rows) else segment_sums(weighted_rows, part, parts)[part]
        other_sums /= _positive(counts_left)[:, None]
        other_sums[counts_left == 0] = means[counts > 0].mean(0)
        return cls(rows, targets, groups, weights, means, counts, other_sums, counts_left)

    def regroup(self, groups: Ints) -> Self:
        """Return the sample with other groups ``[n]``."""
        if np.array_equal(groups, self.groups):
            return self
        return type(self).of(self.rows, self.targets, len(self.counts), groups, self.row_weights)

    @property
    def residuals(self) -> Floats:
        """Rows less the mean of their label ``[n, d]``."""
        return self.rows - self.means[self.targets]

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the within-label covariance: rows less labels with a row, at least 1."""
        return max(1.0, float(self.counts.sum()) - int((self.counts > 0).sum()))

    def select(self, rows: Ints) -> Self:
        """Return the sample of these rows, with the same labels."""
        return replace(
            self,
            rows=self.rows[rows],
            targets=self.targets[rows],
            groups=self.groups[rows],
            row_weights=self.row_weights[rows],
            other_means=self.other_means[rows],
            other_counts=self.other_counts[rows],
        )

    @property
    def covariance(self) -> Floats:
        """The within-label covariance ``[d, d]``."""
        residuals = self.residuals * np.sqrt(self.row_weights)[:, None]
        return np.asarray((residuals.T @ residuals).astype(np.float64) / self.degrees)

    def rotate(self, centre: Floats, axes: Floats) -> Self:
        """Return the sample around a centre ``[d]``, projected on axes: the columns of ``[d, q]``."""
        means = np.where(self.counts[:, None] > 0, (self.means - centre) @ axes, 0)
        return replace(
            self, rows=(self.rows - centre) @ axes, means=means, other_means=(self.other_means - centre) @ axes
        )

    def scale(self, factors: Floats) -> Self:
        """Return the sample with coordinates scaled by factors ``[d]``."""
        return replace(
            self, rows=self.rows * factors, means=self.means * factors, other_means=self.other_means * factors
        )


def leave_out_distances(sample: TrainingRows, points: Floats, own_points: Floats) -> Floats:
    """Return squared distances ``[n, m]`` of whitened rows to points ``[m, d]``, each row's group left out of the covariance.

    Point c belongs to label c; there may be more points than labels. For each row, ``own_points [n, d]`` replaces the point
    of its own label.
    """
    table = np.empty((len(sample.rows), len(points)), sample.rows.dtype)
    norms = square_norms(points)
    # with few labels, multiply labels by points; else multiply rows block by block, since a table of all labels is too large
    of_means = sample.means @ points.T if len(sample.means) * len(points) <= TABLE_NUMBERS else None
    for rows in _group_blocks(sample.groups, len(points)):
        x, targets, own = sample.rows[rows], sample.targets[rows], own_points[rows]
        u = x - sample.means[targets]
        inner = _products(x, u)  # [b, g, g]
        update = _inverse_update(_products(u, u), rows, sample)
        plain = square_norms(x)[:, :, None] + (inner @ update * inner).sum(2, keepdims=True)
        product = (x.reshape(-1, x.shape[2]) @ points.T).reshape(*rows.shape, -1)
        if of_means is None:
            cross = (u.reshape(-1, u.shape[2]) @ points.T).reshape(product.shape)
        else:
            cross = product - of_means[targets]
        to_points = _woodbury_update(product, cross, inner, update)
        to_points += plain
        to_points += norms
        to_own = _woodbury_update(_products(x, own), _products(u, own), inner, update)
        to_own = to_own + plain + square_norms(own)[:, None]
        np.put_along_axis(to_points, np.broadcast_to(targets[:, None], to_own.shape), to_own, 2)
        table[rows] = to_points
    return table


def leave_out_products(sample: TrainingRows, first: Floats, second: Floats) -> Floats:
    """Return the product ``[n]`` of two points ``[n, d]`` for each row, its group left out of the covariance."""
    products = np.empty(len(sample.rows), sample.rows.dtype)
    for rows in _group_blocks(sample.groups, sample.rows.shape[1]):
        targets = sample.targets[rows]
        u, left_rows, right_rows = sample.rows[rows] - sample.means[targets], first[rows], second[rows]
        update = _inverse_update(_products(u, u), rows, sample)
        correction = (_products(left_rows, u) @ update * _products(right_rows, u)).sum(2)
        products[rows] = np.einsum("bgd,bgd->bg", left_rows, right_rows) + correction
    return products


def leave_out_cosines(sample: TrainingRows, pairs: Ints) -> Floats:
    """Return the cosines ``[p]`` of pairs of whitened rows ``[p, 2]``, both left out of the covariance."""
    parts = [np.empty(0, sample.rows.dtype)]
    step = max(1, PAIR_NUMBERS // (2 * sample.rows.shape[1]))
    for rows in (pairs[start : start + step] for start in range(0, len(pairs), step)):
        x, targets = sample.rows[rows], sample.targets[rows]
        u = x - sample.means[targets]
        inner = x @ u.swapaxes(1, 2)
        update = _inverse_update(u @ u.swapaxes(1, 2), rows, sample)
        table = x @ x.swapaxes(1, 2) + inner @ update @ inner.swapaxes(1, 2)
        parts.append(table[:, 0, 1] / np.sqrt(np.maximum(table[:, 0, 0] * table[:, 1, 1], 1e-24)))
    return np.concatenate(parts)


def square_norms(rows: Floats) -> Floats:
    """Return the squared length of each row, along the last axis."""
    squares: Floats = np.einsum("...d,...d->...", rows, rows)
    return squares


def _products(x: Floats, y: Floats) -> Floats:
    """Return the products ``[b, g, h]`` of rows ``[b, g, d]`` and ``[b, h, d]``; single rows take a faster path."""
    if x.shape[1] == y.shape[1] == 1:
        return np.asarray(np.einsum("bgd,bgd->bg", x, y)[:, :, None])
    return np.asarray(x @ y.swapaxes(1, 2))


def _inverse_update(squares: Floats, rows: Ints, sample: TrainingRows) -> Floats:
    """Return H ``[b, g, g]``, see the head of this file, from UU' ``[b, g, g]`` and the rows of the groups ``[b, g]``."""
    targets, weights = sample.targets[rows], sample.row_weights[rows]
    same = (targets[:, :, None] == targets[:, None, :]).astype(squares.dtype)
    held_out = (same @ weights[:, :, None])[:, :, 0]
    counts = sample.counts[targets]
    some_left = (held_out < counts * (1 - ROUNDING)).astype(squares.dtype)
    diagonal = np.eye(squares.shape[1], dtype=squares.dtype) / weights[:, None, :]
    inverse = sample.degrees * (diagonal - same * (some_left / counts)[:, None, :]) - squares
    return np.asarray(1 / inverse if inverse.shape[1] == 1 else np.linalg.inv(inverse))


def _woodbury_update(product: Floats, cross: Floats, inner: Floats, update: Floats) -> Floats:
    """Return the cross term ``[b, g, m]`` of squared distances of x to points p, from x p', u p', x u' and H."""
    if cross.shape[1] == 1:
        return np.asarray((update * cross - 2 * inner * update) * cross - 2 * product)
    rotated = update @ cross
    return np.asarray((cross * rotated).sum(1, keepdims=True) - 2 * inner @ rotated - 2 * product)


def _group_blocks(groups: Ints, columns: int) -> Iterator[Ints]:
    """Yield the rows ``[b, g]`` of groups of one size, in blocks that fit into memory."""
    order = groups.argsort(kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    for size in np.unique(sizes).tolist():
        rows = order[starts[sizes == size][:, None] + np.arange(size)]
        step = max(1, TABLE_NUMBERS // (size * (columns + size)))
        yield from (rows[start : start + step] for start in range(0, len(rows), step))
