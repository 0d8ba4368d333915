"""Matching two structures: which of k clusters is which of k labels, where only similarities inside either side are known.

A matching sends cluster i to label ``matching[i]``, each label once. Its score is the mean product of cluster similarities
and the label similarities they are sent to (quadratic assignment). Many matchings are improved together.
"""

from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from labelwise.errors import UsageError


@dataclass(frozen=True, eq=False, kw_only=True)
class Structure:
    """What is known of clusters and of labels, in one or several views of equal weight.

    Attributes:
        clusters: how alike clusters are ``[s, k, k]``, standardised (see ``standardised``).
        labels: how alike labels are ``[s, k, k]``, likewise.
        fits: how well each cluster fits each label by itself ``[k, k]``, added to the score; zeros where nothing is known.
    """

    clusters: Tensor
    labels: Tensor
    fits: Tensor

    @classmethod
    def of(cls, clusters: Tensor, labels: Tensor, fits: Tensor | None = None) -> "Structure":
        """Return the structure of raw similarities ``[k, k]`` or ``[s, k, k]``, every pair of views compared."""
        left, right = standardised(clusters), standardised(labels)
        left, right = left.reshape(-1, *left.shape[-2:]), right.reshape(-1, *right.shape[-2:])
        if left.shape[-1] != right.shape[-1]:
            raise UsageError(
                f"There are {left.shape[-1]} clusters and {right.shape[-1]} labels; a matching needs as many."
            )
        pairs = [(a, b) for a in left for b in right]
        k = left.shape[-1]
        return cls(
            clusters=torch.stack([a for a, _ in pairs]),
            labels=torch.stack([b for _, b in pairs]),
            fits=torch.zeros(k, k, dtype=left.dtype) if fits is None else fits.to(left),
        )

    @property
    def pairs(self) -> float:
        """How many ordered pairs of clusters the score is a mean over, in all views."""
        s, k, _ = self.clusters.shape
        return float(s * k * (k - 1))


def standardised(similarity: Tensor) -> Tensor:
    """Return similarities ``[..., k, k]`` made symmetric, of mean 0 and variance 1 off the diagonal, and 0 on it (float64)."""
    both = (similarity.double() + similarity.double().mT) / 2
    k = both.shape[-1]
    off = ~torch.eye(k, dtype=torch.bool, device=both.device)
    count = max(1, k * (k - 1))
    centred = (both - (both * off).sum((-2, -1), keepdim=True) / count) * off
    spread = (centred.square().sum((-2, -1), keepdim=True) / count).sqrt()
    return centred / spread.clamp_min(1e-12)


def matching_scores(structure: Structure, matchings: Tensor) -> Tensor:
    """Return the score of each matching ``[m]``, at most 1 without fits, from matchings ``[m, k]``."""
    sent = _sent(structure.labels, matchings)
    alike = (structure.clusters * sent).sum((-3, -2, -1)) / structure.pairs
    return alike + structure.fits.gather(1, matchings.T).sum(0)


def improve(structure: Structure, matchings: Tensor, fixed: Tensor | None = None) -> Tensor:
    """Return the matchings ``[m, k]``, each improved by its best exchange of two labels until none helps (2-opt).

    Args:
        structure: what is matched.
        matchings: where to start, ``[m, k]``.
        fixed: clusters whose label stays as it is ``[k]`` (bool).
    """
    found = matchings.clone()
    k = found.shape[1]
    free = torch.ones(k, dtype=torch.bool, device=found.device) if fixed is None else ~fixed
    allowed = torch.triu(free[:, None] & free, 1)
    if not bool(allowed.any()):
        return found
    active = torch.arange(len(found), device=found.device)
    while len(active):
        gains = _gains(structure, found[active]).masked_fill(~allowed, -torch.inf).flatten(1)
        best, where = gains.max(1)
        better = best > 1e-9
        active, where = active[better], where[better]
        first, second = where // k, where % k
        one, other = found[active, first], found[active, second]
        found[active, first], found[active, second] = other, one
    return found


def random_matchings(count: int, k: int, generator: torch.Generator, fixed: Tensor | None = None) -> Tensor:
    """Return random matchings ``[count, k]``.

    Args:
        count: how many.
        k: clusters, and labels.
        generator: draws them.
        fixed: the label of each cluster that is known ``[k]``, -1 where it is not.
    """
    drawn = torch.rand(count, k, generator=generator).argsort(1)
    if fixed is None or not bool((fixed >= 0).any()):
        return drawn
    open_clusters = (fixed < 0).nonzero()[:, 0]
    open_labels = torch.tensor([i for i in range(k) if i not in set(fixed[fixed >= 0].tolist())], dtype=torch.int64)
    found = fixed.repeat(count, 1)
    order = torch.rand(count, len(open_clusters), generator=generator).argsort(1)
    found[:, open_clusters] = open_labels[order]
    return found


def gibbs_average(matchings: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """Return how probable it is that cluster i is label j ``[k, k]``: the average of the different matchings.

    Args:
        matchings: ``[m, k]``; repeated ones count once.
        scores: of each ``[m]``.
        temperature: a matching weighs exp(score / temperature); 0 keeps the best alone.
    """
    different, inverse = torch.unique(matchings, dim=0, return_inverse=True)
    k = matchings.shape[1]
    own = scores.new_full((len(different),), -torch.inf).scatter_reduce(0, inverse, scores, "amax")
    if temperature <= 0:
        weights = (own == own.max()).to(own)
        weights = weights / weights.sum()
    else:
        weights = (own / temperature).softmax(0)
    flat = torch.arange(k, device=different.device) * k + different
    found = weights.new_zeros(k * k).index_add_(0, flat.flatten(), weights[:, None].expand(-1, k).flatten())
    return found.view(k, k)


def best_matching(fits: Tensor) -> Tensor:
    """Return the matching ``[k]`` with the largest sum of fits ``[k, k]`` (the Hungarian algorithm)."""
    rows, columns = linear_sum_assignment(fits.double().cpu().numpy(), maximize=True)
    assert (rows == range(len(fits))).all()
    return torch.as_tensor(columns, dtype=torch.int64, device=fits.device)


def _sent(labels: Tensor, matchings: Tensor) -> Tensor:
    """Return the label similarities that clusters are sent to ``[m, s, k, k]``."""
    return labels[:, matchings[:, :, None], matchings[:, None, :]].transpose(0, 1)


def _gains(structure: Structure, matchings: Tensor) -> Tensor:
    """Return what the score of each matching gains when clusters i and j exchange their labels ``[m, k, k]``."""
    a, b = structure.clusters, _sent(structure.labels, matchings)
    product = a @ b
    own = product.diagonal(dim1=-2, dim2=-1)
    change = product + product.mT - own[..., None] - own[..., None, :] + 2 * a * b
    unary = structure.fits[:, matchings].transpose(0, 1)  # [m, i, j]: cluster i with the label of cluster j
    kept = unary.diagonal(dim1=-2, dim2=-1)
    return 2 * change.sum(1) / structure.pairs + unary + unary.mT - kept[..., None] - kept[..., None, :]
