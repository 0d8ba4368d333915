"""Scores and label embeddings of models whose score is linear in the image embedding, and what is kept of training embeddings.

Images of new labels are best compared by whitened embeddings, in which images of one label differ alike in every direction.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.images.targets import several_true
from labelwise.train.tensors import linear_scores as linear_scores
from labelwise.train.tensors import segment_mean


@dataclass(frozen=True, eq=False)
class EmbeddingStatistics:
    """What is kept of training embeddings, so that a label can be added later."""

    means: Tensor  # mean embedding of each label [k, d]
    counts: Tensor  # images of each label [k]
    # covariance of embeddings around the mean of their label, every label weighing the same [d, d]. Where several
    # labels may be true of an image: covariance of all embeddings around their mean.
    within: Tensor
    # mean of all embeddings [d] where several labels may be true of an image, else None
    background: Tensor | None = None


def embedding_statistics(embeddings: Tensor, targets: Tensor, k: int) -> EmbeddingStatistics:
    """Return the statistics of image embeddings ``[n, d]`` of k labels, in double precision.

    Targets are ``[n]``; or, where several may be true, which are, ``[n, k]`` (bool): an image then counts for each.
    """
    x = embeddings.double()
    if several_true(targets):
        counts = targets.sum(0).double()
        means = targets.double().T @ x / counts.clamp_min(1)[:, None]
        return EmbeddingStatistics(means, counts, torch.cov(x.T, correction=0).reshape(x.shape[1], -1), x.mean(0))
    counts = torch.bincount(targets, minlength=k).double()
    means = x.new_zeros(k, x.shape[1]).index_add_(0, targets, x) / counts.clamp_min(1)[:, None]
    inside = x - means[targets]
    weight = (1 / (counts.clamp_min(1) * (counts > 0).sum()))[targets]
    return EmbeddingStatistics(means, counts, (inside * weight[:, None]).T @ inside)


def unit_statistics(embeddings: Tensor, targets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the mean of embeddings ``[n, d]`` at unit length ``[d]`` and their covariance inside a label ``[d, d]``.

    Each of the k labels weighs the same.
    """
    unit = embedding_statistics(normalize(embeddings, dim=1), targets, k)
    return unit.means[unit.counts > 0].mean(0).float(), unit.within.float()


def whiten(embeddings: Tensor, mean: Tensor, within: Tensor, ridge: float = 1.0) -> Tensor:
    """Return embeddings ``[n, d]`` at unit length, less the mean, in coordinates in which ``within`` is the identity.

    The ridge is added to the covariance, relative to its mean variance: the larger, the nearer to embeddings that are
    centred alone.
    """
    extra = ridge * within.diagonal().mean().clamp_min(1e-12).double()
    factor = torch.linalg.cholesky(within.double() + extra * torch.eye(len(within), device=within.device))
    centred = normalize(embeddings.float(), dim=1) - mean
    whitened: Tensor = torch.linalg.solve_triangular(factor.float(), centred.T, upper=False).T
    return whitened


def solve_label_embeddings(
    examples: Tensor, groups: Tensor, known: EmbeddingStatistics, label_embeddings: Tensor, *, ridge: float = 1.0
) -> Tensor:
    """Return the embeddings ``[g, d + 1]`` of new labels from their examples, in closed form, each label on its own.

    A new label scores like the trained label its examples resemble most, plus what tells the two apart: the
    difference of their Gaussian log-likelihoods with a shared covariance, which is linear in the image embedding. The mean
    of m examples is off by a random amount that makes every image look too far away; the expected excess is added
    back, without which a label taught from few examples would hardly ever win.

    Where several labels may be true of an image, no trained label stands against a new one. What tells its examples
    from all training images does: again a difference of log-likelihoods, brought to the level of trained scores.

    ``groups [m]`` says the new label of each example ``[m, d]``, in 0..g-1, none of them empty; ``label_embeddings`` are those of
    the trained labels ``[k, d + 1]``. The ridge is added to the covariance, relative to its mean variance.
    """
    here = (known.counts > 0).nonzero()[:, 0]
    means, counts, trained = known.means[here].double(), known.counts[here].double(), label_embeddings[here].double()
    within = known.within.double()
    penalty = ridge * within.diagonal().mean().clamp_min(1e-12)
    precision = torch.linalg.inv(within + penalty * torch.eye(len(within), dtype=within.dtype, device=within.device))
    excess = 0.5 * (precision * within).sum()
    likelihoods = _likelihoods(means, precision, excess / counts)
    mean = segment_mean(examples.double(), groups, int(groups.max()) + 1)
    new = _likelihoods(mean, precision, excess / torch.bincount(groups))
    if known.background is not None:
        points = torch.cat([means, known.background.double()[None]])
        base = _likelihoods(points[-1:], precision, excess * 0)[0]
        scores, logs = linear_scores(points, trained), linear_scores(points, likelihoods - base)
        scale = _slope(scores - scores.mean(), logs - logs.mean())
        solved = scale * (new - base)
        solved[:, -1] += scores.mean() - scale * logs.mean()
        return solved.to(examples.dtype)
    nearest = linear_scores(mean, trained).argmax(1)
    tables = (linear_scores(means, table) for table in (trained, likelihoods))
    scale = _slope(*(table - table.mean(1, keepdim=True) for table in tables))
    return (trained[nearest] + scale * (new - likelihoods[nearest])).to(examples.dtype)


def _likelihoods(means: Tensor, precision: Tensor, excess: Tensor) -> Tensor:
    """Return the log-likelihood of an embedding under each mean as a label embedding ``[k, d + 1]``, up to a common term."""
    weights = means @ precision
    bias = -0.5 * (weights * means).sum(1) + excess
    return torch.cat([weights, bias[:, None]], 1)


def _slope(scores: Tensor, logs: Tensor) -> Tensor:
    """Return how much trained scores change for a change of one in the log-likelihoods, by least squares."""
    return (scores * logs).sum() / (logs * logs).sum().clamp_min(1e-12)
