"""Matching two structures: which of k clusters is which of k labels, where only similarities inside either side are known.

A matching sends cluster i to label ``matching[i]``, each label once. Its score is the mean product of cluster similarities
and the label similarities they are sent to (quadratic assignment). Many matchings are improved together.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Structure(NamedTuple):
    """What is known of clusters and of labels."""

    clusters: Tensor  # how alike clusters are [k, k], standardised (see `standardised`)
    labels: Tensor  # how alike labels are [k, k], likewise
    # how well each cluster fits each label by itself [k, k], added to the score; zeros where nothing is known
    fits: Tensor

    @classmethod
    def of(cls, clusters: Tensor, labels: Tensor, fits: Tensor | None = None) -> "Structure":
        """Return the structure of raw similarities ``[k, k]``."""
        left, right = standardised(clusters), standardised(labels)
        return cls(left, right, torch.zeros_like(left) if fits is None else fits.to(left))


def standardised(similarity: Tensor) -> Tensor:
    """Return similarities ``[k, k]`` made symmetric, of mean 0 and variance 1 off the diagonal, and 0 on it (float64)."""
    both = (similarity.double() + similarity.double().T) / 2
    k = len(both)
    off = ~torch.eye(k, dtype=torch.bool, device=both.device)
    count = max(1, k * (k - 1))
    centred = (both - (both * off).sum() / count) * off
    return centred / (centred.square().sum() / count).sqrt().clamp_min(1e-12)


def matching_scores(structure: Structure, matchings: Tensor) -> Tensor:
    """Return the score of each matching ``[m]``, at most 1 without fits, from matchings ``[m, k]``."""
    k = matchings.shape[1]
    alike = (structure.clusters * _sent(structure.labels, matchings)).sum((1, 2)) / (k * (k - 1))
    return alike + structure.fits.gather(1, matchings.T).sum(0)


def improve(structure: Structure, matchings: Tensor, fixed: Tensor | None = None) -> Tensor:
    """Return the matchings ``[m, k]``, each improved by its best exchange of two labels until none helps (2-opt).

    Clusters at ``fixed [k]`` (bool) keep their label.
    """
    improved = matchings.clone()
    k = improved.shape[1]
    free = torch.ones(k, dtype=torch.bool, device=improved.device) if fixed is None else ~fixed
    allowed = torch.triu(free[:, None] & free, 1)
    active = torch.arange(len(improved), device=improved.device)
    while len(active) and bool(allowed.any()):
        gains = _gains(structure, improved[active]).masked_fill(~allowed, -torch.inf).flatten(1)
        best, pairs = gains.max(1)
        better = best > 1e-9
        active, pairs = active[better], pairs[better]
        first, second = pairs // k, pairs % k
        one, other = improved[active, first], improved[active, second]
        improved[active, first], improved[active, second] = other, one
    return improved


def random_matchings(count: int, k: int, generator: torch.Generator, fixed: Tensor | None = None) -> Tensor:
    """Return random matchings ``[count, k]``; ``fixed [k]`` has the label of clusters where it is known, else -1."""
    uniform = torch.rand(count, k, generator=generator)
    if fixed is None or not bool((fixed >= 0).any()):
        return uniform.argsort(1)
    clusters = (fixed < 0).nonzero()[:, 0]
    labels = torch.tensor(sorted(set(range(k)) - set(fixed.tolist())), dtype=torch.int64)
    matchings = fixed.repeat(count, 1)
    matchings[:, clusters] = labels[torch.rand(count, len(clusters), generator=generator).argsort(1)]
    return matchings


def gibbs_average(matchings: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """Return how probable it is that cluster i is label j ``[k, k]``: the average of the different matchings ``[m, k]``.

    A matching weighs exp(score / temperature); repeated ones count once.
    """
    different, inverse = torch.unique(matchings, dim=0, return_inverse=True)
    k = matchings.shape[1]
    own = scores.new_full((len(different),), -torch.inf).scatter_reduce(0, inverse, scores, "amax")
    weights = (own / temperature).softmax(0)
    flat = torch.arange(k, device=different.device) * k + different
    average = weights.new_zeros(k * k).index_add_(0, flat.flatten(), weights[:, None].expand(-1, k).flatten())
    return average.view(k, k)


def best_matching(fits: Tensor) -> Tensor:
    """Return the matching ``[k]`` with the largest sum of fits ``[k, k]`` (the Hungarian algorithm)."""
    from scipy.optimize import linear_sum_assignment  # takes a quarter of a second to import

    _, columns = linear_sum_assignment(fits.double().cpu().numpy(), maximize=True)
    return torch.as_tensor(columns, dtype=torch.int64, device=fits.device)


def _sent(labels: Tensor, matchings: Tensor) -> Tensor:
    """Return the label similarities that clusters are sent to ``[m, k, k]``."""
    return labels[matchings[:, :, None], matchings[:, None, :]]


def _gains(structure: Structure, matchings: Tensor) -> Tensor:
    """Return what the score of each matching gains when clusters i and j exchange their labels ``[m, k, k]``."""
    a, b, k = structure.clusters, _sent(structure.labels, matchings), matchings.shape[1]
    product = a @ b
    own = product.diagonal(dim1=-2, dim2=-1)
    change = product + product.mT - own[..., None] - own[..., None, :] + 2 * a * b
    unary = structure.fits[:, matchings].transpose(0, 1)  # [m, i, j]: cluster i with the label of cluster j
    kept = unary.diagonal(dim1=-2, dim2=-1)
    return 2 * change / (k * (k - 1)) + unary + unary.mT - kept[..., None] - kept[..., None, :]
