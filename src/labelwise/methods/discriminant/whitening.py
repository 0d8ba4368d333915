"""A shared-covariance Gaussian on root features, every choice of which is made by exact leave-one-out."""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from labelwise.core.platt import fit_temperature
from labelwise.methods.discriminant.beliefs import PRIOR_LABELS, label_beliefs, spread_size
from labelwise.methods.discriminant.leave_one_out import Sample, left_out_distances, left_out_products
from labelwise.train.tensors import root_features as root_features

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # of the mean variance inside labels
MOST_CHOSEN_BY = 1_000  # rows left out to choose a ridge by; of many labels fewer, but not so few as FEWEST
MOST_PAIRS, FEWEST = 2**22, 200
NOTHING = 1e-12  # a mean variance inside labels below this is rounding: copies of one picture
# Sharpness of cosines where one picture a label leaves nothing to choose it by: the more, the less alike pictures are and the more
# labels there are. About as sure as was right for k of the labels of three sets of photos, see docs/discriminant.md.
PLAIN_SHARPNESS, BY_LABELS = 12.0, 0.3


@dataclass(frozen=True, eq=False)
class Whitening:
    """What brings rows to coordinates in which rows of one label spread alike, and how sure scores there are."""

    root: Tensor  # P^(1/2) [d, d], symmetric
    centre: Tensor  # mean of the means of labels [d]
    noise: float  # tau: squared distance of a row to the mean of infinitely many of its label
    sharpness: float  # b
    ridge: float = 0.0  # r

    def __call__(self, rows: Tensor) -> Tensor:
        """Return whitened rows ``[n, d]`` around the centre."""
        return (rows - self.centre) @ self.root

    def label_rows(self, means: Tensor, excess: Tensor) -> Tensor:
        """Return label embeddings ``[g, d + 1]``, weights and then a bias, of whitened means ``[g, d]``.

        ``excess [g]`` is taken off squared distances to them.
        """
        if not self.noise:
            means, excess = normalize(means, dim=1), excess * 0 + 1  # whose squares are 1: scores are cosines
        weights = means @ self.root
        bias = 0.5 * (excess - means.square().sum(1)) - weights @ self.centre
        return (self.sharpness * torch.cat([weights, bias[:, None]], 1)).float()


