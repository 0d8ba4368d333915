"""Posterior means of labels and their uncertainty: a hierarchical Gaussian model in closed form.

Lindley and Smith, "Bayes estimates for the linear model", JRSS B 34 (1972); with the prior estimated from the labels themselves, as in
Efron and Morris, "Empirical Bayes on vector observations", Biometrika 59 (1972). Rows are whitened, see ``whitening``.

The mean of a label is m ~ N(e, B), with prior mean e. The sample mean of n of its images is x ~ N(m, v I / n). So

    posterior mean  e + B (B + I v/n)^-1 (x - e)        squared error  tr(B (I v/n) (B + I v/n)^-1)

B excludes the label's own mean, which is mostly noise: with B = C + pp', where p is the part of the label, Sherman and Morrison give the
inverse without it. The score of a label subtracts a share of the squared error from the squared distance to its mean.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from labelwise.core.saved_parts import shaped
from labelwise.methods.discriminant.leave_one_out import Floats, Ints, TrainingRows, leave_out_products, square_norms

# Penalties on the regression from vectors of labels, relative to the mean square of the vectors.
PENALTIES = tuple(10.0 ** (step / 2) for step in range(-4, 7))
PRIOR_LABELS = 300.0  # weight, in labels, of the belief that means vary equally in all directions
LEAST_WEIGHT = 1e-6  # of a mean: as good as no image
# A label with fewer images than this, and less than half the average, is treated like a taught label.
FEW_IMAGES = 10
MANY_LABELS = 2_000  # of more labels not all pairs are multiplied
ROWS_AT_ONCE = 2**14
LEAST_VARIANCE = 0.01  # of the noise: means of labels vary by at least this


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanPrior:
    """The prior covariance B of label means, and the within-label variance v of images."""

    axes: Floats = shaped("q", "d")  # orthonormal rows
    variances: Floats = shaped("q")  # of B along each
    other_variance: float  # of B along any other direction
    noise_variance: float  # v

    def posterior_mean(
        self, examples: Floats, weights: Floats, parts: Floats | None = None, labels: Ints | None = None
    ) -> tuple[Floats, Floats]:
        """Return posterior means ``[g, d]`` around zero, and the excess of squared distances to them ``[g]``.

        Args:
            examples: means of example images ``[g, d]``, less the prior means of their labels.
            weights: number of images in each mean ``[g]``; with 0 the posterior mean is zero.
            parts: contributions of labels to B ``[k, d]``, which are removed.
            labels: the label of each row ``[g]``; None: in order.
        """
        noise = (self.noise_variance / np.maximum(weights, LEAST_WEIGHT))[:, None]
        share = self.variances / (self.variances + noise)
        other_weight = self.other_variance / (self.other_variance + noise)
        coordinates = examples @ self.axes.T
        shift = (share - other_weight) * coordinates
        errors = noise[:, 0] * (share.sum(1) + (self.axes.shape[1] - len(self.axes)) * other_weight[:, 0])
        if parts is not None:  # Sherman and Morrison
            part = parts @ self.axes.T
            part = part if labels is None else part[labels]
            scaled_part = part / (self.variances + noise)
            remaining = np.maximum(1 - (part * scaled_part).sum(1), LEAST_WEIGHT)
            shift -= noise * scaled_part * ((scaled_part * coordinates).sum(1) / remaining)[:, None]
            errors = errors - noise[:, 0] ** 2 * square_norms(scaled_part) / remaining
        means = shift @ self.axes
        means += other_weight * examples
        return means, error_share(weights) * errors


def error_share(weights: Floats) -> Floats:
    """Return the share ``[g]`` of the squared error to subtract from distances, by number of images in the mean.

    A mean of many images hardly shrinks: its noise adds to every distance, and all of it is subtracted. A mean of few
    images shrinks in proportion to its noise, which brings it nearer to all images. Chosen with ``PRIOR_LABELS`` on
    held-out labels, see docs/results/discriminant.md.
    """
    return np.asarray((weights + 1) / (weights + 3))


@dataclass(frozen=True, eq=False)
class Beliefs:
    """The posterior of the labels of a sample."""

    prior: MeanPrior
    means: Floats  # [k, d]
    excess: Floats  # by which squared distances to them are too large [k]
    expected: Floats  # [k, d]
    parts: Floats  # of labels in B [k, d]
    sample: TrainingRows

    @property
    def other_means(self) -> Floats:
        """The mean of each row's label, without the row's group ``[n, d]``."""
        return self._without_groups[0]

    @property
    def other_excess(self) -> Floats:
        """The excess of squared distances to these means ``[n]``."""
        return self._without_groups[1]

    @cached_property
    def _without_groups(self) -> tuple[Floats, Floats]:
        sample = self.sample
        means, excess = np.empty_like(sample.rows), np.empty_like(sample.other_counts)
        for start in range(0, len(means), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            labels = sample.targets[rows]
            residuals, weights = sample.other_means[rows] - self.expected[labels], sample.other_counts[rows]
            means[rows], excess[rows] = self.prior.posterior_mean(residuals, weights, self.parts, labels)
            means[rows] += self.expected[labels]
        return means, excess

    def select(self, rows: Ints) -> Self:
        """Return the beliefs from the whole sample, restricted to these rows."""
        return replace(self, sample=self.sample.select(rows))

    def shrink_small_classes(self, others_belief: Self) -> tuple[Floats, Floats]:
        """Return means ``[k, d]`` and excess ``[k]``, with another belief for labels of few images."""
        weights = self.sample.counts
        is_small = weights < min(FEW_IMAGES, float(weights.mean()) / 2)
        return np.where(is_small[:, None], others_belief.means, self.means), np.where(
            is_small, others_belief.excess, self.excess
        )


def label_beliefs(
    sample: TrainingRows, noise: float, expected: Floats | None = None, prior_labels: float = PRIOR_LABELS
) -> Beliefs:
    """Return the posterior of the labels of a whitened sample, shrunk towards their prior means ``[k, d]``, or zero.

    A label does not contribute to its own prior, so taught labels are treated like trained ones. Leave-one-out requires
    an infinite ``prior_labels``: otherwise the left-out rows would influence the directions of B.
    """
    k, d = sample.means.shape
    start = np.zeros((1, d), sample.means.dtype) if expected is None else expected.astype(sample.means.dtype)
    start = np.broadcast_to(start, (k, d))
    deviations = np.where(sample.counts[:, None] > 0, sample.means - start, 0)
    rows, other_means = sample.rows, sample.other_means
    if expected is not None:
        rows, other_means = rows - start[sample.targets], other_means - start[sample.targets]
    size = between_label_variance(leave_out_products(sample, rows, other_means), sample, noise)
    prior, parts = fit_prior(deviations, sample.counts, noise, size, prior_labels)
    means, excess = prior.posterior_mean(deviations, sample.counts, parts)
    return Beliefs(prior, start + means, excess, start, parts, sample)


def means_at_full_size(sample: TrainingRows, beliefs: Beliefs) -> tuple[Floats, Floats]:
    """Return the mean of each row's label without its group, shrunk as if it were complete ``[n, d]``, and its excess ``[n]``.

    Leaving out a row shrinks its own label more than the others, which no new image experiences. The extra length of a mean of
    fewer rows, due to noise, is subtracted. B must be isotropic, see ``label_beliefs``.
    """
    counts, prior = sample.other_counts, beliefs.prior
    weights = np.where(counts > 0, sample.counts[sample.targets], 0)
    expected = beliefs.expected[sample.targets]
    means, excess = prior.posterior_mean(sample.other_means - expected, weights)
    means += expected
    most_left, most = np.maximum(counts, LEAST_WEIGHT), np.maximum(weights, LEAST_WEIGHT)
    share = prior.other_variance / (prior.other_variance + prior.noise_variance / most)
    longer = prior.noise_variance * sample.rows.shape[1] * (1 / most_left - 1 / most)
    return means, excess + np.where(counts > 0, share**2 * longer, 0)


def margin_ratio(sample: TrainingRows, beliefs: Beliefs) -> Floats:
    """Return the ratio of the margin's spread for new images to that of left-out rows ``[n]``, at most 1.

    The difference of squared distances to means of m and n images varies, in units of 4 v tau, as h(m) + h(n) + s (1 + 1/n): noise of
    the two means, h(m) = 1/m + 1/(2 m^2), and that of the image along what separates two near labels, s = variance of B / v.
    """
    n, others = (np.maximum(weights, 1) for weights in (sample.counts[sample.targets], sample.other_counts))
    ratio = beliefs.prior.other_variance / max(beliefs.prior.noise_variance, 1e-30) * (1 + 1 / n)
    noise, extra = (1 / m + 0.5 / m**2 for m in (n, others))
    return np.asarray(np.minimum(np.sqrt((ratio + 2 * noise) / (ratio + noise + extra)), 1))


def fit_prior(
    deviations: Floats, weights: Floats, noise: float, size: float, prior_labels: float = PRIOR_LABELS
) -> tuple[MeanPrior, Floats]:
    """Fit the prior to deviations of k label means from their prior means ``[k, d]``; also return their parts of B ``[k, d]``.

    A label has less weight if more of its deviation is noise. Since k labels leave most directions undetermined,
    ``prior_labels`` pseudo-labels with isotropic deviations are added.

    Args:
        deviations: means of labels, less their prior means ``[k, d]``.
        weights: number of images in each mean ``[k]``.
        noise: mean squared distance of an image to the mean of its label.
        size: mean squared distance of means to their prior means.
        prior_labels: number of pseudo-labels.
    """
    k, d = deviations.shape
    counts = label_weights(weights, size, noise)
    labels = max(1.0, float(counts.sum()) ** 2 / max(float((counts**2).sum()), 1e-30) - 1)
    share = labels / (labels + prior_labels)
    other_variance = (1 - share) * size / d
    parts = deviations * np.sqrt(counts)[:, None]
    parts = parts * (share * size / max(float((parts**2).sum()), 1e-30)) ** 0.5
    values, turns = np.linalg.eigh(parts @ parts.T if k < d else parts.T @ parts)
    axes = (parts.T @ turns / np.sqrt(np.maximum(values, 1e-30))).T if k < d else turns.T
    nonzero = values > 1e-6 * max(float(values[-1]), 1e-24)  # the mean of means has no direction of its own
    variances = np.where(nonzero, values, 0) + other_variance
    prior = MeanPrior(
        axes=axes * nonzero[:, None], variances=variances, other_variance=other_variance, noise_variance=noise / d
    )
    return prior, parts


def between_label_variance(products: Floats, sample: TrainingRows, noise: float) -> float:
    """Return the variance of label means around their prior means.

    It is estimated from ``products [n]`` of the deviations of each row and of the mean of the others of its label, which share
    no noise. Noisier labels have less weight. The prior mean, the mean of all labels, depends on each of them; this is corrected.
    """
    k, usable = len(sample.counts), sample.other_counts > 0
    weights = usable * sample.row_weights
    rows = np.bincount(sample.targets, weights, minlength=k)
    by_label = np.bincount(sample.targets, products * weights, minlength=k) / np.where(rows > 0, rows, 1)
    labels = int((rows > 0).sum())
    size = noise + 1e-12
    for _ in range(3):
        counts = (rows > 0) * label_weights(sample.counts.astype(np.float64), size, noise)
        size = float(counts @ by_label) / max(float(counts.sum()), 1e-30) + noise / max(1.0, float(sample.counts.sum()))
        size = max(size * labels / max(labels - 1, 1), LEAST_VARIANCE * noise + 1e-12)
    return size


def label_weights(weights: Floats, size: float, noise: float) -> Floats:
    """Return the weights of labels in the prior from their numbers of images ``[k]``: 0 if all is noise, at most 1."""
    return np.asarray((weights > 0) * (size / (size + noise / np.maximum(weights, LEAST_WEIGHT))) ** 2)


def regress_means(vectors: Floats, means: Floats) -> tuple[Floats, Floats]:
    """Regress means on label vectors; return the map ``[a, d]`` and the leave-one-label-out predictions ``[k, d]``.

    Ridge regression from vectors ``[k, a]`` to means ``[k, d]``, both around zero, in closed form: Hoerl and Kennard, Technometrics 12
    (1970). The penalty minimises the leave-one-label-out error, residual / (1 - h).
    """
    values, turns = _gram_axes(vectors)
    values, projections = np.maximum(values, 0), turns.T @ means
    mean = max(float(values.sum()) / len(vectors), 1e-12)

    def leave_out_residuals(penalty: float) -> Floats:
        share = values / (values + penalty * mean)
        leverage = (turns**2 * share).sum(1)
        return np.asarray((means - (turns * share) @ projections) / np.maximum(1 - leverage, 1e-6)[:, None])

    penalty = min(PENALTIES, key=lambda each: float((leave_out_residuals(each) ** 2).sum()))
    weights = vectors.T @ (turns / (values + penalty * mean)) @ projections
    return weights, means - leave_out_residuals(penalty)


def _gram_axes(vectors: Floats) -> tuple[Floats, Floats]:
    """Return values ``[q]`` and axes ``[k, q]`` of the products of vectors ``[k, a]``; of many labels only those that are not 0."""
    k, a = vectors.shape
    if k <= max(a, MANY_LABELS):
        values, turns = np.linalg.eigh(vectors @ vectors.T)
        return values, turns
    values, turns = np.linalg.eigh(vectors.T @ vectors)
    nonzero = values > 1e-10 * values[-1]
    return values[nonzero], vectors @ turns[:, nonzero] / np.sqrt(values[nonzero])
