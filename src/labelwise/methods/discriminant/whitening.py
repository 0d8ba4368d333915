"""Linear discriminant analysis on root features: a covariance that all labels share, its ridge chosen by exact leave-one-out.

Fisher, "The use of multiple measurements in taxonomic problems", Annals of Eugenics 7 (1936); the ridge as in Friedman, "Regularized
discriminant analysis", JASA 84 (1989), but chosen by the likelihood of rows left out, see ``leave_one_out``. With W the covariance of n
rows of k labels inside these, and t its mean variance, rows are whitened by P^(1/2), where P = (W + r t I)^-1.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from labelwise.core.platt import fit_temperature
from labelwise.core.saved_parts import shaped
from labelwise.methods.discriminant.beliefs import PRIOR_LABELS, between_label_variance, label_beliefs
from labelwise.methods.discriminant.leave_one_out import (
    Floats,
    Ints,
    TrainingRows,
    leave_out_distances,
    leave_out_products,
    square_norms,
)
from labelwise.support.processes import on_one_thread
from labelwise.support.rows import Draws, unit_rows

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # relative to the mean variance inside labels
RIDGE_ROWS = 1_000  # rows left out to choose a ridge by; of many labels fewer, but at least LEAST_RIDGE_ROWS
RIDGE_PAIRS, LEAST_RIDGE_ROWS = 2**22, 200
LEAST_VARIANCE = 1e-12  # a mean variance inside labels below this is rounding: copies of one image
# Sharpness of cosines where one image a label leaves nothing to choose it by: larger, the less alike images are and the more
# labels there are. About as sure as was right for k of the labels of three sets of photos, see docs/results/discriminant.md.
COSINE_SHARPNESS, LABELS_POWER = 12.0, 0.3


@dataclass(frozen=True, eq=False, kw_only=True)
class Whitening:
    """A map to coordinates in which rows of one label vary equally in all directions, and the scale of scores there."""

    root: Floats = shaped("d", "d")  # P^(1/2), symmetric
    centre: Floats = shaped("d")  # mean of the means of labels
    # tau: mean squared distance of a row to the mean of infinitely many of its label; 0: scores are cosines
    noise: float
    sharpness: float  # b
    ridge: float = 0.0  # r

    def __call__(self, rows: Floats) -> Floats:
        """Return whitened rows ``[n, d]`` around the centre."""
        whitened: Floats = (rows - self.centre) @ self.root
        return whitened

    def label_rows(self, means: Floats, excess: Floats) -> Floats:
        """Return label embeddings ``[g, d + 1]``, weights and then a bias, of whitened means ``[g, d]``.

        ``excess [g]`` is subtracted from squared distances to them.
        """
        if not self.noise:
            means, excess = unit_rows(means), excess * 0 + 1  # whose squares are 1: scores are cosines
        weights = means @ self.root
        bias = 0.5 * (excess - square_norms(means)) - weights @ self.centre
        return np.asarray(self.sharpness * np.concatenate([weights, bias[:, None]], 1), np.float32)


def fit_whitening(
    rows: Floats, targets: Ints, k: int, groups: Ints | None = None, row_weights: Floats | None = None
) -> Whitening:
    """Return the whitening of rows ``[n, d]`` of k labels under which rows left out are most probably of their label.

    One decomposition serves all ridges, in the space that the rows span where they are fewer than their numbers. Rows of one group are
    left out together. Where no two groups share a label there is no covariance inside labels: that of all rows takes its place, its
    ridge the mean variance in the directions in which rows vary, the noise is 0, and scores are cosines.
    """
    x, basis = rows, None
    n, d = x.shape
    if n < d:
        basis, corner = np.linalg.qr(x.astype(np.float64).T)
        x = corner.T
    sample = TrainingRows.of(x, targets, k, groups, row_weights)
    centre = label_centre(sample)
    comparable = bool((sample.other_counts > 0).any())
    residuals = x - centre
    covariance = sample.covariance if comparable else (residuals.T @ residuals).astype(np.float64) / sample.degrees
    values, axes = np.linalg.eigh(covariance)
    values, axes = np.maximum(values, 0), axes.astype(x.dtype)
    variance = max(float(values.sum()) / d, LEAST_VARIANCE)
    if comparable:
        some = sample.select(draw_groups(sample.groups, min(RIDGE_ROWS, max(LEAST_RIDGE_ROWS, RIDGE_PAIRS // k))))
        sharpness, noise, ridge = _best_ridge(some.rotate(centre, axes), values, variance)
    else:
        sharpness, noise, ridge = cosine_sharpness(rows, int((sample.counts > 0).sum())), 0.0, d / max(1, n - 1)
    outside = (ridge * variance) ** -0.5
    scale = ((values + ridge * variance) ** -0.5 - outside).astype(x.dtype)
    if basis is not None:
        centre, axes = basis @ centre, basis @ axes
    root = (axes * scale) @ axes.T
    root[np.diag_indices(d)] += outside
    return Whitening(root=root, centre=centre, ridge=ridge, noise=noise, sharpness=sharpness)


def cosine_sharpness(rows: Floats, k: int) -> float:
    """Return how sure cosines are to be that distinguish k labels of one image each, from their rows ``[n, d]``."""
    n = len(rows)
    cosine = (float((unit_rows(rows.astype(np.float64)).sum(0) ** 2).sum()) - n) / max(1, n * (n - 1))
    return max(1.0, COSINE_SHARPNESS * (1 - cosine) * math.pow(k, LABELS_POWER))


@on_one_thread
def closed_form_rows(rows: Floats, targets: Ints, k: int, groups: Ints | None = None) -> Floats:
    """Return the label embeddings ``[k, d + 1]`` that suit rows ``[n, d]`` best when these are left out, see ``fit_whitening``."""
    whitening = fit_whitening(rows, targets, k, groups)
    sample = TrainingRows.of(whitening(rows), targets, k, groups)
    plain, shrunken = (label_beliefs(sample, whitening.noise, prior_labels=prior) for prior in (math.inf, PRIOR_LABELS))
    return whitening.label_rows(*plain.shrink_small_classes(shrunken))


def label_centre(sample: TrainingRows) -> Floats:
    """Return the mean ``[d]`` of the means of labels, each weighted by ``label_shares``."""
    return np.asarray(label_shares(sample) @ sample.means)


def label_shares(sample: TrainingRows) -> Floats:
    """Return the weight of each label in the mean of all ``[k]``, 1 in total: an uncertain mean weighs less."""
    present = sample.counts > 0
    middle = sample.means[present].mean(0)
    noise = float(square_norms(sample.residuals) @ sample.row_weights) / sample.degrees
    products = np.einsum("nd,nd->n", sample.rows - middle, sample.other_means - middle)
    size = between_label_variance(products, sample, noise)
    counts = present / (size + noise / np.maximum(sample.counts, 1))
    return np.asarray(counts / counts.sum())


def mean_noise(sample: TrainingRows) -> float:
    """Return tau of whitened rows: from their squared distances to means of others of their label, each left out."""
    usable, residuals = sample.other_counts > 0, sample.rows - sample.other_means
    distances = leave_out_products(sample, residuals, residuals)
    single = distances * sample.other_counts / (sample.other_counts + 1)
    return float(np.average(single[usable], weights=sample.row_weights[usable]))


def leave_out_scores(distances: Floats, sample: TrainingRows, excess: Floats, own_excess: Floats) -> Floats:
    """Return log-likelihoods ``[n, k]`` from leave-one-out distances, corrected for the errors of means.

    That is ``excess [k]``; and ``own_excess [n]`` for the label of each row, for all rows of its group, which may have several labels.
    """
    _, group = np.unique(sample.groups, return_inverse=True)
    if len(group) == group.max(initial=-1) + 1:  # all rows are groups of their own
        scores = distances - excess
        rows = np.arange(len(scores))
        scores[rows, sample.targets] = distances[rows, sample.targets] - own_excess
        scores *= -0.5
        return scores
    table = np.tile(excess, (int(group.max()) + 1, 1))
    table[group, sample.targets] = own_excess
    return np.asarray(-0.5 * (distances - table[group]))


def draw_groups(groups: Ints, most: int) -> Ints:
    """Return all rows of these groups ``[n]``, or of many the rows of some whole groups, ``most`` of them at most."""
    if len(groups) <= most:
        return np.arange(len(groups))
    _, group = np.unique(groups, return_inverse=True)
    order = Draws(0).permutation(int(group.max()) + 1)
    place = order[group].argsort(kind="stable")
    last = order[group][place[most]]
    return np.flatnonzero(order[group] < last)


def _best_ridge(sample: TrainingRows, values: Floats, variance: float) -> tuple[float, float, float]:
    """Return sharpness, noise and ridge under which rows left out are likeliest, along axes of these variances ``[d]``.

    From 1 on, as long as the next ridge is better: of 65 draws of five sets of photos the likelihood had another peak in four of two
    images a label, less than 0.001 higher.
    """

    @cache
    def trial(place: int) -> tuple[float, float, float, float]:
        ridge = RIDGES[place]
        return *_likelihood(sample.scale((values + ridge * variance).astype(sample.rows.dtype) ** -0.5)), ridge

    best = RIDGES.index(1.0)
    for step in (1, -1):
        while 0 <= best + step < len(RIDGES) and trial(best + step) < trial(best):
            best += step
    return trial(best)[1:]


def _likelihood(sample: TrainingRows) -> tuple[float, float, float]:
    """Return the cross entropy of rows left out, the sharpness b that minimises it, and tau."""
    usable = sample.other_counts > 0
    # a label of one group has no row that could be answered: it would only win wrongly
    has_rows = np.bincount(sample.targets[usable], minlength=len(sample.counts)) > 0
    noise = mean_noise(sample)
    beliefs = label_beliefs(sample, noise, prior_labels=math.inf)
    distances = leave_out_distances(sample, beliefs.means, beliefs.other_means)
    scores = leave_out_scores(distances, sample, beliefs.excess, beliefs.other_excess)[usable][:, has_rows]
    targets = (has_rows.cumsum() - 1)[sample.targets[usable]]
    weights = sample.row_weights[usable]
    sharpness = 1 / fit_temperature(scores, targets, weights)
    log_odds = scores.astype(np.float64) * sharpness
    log_odds -= log_odds.max(1, keepdims=True)
    entropy = np.log(np.exp(log_odds).sum(1)) - log_odds[np.arange(len(targets)), targets]
    return float(np.average(entropy, weights=weights)), sharpness, noise
