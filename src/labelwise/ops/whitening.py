"""Embeddings in which images of one label differ alike in every direction: what images of new labels are best compared by."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.ops.segments import segment_mean

RIDGE = 1.0


def unit_statistics(embeddings: Tensor, targets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the mean of embeddings ``[n, d]`` at unit length ``[d]`` and their covariance inside a label ``[d, d]``.

    Each of the k labels weighs the same.
    """
    unit = normalize(embeddings.float(), dim=1)
    counts = torch.bincount(targets, minlength=k)
    means = segment_mean(unit, targets, k)
    inside = unit - means[targets]
    weight = 1 / (counts[targets] * (counts > 0).sum())
    return means[counts > 0].mean(0), (inside * weight[:, None]).T @ inside


def whiten(embeddings: Tensor, mean: Tensor, within: Tensor, ridge: float = RIDGE) -> Tensor:
    """Return embeddings ``[n, d]`` at unit length, less the mean, in coordinates in which ``within`` is the identity.

    The ridge is added to the covariance, relative to its mean variance: the larger, the nearer to embeddings that are
    centred alone.
    """
    extra = ridge * within.diagonal().mean().clamp_min(1e-12).double()
    factor = torch.linalg.cholesky(within.double() + extra * torch.eye(len(within), device=within.device))
    centred = normalize(embeddings.float(), dim=1) - mean
    whitened: Tensor = torch.linalg.solve_triangular(factor.float(), centred.T, upper=False).T
    return whitened
