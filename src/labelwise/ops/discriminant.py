"""A shared-covariance Gaussian on root features, every choice of which is made by exact leave-one-out."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from labelwise.ops.arrays import root_features as root_features
from labelwise.ops.calibration import fit_temperature
from labelwise.ops.left_out import Sample, left_out_distances

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # of the mean variance inside labels
MOST_CHOSEN_BY = 3_000  # rows left out to choose a ridge by
NOTHING = 1e-12  # a mean variance inside labels below this is rounding: copies of one picture
PLAIN_SHARPNESS = 20.0  # of cosines, where one picture a label leaves nothing to choose it by


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
    x, basis = rows.double(), None
    n, d = x.shape
    if n < d:
        basis, corner = torch.linalg.qr(x.T)
        x = corner.T
    sample = Sample.of(x, targets, k, groups)
    centre = sample.means[sample.counts > 0].mean(0)
    apart = x - centre if not bool((sample.rest_weights > 0).any()) else sample.inside
    values, axes = torch.linalg.eigh(apart.T @ apart / sample.degrees)
    values = values.clamp_min(0)
    variance = max(float(values.sum()) / d, NOTHING)
    if bool((sample.rest_weights > 0).any()):
        some = _some_groups(sample).turned(axes.float())
        trials = [(*_likelihood(some.scaled((values + ridge * variance).float() ** -0.5)), ridge) for ridge in RIDGES]
        _, sharpness, noise, ridge = min(trials)
    else:
        sharpness, noise, ridge = PLAIN_SHARPNESS, 0.0, d / max(1, n - 1)
    outside = (ridge * variance) ** -0.5
    scale = (values + ridge * variance) ** -0.5 - outside
    if basis is not None:
        centre, axes = basis @ centre, basis @ axes
    root = (axes * scale) @ axes.T + outside * torch.eye(d, dtype=x.dtype, device=x.device)
    return Whitening(root=root, centre=centre, ridge=ridge, noise=noise, sharpness=sharpness)


def closed_form_rows(rows: Tensor, targets: Tensor, k: int, groups: Tensor | None = None) -> Tensor:
    """Return the embeddings ``[k, d + 1]`` of labels by which rows ``[n, d]`` are told best when left out, see ``fit_whitening``."""
    whitening = fit_whitening(rows, targets, k, groups)
    sample = Sample.of(whitening(rows.double()), targets, k, groups)
    return whitening.label_rows(sample.means, whitening.noise / sample.weights.clamp_min(1))


def mean_noise(distances: Tensor, weights: Tensor) -> float:
    """Return tau from squared distances ``[n]`` of rows to means of others of their label, of these weights ``[n]``."""
    seen = weights > 0
    return float((distances * weights / (weights + 1))[seen].mean())


def left_out_scores(distances: Tensor, sample: Sample, excess: Tensor, own: Tensor) -> Tensor:
    """Return log-likelihoods ``[n, k]`` from left-out distances, less what errors of means add to them.

    That is ``excess [k]``; and ``own [n]`` for the label of each row, for all rows of its group, which may have several labels.
    """
    _, group = torch.unique(sample.groups, return_inverse=True)
    table = excess.repeat(int(group.max()) + 1, 1)
    table[group, sample.targets] = own
    return -0.5 * (distances - table[group])


def _likelihood(sample: Sample) -> tuple[float, float, float]:
    """Return the cross entropy of rows left out, the sharpness b that makes it least, and tau."""
    distances = left_out_distances(sample, sample.means, sample.rest)
    seen = sample.rest_weights > 0
    noise = mean_noise(distances.gather(1, sample.targets[:, None])[:, 0], sample.rest_weights)
    present = sample.counts > 0
    places = present.cumsum(0) - 1
    excess, own = (noise / weights.clamp_min(1) for weights in (sample.weights, sample.rest_weights))
    scores = left_out_scores(distances, sample, excess, own)[seen][:, present]
    targets = places[sample.targets[seen]]
    sharpness = 1 / fit_temperature(scores, targets)
    return float(cross_entropy(scores * sharpness, targets)), sharpness, noise


def _some_groups(sample: Sample) -> Sample:
    """Return the sample, or of many rows some whole groups of it."""
    if len(sample.rows) <= MOST_CHOSEN_BY:
        return sample
    _, group = torch.unique(sample.groups, return_inverse=True)
    order = torch.randperm(int(group.max()) + 1, generator=torch.Generator().manual_seed(0)).to(group.device)
    place = order[group].argsort(stable=True)
    last = order[group][place[MOST_CHOSEN_BY]]
    return sample.select((order[group] < last).nonzero()[:, 0])
