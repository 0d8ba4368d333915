"""A label as a belief about its mean: where it lies, and how wrong that may be. Rows are whitened, see ``ops.discriminant``."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from labelwise.methods.discriminant.leave_one_out import Sample, left_out_products

PENALTIES = tuple(
    10.0 ** (step / 2) for step in range(-4, 7)
)  # on regression from vectors of labels, of their mean square
PRIOR_LABELS = 300.0  # as many labels as the belief that means spread alike in all directions is worth
FEWEST = 1e-6  # pictures: as good as none
FEW = 10  # pictures of a label, and less than half of what labels have on average: it is believed as if it were taught
MANY = 2_000  # labels: the products of all pairs of more are not made
CHUNK = 2**14  # rows at a time
LEAST = 0.01  # of the noise: a spread of labels below this is none


@dataclass(frozen=True, eq=False)
class Spread:
    """How means of labels spread around what is expected of them, direction by direction."""

    axes: Tensor  # orthonormal rows [q, d]
    values: Tensor  # variance along each [q]
    other: Tensor  # variance along any other direction, a number
    noise: Tensor  # variance of one picture around the mean of its label along any direction, a number

    def believed(self, examples: Tensor, weights: Tensor, parts: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return means ``[g, d]``, and what is taken off squared distances to them ``[g]``, from mean examples ``[g, d]``.

        All are as far from what was expected. A mean of n examples is drawn towards that the more, the less labels spread in a direction
        and the noisier the mean is: B (B + I v / n)^-1. ``weights [g]`` are the n; of none only what was expected is left. A label that
        B was measured on has a part p'p in it, ``parts [g, d]``, that is taken out again: its own noise is no spread of labels.
        """
        noise = (self.noise / weights.clamp_min(FEWEST))[:, None]
        share, other = self.values / (self.values + noise), self.other / (self.other + noise)
        along = examples @ self.axes.T
        shift = (share - other) * along
        errors = noise[:, 0] * (share.sum(1) + (self.axes.shape[1] - len(self.axes)) * other[:, 0])
        if parts is not None:  # Sherman and Morrison
            part = parts @ self.axes.T
            bent = part / (self.values + noise)
            left = (1 - (part * bent).sum(1)).clamp_min(FEWEST)
            shift = shift - noise * bent * ((bent * along).sum(1) / left)[:, None]
            errors = errors - noise[:, 0].square() * bent.square().sum(1) / left
        return other * examples + shift @ self.axes, taken_off(weights) * errors


