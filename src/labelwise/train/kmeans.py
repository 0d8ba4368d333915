"""K-means from spread-out starts."""

from typing import NamedTuple

import torch
from torch import Tensor

from labelwise.support.errors import UsageError
from labelwise.train.tensors import segment_mean


class Clusters(NamedTuple):
    """Centres ``[k, d]``, the cluster of each row ``[n]``, and the mean squared distance to the own centre."""

    centres: Tensor
    members: Tensor
    inertia: float


def nearest_centres(embeddings: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest centre of each embedding ``[..., n]`` and its squared distance, from ``[n, d]`` and ``[..., k, d]``."""
    near = embeddings @ centres.mT * 2 - centres.square().sum(-1)[..., None, :]
    best, where = near.max(-1)
    return where, (embeddings.square().sum(-1) - best).clamp_min(0)


def kmeans(embeddings: Tensor, k: int, generator: torch.Generator, *, starts: int = 10, steps: int = 100) -> Clusters:
    """Return the clusters of least inertia among several runs of k-means from spread-out starts (k-means++)."""
    if len(embeddings) < k:
        raise UsageError(f"{len(embeddings)} images cannot make {k} clusters; give at least as many images as labels.")
    runs = [_lloyd(embeddings, _spread_out(embeddings, k, generator), steps) for _ in range(starts)]
    return min(runs, key=lambda one: one.inertia)


def _spread_out(embeddings: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Return k embeddings ``[k, d]`` drawn one after another with the squared distance to those before."""
    rows = [int(torch.randint(len(embeddings), (), generator=generator))]
    far = (embeddings - embeddings[rows[0]]).square().sum(1)
    for _ in range(k - 1):
        weights = far.double().cpu().cumsum(0)
        at = torch.rand((), generator=generator, dtype=torch.float64) * weights[-1]
        rows.append(min(int(torch.searchsorted(weights, at)), len(embeddings) - 1))
        far = torch.minimum(far, (embeddings - embeddings[rows[-1]]).square().sum(1))
    return embeddings[rows]


def _lloyd(embeddings: Tensor, centres: Tensor, steps: int) -> Clusters:
    """Return where k-means arrives from these centres; a centre without embeddings moves to the embedding farthest from its own."""
    k = len(centres)
    members, far = nearest_centres(embeddings, centres)
    for _ in range(steps):
        centres = segment_mean(embeddings, members, k)
        empty = (torch.bincount(members, minlength=k) == 0).nonzero()[:, 0]
        if len(empty):
            centres[empty] = embeddings[far.topk(len(empty)).indices]
        before = members
        members, far = nearest_centres(embeddings, centres)
        if torch.equal(members, before) and not len(empty):
            break
    return Clusters(centres, members, float(far.double().mean()))
