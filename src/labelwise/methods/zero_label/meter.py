"""Certainty of cluster names: the number of plausible namings, candidate labels, and the most valuable question.

Names rest on similarities of clusters and labels, and on looks. Namings from the search have the same weights as in the votes.
Nothing here reads a label, so a naming may be certain and wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from labelwise.core.arrays import Array
from labelwise.methods.zero_label.assignment import best_matching, gibbs_weights, marginals
from labelwise.methods.zero_label.head import NamedHead
from labelwise.methods.zero_label.naming import EVIDENCE, TEMPERATURE, evidence_of, find_matchings

SURE = 0.9  # of the votes for a cluster, which the labels that it may be have together


@dataclass(frozen=True, kw_only=True)
class Settled:
    """The certainty of cluster names."""

    namings: float  # the effective number of namings that fit about as well as the best
    may_be: tuple[
        tuple[str, ...], ...
    ]  # the fewest labels of each cluster that have nearly all votes, the first the likeliest
    # the share of images that an answer about each cluster is expected to name rightly beyond those that are now, by these namings
    worth: tuple[float, ...]


def settle(head: NamedHead, answers: Mapping[int, int] | None = None) -> Settled:
    """Return the certainty of the names of a head, given the clusters that a person named."""
    answered = dict(answers or {})
    evidence = evidence_of(head.labels, {name: getattr(head, name) for name in EVIDENCE})
    pool, weights = [], []
    for place, overlap in enumerate(evidence.overlaps):
        matchings, scores = find_matchings(evidence, place, head.search, answered)
        different, own = gibbs_weights(matchings, scores, TEMPERATURE / len(head.labels))
        pool.append(different[:, best_matching(overlap)])  # as names of the clusters that have them
        weights.append(own / len(evidence.overlaps))
    namings, inverse = np.unique(np.concatenate(pool), axis=0, return_inverse=True)
    shares = np.bincount(inverse.ravel(), np.concatenate(weights))
    entropy = -float((shares * np.log(np.maximum(shares, 1e-300))).sum())
    worth = _worth(namings, shares, np.asarray(evidence.sizes[0], np.float64))
    names = head.labels.names
    return Settled(
        namings=float(np.exp(entropy)),
        may_be=tuple(tuple(names[label] for label in _likeliest(votes)) for votes in np.asarray(head.votes)),
        worth=tuple(worth.tolist()),
    )


def _likeliest(votes: Array) -> list[int]:
    """Return the fewest labels with nearly all of the votes ``[k]``, the likeliest first."""
    order = np.argsort(-votes, kind="stable")
    least = int(np.searchsorted(np.cumsum(votes[order]), SURE * votes.sum() - 1e-9)) + 1
    return order[:least].tolist()  # type: ignore[no-any-return]


def _worth(namings: Array, shares: Array, sizes: Array) -> Array:
    """Return what the true name of each cluster is expected to add to the share of images named rightly ``[k]``."""
    current = _expected_share(namings, shares, sizes)
    gains = np.zeros(len(sizes))
    for cluster in range(len(sizes)):
        for label in np.unique(namings[:, cluster]):
            agrees = namings[:, cluster] == label
            gains[cluster] += shares[agrees].sum() * _expected_share(namings[agrees], shares[agrees], sizes)
    return np.maximum(gains - current, 0)


def _expected_share(namings: Array, shares: Array, sizes: Array) -> float:
    """Return the share of images ``[k]`` that the best single naming is expected to name rightly, if one of these is true."""
    chances = marginals(namings, shares / shares.sum()) * sizes[:, None]
    return float(chances[np.arange(len(sizes)), best_matching(chances)].sum())