def taken_off(weights: Tensor) -> Tensor:
    """Return the share ``[g]`` of the squared error of means of so many pictures that is taken off every distance to them.

    A mean of many pictures is hardly drawn: its noise adds to every distance, and the whole of it is taken off. A mean of few is drawn
    by as much as it is noisy, which nears it to all pictures. Chosen with ``PRIOR_LABELS`` on labels held out, see docs/discriminant.md.
    """
    return (weights + 1) / (weights + 3)


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What is believed of the labels of a sample: where their means lie, and what is taken off squared distances to them."""

    spread: Spread  # of means around what was expected
    means: Tensor  # [k, d]
    excess: Tensor  # [k]
    start: Tensor  # what was expected [k, d]
    parts: Tensor  # of labels in the spread [k, d], see ``Spread.believed``
    sample: Sample

    @property
    def rest(self) -> Tensor:
        """The mean of each row's label without the rows of its group ``[n, d]``."""
        return self._left_out[0]

    @property
    def rest_excess(self) -> Tensor:
        """What is taken off squared distances to it ``[n]``."""
        return self._left_out[1]

    @cached_property
    def _left_out(self) -> tuple[Tensor, Tensor]:
        means, excess = list[Tensor](), list[Tensor]()
        for rows in torch.split(torch.arange(len(self.sample.rows), device=self.start.device), CHUNK):
            of = self.sample.targets[rows]
            rest, weights = self.sample.rest[rows] - self.start[of], self.sample.rest_weights[rows]
            rest, taken = self.spread.believed(rest, weights, self.parts[of])
            means.append(self.start[of] + rest)
            excess.append(taken)
        return torch.cat(means), torch.cat(excess)

    def select(self, rows: Tensor) -> Self:
        """Return what the whole sample says of labels, and of these rows of it."""
        return replace(self, sample=self.sample.select(rows))

    def or_of_few(self, other: Self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return means ``[k, d]`` and excess ``[k]``: of labels of few pictures, ``weights [k]``, another belief's."""
        few = weights < min(FEW, float(weights.mean()) / 2)
        return torch.where(few[:, None], other.means, self.means), torch.where(few, other.excess, self.excess)


def label_beliefs(sample: Sample, noise: float, expected: Tensor | None = None, prior: float = PRIOR_LABELS) -> Beliefs:
    """Return what is believed of labels by whitened rows of this noise, drawn towards what is expected of each ``[k, d]``, or zero.

    A label is left out of the spread that its mean is drawn by, so a label taught later is believed no less than one of training.
    Where rows are left out, ``prior`` is to be infinite: directions in which labels spread were measured on these rows, too.
    """
    start = torch.zeros_like(sample.means) if expected is None else expected.to(sample.means)
    away = torch.where(sample.counts[:, None] > 0, sample.means - start, 0)
    rows, rest = sample.rows, sample.rest
    if expected is not None:
        rows, rest = rows - start[sample.targets], rest - start[sample.targets]
    products = left_out_products(sample, rows, rest)
    spread, parts = label_spread(away, sample.weights, noise, spread_size(products, sample, noise), prior)
    means, excess = spread.believed(away, sample.weights, parts)
    return Beliefs(spread, start + means, excess, start, parts, sample)


def as_of_all(sample: Sample, beliefs: Beliefs, expected: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the mean of each row's label without the row's group, believed like one of all its rows ``[n, d]``, and its excess ``[n]``.

    Left out, a row finds its label drawn with more caution than the labels beside it, which no new picture does. What the mean of fewer
    rows is noisier, and so longer, is taken off. Labels spread alike in all directions, see ``prior`` of ``label_beliefs``.
    """
    start = 0 if expected is None else expected.to(sample.means)[sample.targets]
    left, spread = sample.rest_weights, beliefs.spread
    weights = torch.where(left > 0, sample.weights[sample.targets], 0)
    means, excess = spread.believed(sample.rest - start, weights)
    share = spread.other / (spread.other + spread.noise / weights.clamp_min(FEWEST))
    longer = spread.noise * sample.rows.shape[1] * (1 / left.clamp_min(FEWEST) - 1 / weights.clamp_min(FEWEST))
    return start + means, excess + torch.where(left > 0, share.square() * longer, 0)


def narrowing(sample: Sample, beliefs: Beliefs) -> Tensor:
    """Return how much less new pictures spread in how far their label is ahead of another than rows left out do ``[n]``, at most 1.

    The difference of squared distances to means of m and n pictures varies, in units of 4 v tau, as h(m) + h(n) + s (1 + 1/n) does: noise
    of the two means, h(m) = 1/m + 1/(2 m^2), and that of the picture along what separates two near labels, s = size / tau.
    """
    n, left = (each.clamp_min(1) for each in (sample.weights[sample.targets], sample.rest_weights))
    apart = beliefs.spread.other / beliefs.spread.noise.clamp_min(1e-30) * (1 + 1 / n)
    noise, more = (1 / m + 0.5 / m.square() for m in (n, left))
    return ((apart + 2 * noise) / (apart + noise + more)).sqrt().clamp_max(1)


def label_spread(
    away: Tensor, weights: Tensor, noise: float, size: Tensor, prior: float = PRIOR_LABELS
) -> tuple[Spread, Tensor]:
    """Return how means of k labels spread, from how far they are away ``[k, d]`` from what was expected, and their parts in it ``[k, d]``.

    Each is a mean of so many pictures ``weights [k]``, whose squared distance from it is ``noise`` on average, and ``size`` is that of
    means from what was expected. A label counts the less, the more of its distance is noise. As k labels say nothing of most
    directions, three hundred imagined ones spread alike in all of them.
    """
    k, d = away.shape
    counts = label_counts(weights, size, noise)
    labels = max(1.0, float(counts.sum().square() / counts.square().sum()) - 1)
    share = labels / (labels + prior)
    other = (1 - share) * size / d
    parts = away * counts.sqrt()[:, None]
    parts = parts * (share * size / parts.square().sum().clamp_min(1e-30)).sqrt()
    values, turns = torch.linalg.eigh(parts @ parts.T if k < d else parts.T @ parts)
    axes = (parts.T @ turns / values.clamp_min(1e-30).sqrt()).T if k < d else turns.T
    known = values > 1e-6 * values[-1].clamp_min(1e-24)  # the mean of means has no direction of its own
    values = torch.where(known, values, 0) + other
    return Spread(axes * known[:, None], values, other, away.new_tensor(noise / d)), parts


def spread_size(products: Tensor, sample: Sample, noise: float) -> Tensor:
    """Return the mean square by which means of labels are away from what was expected, a number.

    That is what a row and the mean of the others of its label have in common: ``products [n]`` of how far both are away. A label counts
    the less, the more noise they have; and the expected mean, the mean of all labels, has a part in each of them.
    """
    seen, targets = sample.rest_weights > 0, sample.targets
    rows = torch.zeros_like(sample.counts).index_add_(0, targets, seen.to(products))
    each = torch.zeros_like(sample.counts).index_add_(0, targets, products * seen) / rows.clamp_min(1)
    told = (rows > 0).to(products)
    k, size = told.sum(), each.new_tensor(noise + 1e-12)
    for _ in range(3):
        counts = told * label_counts(sample.weights, size, noise)
        size = (counts @ each / counts.sum().clamp_min(1e-30) + noise / max(1, len(targets))) * k / (k - 1).clamp_min(1)
        size = size.clamp_min(LEAST * noise + 1e-12)
    return size


def label_counts(weights: Tensor, size: Tensor, noise: float) -> Tensor:
    """Return how much labels of means of so many pictures ``[k]`` count in their spread: none, where all is noise, to 1."""
    return (weights > 0) * (size / (size + noise / weights.clamp_min(FEWEST))).square()


def expected_means(vectors: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    """Return how to expect a label's mean from its vector, ``[a, d]``, and what k labels are expected to be without each ``[k, d]``.

    Ridge regression from vectors ``[k, a]`` to means ``[k, d]``, both around zero, in closed form; its penalty makes the error
    for a label that it has not seen least (residual / (1 - h)).
    """
    values, turns = _gram_axes(vectors)
    values, turned = values.clamp_min(0), turns.T @ means
    mean = (values.sum() / len(vectors)).clamp_min(1e-12)

    def away(penalty: float) -> Tensor:
        share = values / (values + penalty * mean)
        hat = (turns.square() * share).sum(1)
        residuals: Tensor = (means - (turns * share) @ turned) / (1 - hat).clamp_min(1e-6)[:, None]
        return residuals

    penalty = min(PENALTIES, key=lambda each: float(away(each).square().sum()))
    weights = vectors.T @ (turns / (values + penalty * mean)) @ turned
    return weights, means - away(penalty)


def _gram_axes(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return values ``[q]`` and axes ``[k, q]`` of the products of vectors ``[k, a]``; of many labels those that are not 0 alone."""
    k, a = vectors.shape
    if k <= max(a, MANY):
        values, turns = torch.linalg.eigh(vectors @ vectors.T)
        return values, turns
    values, turns = torch.linalg.eigh(vectors.T @ vectors)
    known = values > 1e-10 * values[-1]
    return values[known], vectors @ turns[:, known] / values[known].sqrt()
