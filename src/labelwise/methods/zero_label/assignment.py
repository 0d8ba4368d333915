"""Match k clusters to k labels from the similarities within each side (quadratic assignment).

A matching sends cluster i to label ``matching[i]``, each label once. Its score is the mean product of cluster similarities
and the label similarities they are sent to (quadratic assignment). Many matchings are improved together.
"""

from typing import NamedTuple

import numpy as np

from labelwise.core.arrays import Array
from labelwise.support.rows import Draws

LEAST_GAIN = 1e-9  # of an exchange that counts as better


class Structure(NamedTuple):
    """Similarities of clusters and of labels."""

    clusters: Array  # similarity of clusters [k, k], see `standardised`
    labels: Array  # similarities of labels [k, k], likewise
    # fit of each cluster to each label [k, k], added to the score; zeros if unknown
    fits: Array

    @classmethod
    def of(cls, clusters: Array, labels: Array, fits: Array | None = None) -> "Structure":
        """Return the structure of raw similarities ``[k, k]``."""
        cluster_side, label_side = standardise(clusters), standardise(labels)
        return cls(
            cluster_side, label_side, np.zeros_like(cluster_side) if fits is None else fits.astype(cluster_side.dtype)
        )


def standardise(similarity: Array) -> Array:
    """Return similarities ``[k, k]`` made symmetric, of mean 0 and variance 1 off the diagonal, and 0 on it (float64)."""
    symmetric = (similarity.astype(np.float64) + similarity.astype(np.float64).T) / 2
    k = len(symmetric)
    off_diagonal, count = ~np.eye(k, dtype=bool), max(1, k * (k - 1))
    residuals = (symmetric - (symmetric * off_diagonal).sum() / count) * off_diagonal
    unit: Array = residuals / max(float(np.sqrt((residuals**2).sum() / count)), 1e-12)
    return unit


def matching_scores(structure: Structure, matchings: Array) -> Array:
    """Return the score of each matching ``[m]``, at most 1 without fits, from matchings ``[m, k]``."""
    k = matchings.shape[1]
    products = (structure.clusters * _permute(structure.labels, matchings)).sum((1, 2)) / (k * (k - 1))
    scores: Array = products + np.take_along_axis(structure.fits, matchings.T, 1).sum(0)
    return scores


def improve(structure: Structure, matchings: Array, fixed: Array | None = None) -> Array:
    """Return the matchings ``[m, k]``, each improved by its best exchange of two labels until none helps (2-opt).

    Clusters at ``fixed [k]`` (bool) keep their label.
    """
    improved = matchings.copy()
    k = improved.shape[1]
    free = np.ones(k, bool) if fixed is None else ~fixed
    swaps = np.triu(free[:, None] & free, 1)
    active = np.arange(len(improved))
    while len(active) and swaps.any():
        gains = np.where(swaps, _gains(structure, improved[active]), -np.inf).reshape(len(active), -1)
        pairs = gains.argmax(1)
        better = gains[np.arange(len(active)), pairs] > LEAST_GAIN
        active, pairs = active[better], pairs[better]
        first, second = pairs // k, pairs % k
        first_labels, second_labels = improved[active, first], improved[active, second]
        improved[active, first], improved[active, second] = second_labels, first_labels
    return improved


def random_matchings(count: int, k: int, draws: Draws, fixed: Array | None = None) -> Array:
    """Return random matchings ``[count, k]``; ``fixed [k]`` has the known labels of clusters, else -1."""
    uniform = draws.uniform(count, k)
    if fixed is None or not (fixed >= 0).any():
        return uniform.argsort(1, kind="stable")
    clusters = np.flatnonzero(fixed < 0)
    labels = np.array(sorted(set(range(k)) - set(fixed.tolist())), np.int64)
    matchings = np.tile(fixed, (count, 1))
    matchings[:, clusters] = labels[draws.uniform(count, len(clusters)).argsort(1, kind="stable")]
    return matchings


def gibbs_weights(matchings: Array, scores: Array, temperature: float) -> tuple[Array, Array]:
    """Return the distinct matchings among ``[m, k]`` and their weights: exp(score / temperature), of sum 1."""
    different, inverse = np.unique(matchings, axis=0, return_inverse=True)
    own = np.full(len(different), -np.inf)
    np.maximum.at(own, inverse.ravel(), scores)
    weights = np.exp((own - own.max()) / temperature)
    return different, weights / weights.sum()


def gibbs_average(matchings: Array, scores: Array, temperature: float) -> Array:
    """Return the probability ``[k, k]`` that cluster i is label j: the average of the distinct matchings ``[m, k]``.

    A matching weighs exp(score / temperature); repeated ones count once.
    """
    return marginals(*gibbs_weights(matchings, scores, temperature))


def marginals(matchings: Array, weights: Array) -> Array:
    """Return the probability ``[k, k]`` that cluster i is label j, from matchings ``[m, k]`` and their weights ``[m]``."""
    k = matchings.shape[1]
    average = np.zeros((k, k))
    np.add.at(average, (np.arange(k), matchings), weights[:, None])
    return average


def best_matching(fits: Array) -> Array:
    """Return the matching ``[k]`` with the largest sum of fits ``[k, k]`` (the Hungarian algorithm)."""
    from scipy.optimize import linear_sum_assignment  # takes a quarter of a second to import

    columns: Array = linear_sum_assignment(np.asarray(fits, np.float64), maximize=True)[1]
    return columns


def _permute(labels: Array, matchings: Array) -> Array:
    """Return the label similarities that clusters are sent to ``[m, k, k]``."""
    return labels[matchings[:, :, None], matchings[:, None, :]]


def _gains(structure: Structure, matchings: Array) -> Array:
    """Return the gain in score of each matching when clusters i and j exchange labels ``[m, k, k]``."""
    a, b, k = structure.clusters, _permute(structure.labels, matchings), matchings.shape[1]
    product = a @ b
    own = np.diagonal(product, axis1=1, axis2=2)
    change = product + product.swapaxes(1, 2) - own[..., None] - own[:, None] + 2 * a * b
    unary = structure.fits[:, matchings].swapaxes(0, 1)  # [m, i, j]: cluster i with the label of cluster j
    diagonal = np.diagonal(unary, axis1=1, axis2=2)
    gains: Array = 2 * change / (k * (k - 1)) + unary + unary.swapaxes(1, 2) - diagonal[..., None] - diagonal[:, None]
    return gains
