"""Distances of pictures to labels as if each picture, or each group of lookalikes, had not been there: exact, in closed form.

Rows are whitened: the covariance of rows inside a label, plus its ridge, is the identity. Leaving pictures out moves the mean of
their label and takes a few directions out of that covariance, which Woodbury's identity undoes without another inverse. What is
left as it is: the ridge, and the number by which squares are divided.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

CHUNK = 2**22  # numbers of a table of distances held at a time
PAIRS = 2**19  # numbers of pairs held at a time: few enough for a processor's cache


@dataclass(frozen=True, eq=False)
class Sample:
    """Labelled rows, the means of labels, and the mean of each row's label without the row's group.

    Rows of one group are as good as copies of each other. So a mean of n rows in groups of sizes g is as good as one of
    n^2 / sum g^2 rows: its *weight*.
    """

    rows: Tensor  # [n, d]
    targets: Tensor  # [n]
    groups: Tensor  # of rows that are left out together [n]
    means: Tensor  # [k, d]; zeros where a label has no row
    counts: Tensor  # rows of each label [k]
    weights: Tensor  # [k]
    rest: Tensor  # mean of a row's label without the rows of its group [n, d]; that of all labels where none is left
    rest_weights: Tensor  # [n]; 0 where none is left

    @classmethod
    def of(cls, rows: Tensor, targets: Tensor, k: int, groups: Tensor | None = None) -> Self:
        """Return the sample of rows ``[n, d]`` of k labels; without groups each row is one of its own."""
        groups = torch.arange(len(rows), device=rows.device) if groups is None else groups
        counts = torch.bincount(targets, minlength=k).to(rows)
        sums = rows.new_zeros(k, rows.shape[1]).index_add_(0, targets, rows)
        means = sums / counts.clamp_min(1)[:, None]
        # the rows of one label in one group: a part
        _, part = torch.unique(groups * k + targets, return_inverse=True)
        sizes = torch.bincount(part).to(rows)
        squares = torch.zeros_like(counts).index_add_(0, targets, sizes[part])  # sum of g^2: each row counts its g
        part_sums = rows.new_zeros(len(sizes), rows.shape[1]).index_add_(0, part, rows)
        left, left_squares = counts[targets] - sizes[part], squares[targets] - sizes[part] ** 2
        centre = means[counts > 0].mean(0)
        rest = torch.empty_like(rows)
        for some in torch.split(torch.arange(len(rows), device=rows.device), max(1, CHUNK // rows.shape[1])):
            others = (sums[targets[some]] - part_sums[part[some]]) / left[some].clamp_min(1)[:, None]
            rest[some] = torch.where(left[some][:, None] > 0, others, centre)
        return cls(
            rows=rows,
            targets=targets,
            groups=groups,
            means=means,
            counts=counts,
            weights=counts**2 / squares.clamp_min(1),
            rest=rest,
            rest_weights=left**2 / left_squares.clamp_min(1),
        )

    @property
    def inside(self) -> Tensor:
        """Rows less the mean of their label ``[n, d]``."""
        return self.rows - self.means[self.targets]

    @property
    def degrees(self) -> int:
        """Rows less labels that have any: what the squares inside labels are divided by, at least 1."""
        return max(1, int(self.counts.sum()) - int((self.counts > 0).sum()))

    def select(self, rows: Tensor) -> Self:
        """Return these rows only, among the same labels."""
        return replace(
            self,
            rows=self.rows[rows],
            targets=self.targets[rows],
            groups=self.groups[rows],
            rest=self.rest[rows],
            rest_weights=self.rest_weights[rows],
        )

    def turned(self, centre: Tensor, axes: Tensor) -> Self:
        """Return it in coordinates around a centre ``[d]`` along axes, the columns of ``[d, q]``."""
        means = torch.where(self.counts[:, None] > 0, (self.means - centre) @ axes, 0)
        return replace(self, rows=(self.rows - centre) @ axes, means=means, rest=(self.rest - centre) @ axes)

    def scaled(self, by: Tensor) -> Self:
        """Return it with each coordinate multiplied by a number ``[d]``."""
        return replace(self, rows=self.rows * by, means=self.means * by, rest=self.rest * by)


def left_out_distances(sample: Sample, points: Tensor, own: Tensor) -> Tensor:
    """Return squared distances ``[n, m]`` of whitened rows to points ``[m, d]``, whitened without the rows of their group.

    Point c belongs to label c; there may be more points than labels. ``own [n, d]`` takes the place of the point of each row's label
    for the rows of its group.
    """
    table = sample.rows.new_empty(len(sample.rows), len(points))
    norms = points.square().sum(1)
    # of labels and points where these are few; else of rows, block by block: a table of all labels would be too large
    of_means = sample.means @ points.T if len(sample.means) * len(points) <= CHUNK else None
    for rows in _blocks(sample.groups, len(points)):
        x, targets, instead = sample.rows[rows], sample.targets[rows], own[rows]
        u = x - sample.means[targets]
        across = _products(x, u)  # [b, g, g]
        gone = _undone(_products(u, u), targets, sample)
        plain = x.square().sum(2, keepdim=True) + (across @ gone * across).sum(2, keepdim=True)
        product = (x.flatten(0, 1) @ points.T).view(*rows.shape, -1)
        between = (u.flatten(0, 1) @ points.T).view_as(product) if of_means is None else product - of_means[targets]
        to_points = plain + norms + _bent(product, between, across, gone)
        to_own = (
            plain + instead.square().sum(2)[:, None] + _bent(_products(x, instead), _products(u, instead), across, gone)
        )
        table[rows] = to_points.scatter_(2, targets[:, None, :].expand_as(to_own), to_own)
    return table


def left_out_products(sample: Sample, first: Tensor, second: Tensor) -> Tensor:
    """Return the products ``[n]`` of two points for each row, ``[n, d]`` each, whitened without the rows of its group."""
    products = sample.rows.new_empty(len(sample.rows))
    for rows in _blocks(sample.groups, sample.rows.shape[1]):
        targets = sample.targets[rows]
        u, one, other = sample.rows[rows] - sample.means[targets], first[rows], second[rows]
        gone = _undone(_products(u, u), targets, sample)
        products[rows] = (one * other).sum(2) + (_products(one, u) @ gone * _products(other, u)).sum(2)
    return products


def left_out_cosines(sample: Sample, pairs: Tensor) -> Tensor:
    """Return the cosines ``[p]`` of pairs of whitened rows ``[p, 2]``, whitened without the two."""
    parts = [sample.rows.new_empty(0)]
    for rows in torch.split(pairs, max(1, PAIRS // (2 * sample.rows.shape[1]))):
        x, targets = sample.rows[rows], sample.targets[rows]
        u = x - sample.means[targets]
        across = x @ u.mT
        table = x @ x.mT + across @ _undone(u @ u.mT, targets, sample) @ across.mT
        parts.append(table[:, 0, 1] / (table[:, 0, 0] * table[:, 1, 1]).clamp_min(1e-24).sqrt())
    return torch.cat(parts)


def _products(x: Tensor, y: Tensor) -> Tensor:
    """Return the products ``[b, g, h]`` of rows ``[b, g, d]`` and ``[b, h, d]``; of single rows quicker than by matrices."""
    return (x * y).sum(2, keepdim=True) if x.shape[1] == y.shape[1] == 1 else x @ y.mT


def _undone(squares: Tensor, targets: Tensor, sample: Sample) -> Tensor:
    """Return H ``[b, g, g]`` such that leaving out rows u adds u' H u to the inverse covariance; ``squares`` are u u' ``[b, g, g]``.

    The squares inside labels lose u' K u with K = I + 11' / (n - g) for the rows of a label, whose inverse is I - 11' / n;
    where all rows of a label go, 1'u is 0, and K is I.
    """
    counts = sample.counts[targets]
    same = (targets[:, :, None] == targets[:, None, :]).to(squares)
    stays = (same.sum(2) < counts).to(squares)
    eye = torch.eye(squares.shape[1], dtype=squares.dtype, device=squares.device)
    kept = sample.degrees * (eye - same * (stays / counts)[:, None, :]) - squares
    inverse: Tensor = 1 / kept if kept.shape[1] == 1 else torch.linalg.inv(kept)
    return inverse


def _bent(product: Tensor, between: Tensor, across: Tensor, gone: Tensor) -> Tensor:
    """Return the part ``[b, g, m]`` of squared distances of x to points p that depends on both, from x p', u p', x u' and H."""
    if between.shape[1] == 1:
        return gone * between.square() - 2 * across * gone * between - 2 * product
    bent = gone @ between
    return (between * bent).sum(1, keepdim=True) - 2 * across @ bent - 2 * product


def _blocks(groups: Tensor, columns: int) -> Iterator[Tensor]:
    """Yield the rows of groups of one size ``[b, g]``, as many groups at a time as fit into memory."""
    order = groups.argsort(stable=True)
    _, sizes = torch.unique_consecutive(groups[order], return_counts=True)
    starts = sizes.cumsum(0) - sizes
    for size in sizes.unique().tolist():
        first = starts[sizes == size]
        rows = order[first[:, None] + torch.arange(size, device=groups.device)]
        yield from torch.split(rows, max(1, CHUNK // (size * (columns + size))))
