"""Name clusters without labelled images: match cluster similarities to label similarities, and looks to names.

Several clusterings of the same images are named independently: many matchings are improved, and the best are averaged
(``assignment``). The clusterings then vote on the names of the chosen clusters. The last functions assess a naming without
labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.core.arrays import Array
from labelwise.images.describe.labels import Labels
from labelwise.methods.zero_label.assignment import (
    Structure,
    best_matching,
    gibbs_average,
    improve,
    matching_scores,
    random_matchings,
)
from labelwise.methods.zero_label.head import NamedHead
from labelwise.methods.zero_label.label_prior import centred_cosines, rank_labels
from labelwise.support.rows import Draws, segment_mean

TEMPERATURE = 0.2  # a matching of k clusters weighs exp(score * k / this) in the average of matchings
SIZE_WEIGHT = 3.0  # weight of the agreement of a cluster's size with the label's share
LOOKS_WEIGHT = 8.0  # weight of looks, relative to the similarity of clusters
CERTAIN = 1e3  # more than any vote
EVIDENCE = ("clusters", "overlaps", "sizes", "alike", "looks")  # what a head holds of it


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """The inputs to naming: r clusterings of the same images; the first is the one to name."""

    clusters: Array  # similarity of the clusters of each [r, k, k]
    overlaps: Array  # overlap: the share of each cluster of the first in each cluster of the others [r, k, k]
    sizes: Array  # the share of images in each cluster [r, k]
    labels: Array  # similarity of labels [k, k]
    shares: Array | None = None  # how frequent each label is [k], or None
    # the label as far from the other end [k] where labels have an order that is the same from either end
    turned: Array | None = None
    looks: Array | None = None  # how well the looks of each cluster fit each name [r, k, k], see `kinds.looks_fit`

    @classmethod
    def of(cls, embeddings: Array, members: Array, labels: Array, shares: Array | None = None) -> "Evidence":
        """Return the evidence of clusterings ``[r, n]`` of embeddings ``[n, d]``, and label similarities ``[k, k]``."""
        k = len(labels)
        overlap_tables = np.stack([np.bincount(members[0] * k + own, minlength=k * k).reshape(k, k) for own in members])
        counts = np.stack([np.bincount(own, minlength=k) for own in members])
        overlaps = overlap_tables / np.maximum(counts[0], 1)[:, None]
        similarities = np.stack(
            [centred_cosines(segment_mean(embeddings.astype(np.float64), own, k)) for own in members]
        )
        return cls(
            clusters=similarities, overlaps=overlaps, sizes=counts / members.shape[1], labels=labels, shares=shares
        )

    def arrays(self) -> dict[str, Array | None]:
        """Return the fields that a head stores, in single precision."""
        parts = (self.clusters, self.overlaps, self.sizes, self.labels, self.looks)
        return {
            name: None if part is None else part.astype(np.float32) for name, part in zip(EVIDENCE, parts, strict=True)
        }


def evidence_of(labels: Labels, arrays: Mapping[str, Array | None]) -> Evidence:
    """Restore the evidence from the fields of a head."""
    parts: dict[str, Any] = {name: None if part is None else part.astype(np.float64) for name, part in arrays.items()}
    similarity, shares = parts.pop("alike"), None if labels.shares is None else np.asarray(labels.shares)
    return Evidence(**parts, labels=similarity, shares=shares, turned=reverse_order(labels, similarity))


def name_each(evidence: Evidence, search: int, answers: Mapping[int, int] | None = None) -> Array:
    """Return the probability of each label for each cluster ``[r, k, k]``; clusterings are named independently.

    ``search`` random matchings are improved for each. ``answers`` are the labels of clusters of the first that a person named;
    the others take them over for the cluster that overlaps most.
    """
    tables: list[Array] = []
    for place, overlap in enumerate(evidence.overlaps):
        same = best_matching(overlap)
        matchings, scores = find_matchings(evidence, place, search, answers)
        if evidence.turned is not None and not answers and _fits(evidence, place) is None:
            model = matchings[scores.argmax()].copy()
            if tables:
                model[same] = best_matching(tables[0])
            matchings = _one_way_round(matchings, evidence.turned, model)
        tables.append(gibbs_average(matchings, scores, TEMPERATURE / len(evidence.labels)))
    return np.stack(tables)


def find_matchings(
    evidence: Evidence, place: int, search: int, answers: Mapping[int, int] | None = None
) -> tuple[Array, Array]:
    """Return matchings of one clustering to labels ``[search, k]``, each improved from a random one, and their scores."""
    k, same = len(evidence.labels), best_matching(evidence.overlaps[place])
    given_names = np.full(k, -1)
    for cluster, label in (answers or {}).items():
        given_names[same[cluster]] = label
    structure = Structure.of(evidence.clusters[place], evidence.labels, _fits(evidence, place))
    matchings = improve(structure, random_matchings(search, k, Draws(0), given_names), given_names >= 0)
    return matchings, matching_scores(structure, matchings)


def _fits(evidence: Evidence, place: int) -> Array | None:
    """Return how well each cluster of one clustering fits each label by itself ``[k, k]``: by its looks, and by its size.

    None if there is neither.
    """
    k, shares, fits = len(evidence.labels), evidence.shares, None
    if evidence.looks is not None:
        fits = LOOKS_WEIGHT / k * evidence.looks[place]
    if shares is not None and float(shares.max() - shares.min()) >= 1e-6:
        size = np.log(np.maximum(evidence.sizes[place], 1e-4))
        differences = np.abs(size[:, None] - np.log(np.maximum(shares.astype(np.float64), 1e-4)))
        fits = -SIZE_WEIGHT * differences / k + (0 if fits is None else fits)
    return fits


def reverse_order(labels: Labels, similarity: Array) -> Array | None:
    """Return for each label its mirror image in the order ``[k]``, given the similarities ``[k, k]``.

    None if labels have no order, or its ends differ.
    """
    if labels.order is None:
        return None
    order = np.argsort(labels.order)
    reversed_names = np.empty_like(order)
    reversed_names[order] = order[::-1]
    return reversed_names if np.allclose(similarity[reversed_names][:, reversed_names], similarity) else None


def _one_way_round(matchings: Array, reversed_names: Array, model: Array) -> Array:
    """Return the matchings ``[m, k]``, reversed where that agrees with a model ``[k]`` on more clusters.

    An order fits as well from either end. Averaged, the two would say that every cluster is in the middle.
    """
    reversed_matchings = reversed_names[matchings]
    is_reversed = ((reversed_matchings == model).sum(1) > (matchings == model).sum(1))[:, None]
    return np.where(is_reversed, reversed_matchings, matchings)


def vote(evidence: Evidence, tables: Array, answers: Mapping[int, int] | None = None) -> Array:
    """Return the probability of each label for each cluster of the first clustering ``[k, k]``, by a vote of all.

    The tables ``[r, k, k]`` are those of ``name_each``; answers of a person are not outvoted.
    """
    votes = (evidence.overlaps @ tables).mean(0)
    for cluster, label in (answers or {}).items():
        votes[cluster], votes[:, label] = 0.0, 0.0
        votes[cluster, label] = 1.0
    shares: Array = votes / np.maximum(votes.sum(1, keepdims=True), 1e-12)
    return shares


def choose_names(votes: Array, answers: Mapping[int, int] | None = None) -> Array:
    """Return the label of each cluster ``[k]`` with the most votes in all, the answers of a person unchanged."""
    sure = votes.copy()
    for cluster, label in (answers or {}).items():
        sure[cluster, label] += CERTAIN
    return best_matching(sure)


def naming_figures(head: NamedHead, names: Array) -> dict[str, Any]:
    """Return what depends on names, given the label of each cluster in each restart ``[r, k]``, the chosen one first.

    ``sizes``: the share of images that get each label. ``certainty``: how probable the name of each label's cluster is.
    ``agreement``: which part of each label's images the other restarts call the same. ``near``, ``far``: see ``prior_agreement``.
    """
    counts, own = head.statistics.counts, head.names
    scores = head.score(head.statistics.means, head.rows)  # the mean score is that of the mean
    near, far = prior_agreement(scores, head.alike, range(len(scores)))
    return {
        "sizes": plain(counts / counts.sum()),
        "certainty": plain(head.votes[np.arange(len(own)), own][own.argsort()]),
        "agreement": plain(overlap_agreement(head.overlaps, names)),
        "near": float(near.mean()),
        "far": float(far.mean()),
    }


def overlap_agreement(overlaps: Array, names: Array) -> Array:
    """Return for each label ``[k]`` how many images of its cluster the other clusterings call the same, on average.

    From the overlaps ``[r, k, k]`` of ``naming.Evidence``, and the label of each cluster in each clustering ``[r, k]``.
    """
    by_label = np.take_along_axis(overlaps.astype(np.float64), names.argsort(1)[:, None], 2)
    shares = np.diagonal(by_label[:, names[0].argsort()], axis1=1, axis2=2)
    return shares[1:].mean(0) if len(shares) > 1 else np.ones_like(shares[0])


def kept_together(overlaps: Array) -> Array:
    """Return for each cluster of the first clustering ``[k]`` the largest share that another clustering puts in one cluster, under any name."""
    shares = [overlap.astype(np.float64)[np.arange(len(overlap)), best_matching(overlap)] for overlap in overlaps[1:]]
    return np.stack(shares).mean(0) if shares else np.ones(overlaps.shape[1])


def prior_agreement(means: Array, similarity: Array, labels: Sequence[int]) -> tuple[Array, Array]:
    """Return whether the two nearest, and the two farthest, labels of each label share one with the prior's ``[m]``.

    From the mean scores ``[m, k]`` of the images of these labels, and the similarity of all labels ``[k, k]``.
    """
    neighbours, prior = min(2, means.shape[1] - 1), rank_labels(similarity)[list(labels), 1:]
    own = np.argsort(-means, axis=1, kind="stable")
    own = np.stack([row[row != label] for row, label in zip(own, labels, strict=True)])
    near, far = (
        (a[:, :, None] == b[:, None]).any((1, 2))
        for a, b in ((own[:, :neighbours], prior[:, :neighbours]), (own[:, -neighbours:], prior[:, -neighbours:]))
    )
    return near, far


def modal_shares(members: Array, answers: Array, k: int) -> Array:
    """Return the share of each cluster that is called by its most frequent label ``[k]`` (figure 4)."""
    counts = np.bincount(members * k + answers, minlength=k * k).reshape(k, k)
    shares: Array = counts.max(1) / np.maximum(counts.sum(1), 1)
    return shares


def plain(values: Iterable[float], digits: int = 4) -> tuple[float, ...]:
    """Return numbers as plain rounded ones, for a summary."""
    return tuple(round(float(value), digits) for value in values)