def fit_whitening(rows: Tensor, targets: Tensor, k: int, groups: Tensor | None = None) -> Whitening:
    """Return the whitening of rows ``[n, d]`` of k labels under which rows left out are most probably of their label.

    The inverse covariance inside labels is P = (W + r t I)^-1, with t the mean variance. One decomposition serves all r, in the space
    that the rows span where they are fewer than their numbers. Rows of one group are left out together. Where no two groups share a
    label there is no covariance inside labels: that of all rows takes its place, its ridge the mean variance in the directions in
    which rows vary, the noise is 0, and labels are to be told apart by cosines.
    """
    x, basis = rows, None
    n, d = x.shape
    if n < d:
        basis, corner = torch.linalg.qr(x.double().T)
        x = corner.T
    sample = Sample.of(x, targets, k, groups)
    centre = label_centre(sample)
    apart = x - centre if not bool((sample.rest_weights > 0).any()) else sample.inside
    values, axes = torch.linalg.eigh((apart.T @ apart).double() / sample.degrees)
    values, axes = values.clamp_min(0), axes.to(x)
    variance = max(float(values.sum()) / d, NOTHING)
    if bool((sample.rest_weights > 0).any()):
        some = sample.select(some_groups(sample.groups, min(MOST_CHOSEN_BY, max(FEWEST, MOST_PAIRS // k))))
        sharpness, noise, ridge = _best_ridge(some.turned(centre, axes), values, variance)
    else:
        sharpness, noise, ridge = plain_sharpness(rows, int((sample.counts > 0).sum())), 0.0, d / max(1, n - 1)
    outside = (ridge * variance) ** -0.5
    scale = (values + ridge * variance) ** -0.5 - outside
    if basis is not None:
        centre, axes = basis @ centre, basis @ axes
    root = (axes * scale.to(x)) @ axes.T + outside * torch.eye(d, dtype=x.dtype, device=x.device)
    return Whitening(root=root, centre=centre, ridge=ridge, noise=noise, sharpness=sharpness)


def plain_sharpness(rows: Tensor, k: int) -> float:
    """Return how sure cosines are to be that tell k labels of one picture each apart, from their rows ``[n, d]``."""
    n = len(rows)
    cosine = (float(normalize(rows.double(), dim=1).sum(0).square().sum()) - n) / max(1, n * (n - 1))
    return max(1.0, PLAIN_SHARPNESS * (1 - cosine) * math.pow(k, BY_LABELS))


def closed_form_rows(rows: Tensor, targets: Tensor, k: int, groups: Tensor | None = None) -> Tensor:
    """Return the embeddings ``[k, d + 1]`` of labels by which rows ``[n, d]`` are told best when left out, see ``fit_whitening``."""
    whitening = fit_whitening(rows, targets, k, groups)
    sample = Sample.of(whitening(rows), targets, k, groups)
    plain, drawn = (label_beliefs(sample, whitening.noise, prior=prior) for prior in (math.inf, PRIOR_LABELS))
    return whitening.label_rows(*plain.or_of_few(drawn, sample.weights))


def label_centre(sample: Sample) -> Tensor:
    """Return the mean ``[d]`` of the means of labels, in which a label counts the less, the less its mean is known."""
    middle, present = sample.means[sample.counts > 0].mean(0), sample.counts > 0
    noise = float(sample.inside.square().sum()) / sample.degrees
    size = spread_size(((sample.rows - middle) * (sample.rest - middle)).sum(1), sample, noise)
    counts = present / (size + noise / sample.weights.clamp_min(1))
    return (counts / counts.sum()) @ sample.means


def mean_noise(sample: Sample) -> float:
    """Return tau of whitened rows: from their squared distances to means of others of their label, each left out."""
    seen, away = sample.rest_weights > 0, sample.rows - sample.rest
    distances = left_out_products(sample, away, away)
    return float((distances * sample.rest_weights / (sample.rest_weights + 1))[seen].mean())


def left_out_scores(distances: Tensor, sample: Sample, excess: Tensor, own: Tensor) -> Tensor:
    """Return log-likelihoods ``[n, k]`` from left-out distances, less what errors of means add to them.

    That is ``excess [k]``; and ``own [n]`` for the label of each row, for all rows of its group, which may have several labels.
    """
    _, group = torch.unique(sample.groups, return_inverse=True)
    table = excess.repeat(int(group.max()) + 1, 1)
    table[group, sample.targets] = own
    return -0.5 * (distances - table[group])


def _best_ridge(sample: Sample, values: Tensor, variance: float) -> tuple[float, float, float]:
    """Return sharpness, noise and ridge under which rows left out are likeliest, along axes of these variances ``[d]``.

    From 1 on, as long as the next ridge is better: of 65 draws of five sets of photos the likelihood had another peak in four of two pictures a label, less than 0.001 higher.
    """

    @cache
    def trial(place: int) -> tuple[float, float, float, float]:
        ridge = RIDGES[place]
        return *_likelihood(sample.scaled((values + ridge * variance).float() ** -0.5)), ridge

    best = RIDGES.index(1.0)
    for step in (1, -1):
        while 0 <= best + step < len(RIDGES) and trial(best + step) < trial(best):
            best += step
    return trial(best)[1:]


def _likelihood(sample: Sample) -> tuple[float, float, float]:
    """Return the cross entropy of rows left out, the sharpness b that makes it least, and tau."""
    seen = sample.rest_weights > 0
    told = sample.weights > 1 + 1e-6  # a label of one group has no row that could be told: it would only win wrongly
    noise = mean_noise(sample)
    beliefs = label_beliefs(sample, noise, prior=math.inf)
    distances = left_out_distances(sample, beliefs.means, beliefs.rest)
    scores = left_out_scores(distances, sample, beliefs.excess, beliefs.rest_excess)[seen][:, told]
    targets = (told.cumsum(0) - 1)[sample.targets[seen]]
    sharpness = 1 / fit_temperature(scores.cpu(), targets.cpu())
    return float(cross_entropy(scores * sharpness, targets)), sharpness, noise


def some_groups(groups: Tensor, most: int) -> Tensor:
    """Return all rows of these groups ``[n]``, or of many the rows of some whole groups, ``most`` of them at most."""
    if len(groups) <= most:
        return torch.arange(len(groups), device=groups.device)
    _, group = torch.unique(groups, return_inverse=True)
    order = torch.randperm(int(group.max()) + 1, generator=torch.Generator().manual_seed(0)).to(group.device)
    place = order[group].argsort(stable=True)
    last = order[group][place[most]]
    return (order[group] < last).nonzero()[:, 0]
