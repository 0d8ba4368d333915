"""Naming clusters without a labelled image: their likeness to each other is matched to that of labels, their looks to names.

Several clusterings of the same images are named, each by itself: many matchings are improved, and the best of them are
averaged (``ops.assignment``). Each clustering then votes on what the images of the chosen clusters are called. The last
functions tell, without a label, a good naming from a bad one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from labelwise.images.describe.labels import Labels
from labelwise.methods.zero_label.assignment import (
    Structure,
    best_matching,
    gibbs_average,
    improve,
    matching_scores,
    random_matchings,
)
from labelwise.methods.zero_label.clusters import Clusters, kmeans, nearest_centres
from labelwise.methods.zero_label.head import NamedHead
from labelwise.methods.zero_label.label_prior import centred_cosines, rank_labels
from labelwise.methods.zero_label.sinkhorn import SinkhornSettings, sinkhorn
from labelwise.train.tensors import segment_mean

TEMPERATURE = 0.2  # a matching of k clusters weighs exp(score * k / this) in the average of matchings
SIZE_WEIGHT = 3.0  # how much it counts that a cluster is as large as the label's share says
LOOKS_WEIGHT = 8.0  # how much it counts that a cluster looks as a name says, beside how alike clusters are
BALANCING_STEPS = 30
CERTAIN = 1e3  # more than any vote


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """What naming goes by: r clusterings of the same images, of which the first is the one to name."""

    clusters: Tensor  # how alike the clusters of each are [r, k, k]
    overlaps: Tensor  # which share of a cluster of the first lies in each cluster of the others [r, k, k]
    sizes: Tensor  # the share of images in each cluster [r, k]
    labels: Tensor  # how alike labels are [k, k]
    shares: Tensor | None = None  # how frequent each label is [k], or None
    # the label as far from the other end [k] where labels have an order that is the same from either end
    turned: Tensor | None = None
    looks: Tensor | None = (
        None  # how well the looks of each cluster fit what each name says [r, k, k], see `kinds.looks_fit`
    )

    @classmethod
    def of(cls, embeddings: Tensor, members: Tensor, labels: Tensor, shares: Tensor | None = None) -> "Evidence":
        """Return the evidence of clusterings ``[r, n]`` of embeddings ``[n, d]``, and label similarities ``[k, k]``."""
        k = len(labels)
        inside = one_hot(members, k).double()
        counts = inside.sum(1)
        overlaps = inside[0].T @ inside / counts[0].clamp_min(1)[:, None]
        alike = torch.stack([centred_cosines(segment_mean(embeddings.double(), own, k)) for own in members])
        return cls(clusters=alike, overlaps=overlaps, sizes=counts / members.shape[1], labels=labels, shares=shares)


def evidence_of(head: NamedHead) -> Evidence:
    """Return what naming goes by, as a head holds it."""
    parts = {name: torch.from_numpy(getattr(head, name)).double() for name in ("clusters", "overlaps", "sizes")}
    labels, alike = head.labels, torch.from_numpy(head.alike).double()
    shares = None if labels.shares is None else torch.as_tensor(labels.shares)
    looks = None if head.looks is None else torch.from_numpy(head.looks).double()
    return Evidence(**parts, labels=alike, shares=shares, turned=turned_round(labels, alike), looks=looks)


def name_each(evidence: Evidence, search: int, answers: Mapping[int, int] | None = None) -> Tensor:
    """Return how probable each label is for each cluster of every clustering, each named by itself ``[r, k, k]``.

    ``search`` random matchings are improved for each. ``answers`` are the labels of clusters of the first that a person named;
    the others take them over for the cluster that overlaps most.
    """
    k = len(evidence.labels)
    tables: list[Tensor] = []
    for place, (alike, overlap) in enumerate(zip(evidence.clusters, evidence.overlaps, strict=True)):
        same, fixed = best_matching(overlap), torch.full((k,), -1)
        for cluster, label in (answers or {}).items():
            fixed[same[cluster]] = label
        fits = _fits(evidence, place)
        structure = Structure.of(alike, evidence.labels, fits)
        starts = random_matchings(search, k, torch.Generator().manual_seed(0), fixed)
        matchings = improve(structure, starts, fixed >= 0)
        scores = matching_scores(structure, matchings)
        if evidence.turned is not None and fits is None and not answers:
            model = matchings[scores.argmax()].clone()
            if tables:
                model[same] = best_matching(tables[0])
            matchings = _one_way_round(matchings, evidence.turned, model)
        tables.append(gibbs_average(matchings, scores, TEMPERATURE / k))
    return torch.stack(tables)


def _fits(evidence: Evidence, place: int) -> Tensor | None:
    """Return how well each cluster of one clustering fits each label by itself ``[k, k]``: by its looks, and by its size.

    None where neither says anything.
    """
    k, shares, fits = len(evidence.labels), evidence.shares, None
    if evidence.looks is not None:
        fits = LOOKS_WEIGHT / k * evidence.looks[place]
    if shares is not None and float(shares.max() - shares.min()) >= 1e-6:
        size = evidence.sizes[place].clamp_min(1e-4).log()
        apart = (size[:, None] - shares.double().clamp_min(1e-4).log()).abs()
        fits = -SIZE_WEIGHT * apart / k + (0 if fits is None else fits)
    return fits


def turned_round(labels: Labels, alike: Tensor) -> Tensor | None:
    """Return for each label the one as far from the other end of their order ``[k]``, given how alike they are ``[k, k]``.

    None where labels have no order, or its ends differ.
    """
    if labels.order is None:
        return None
    order = torch.tensor(labels.order).argsort()
    turned = torch.empty_like(order)
    turned[order] = order.flip(0)
    return turned if torch.allclose(alike[turned][:, turned], alike) else None


def _one_way_round(matchings: Tensor, turned: Tensor, model: Tensor) -> Tensor:
    """Return the matchings ``[m, k]``, those turned round that then agree with a model ``[k]`` on more clusters.

    An order fits as well from either end. Averaged, the two would say that every cluster is in the middle.
    """
    other = turned[matchings]
    away = ((other == model).sum(1) > (matchings == model).sum(1))[:, None]
    return torch.where(away, other, matchings)


def vote(evidence: Evidence, tables: Tensor, answers: Mapping[int, int] | None = None) -> Tensor:
    """Return how probable each label is for each cluster of the first clustering ``[k, k]``, all clusterings voting.

    The tables ``[r, k, k]`` are those of ``name_each``; answers of a person are not outvoted.
    """
    votes = (evidence.overlaps @ tables).mean(0)
    for cluster, label in (answers or {}).items():
        votes[cluster], votes[:, label] = 0.0, 0.0
        votes[cluster, label] = 1.0
    return votes / votes.sum(1, keepdim=True).clamp_min(1e-12)


def choose_names(votes: Tensor, answers: Mapping[int, int] | None = None) -> Tensor:
    """Return the label of each cluster ``[k]`` with the most votes in all, answers kept."""
    sure = votes.clone()
    for cluster, label in (answers or {}).items():
        sure[cluster, label] += CERTAIN
    return best_matching(sure)


def cluster_starts(embeddings: Tensor, k: int, starts: int, seed: int, sizes: Tensor | None) -> list[Clusters]:
    """Return k clusters of embeddings ``[n, d]`` from several starts, those of least inertia first.

    ``sizes [k]`` are the shares of images that clusters should have, in any order; None leaves them free.
    """
    generator = torch.Generator().manual_seed(seed)
    clusterings = [kmeans(embeddings, k, generator, starts=1) for _ in range(starts)]
    if sizes is not None:
        clusterings = [balanced(embeddings, one, sizes) for one in sorted(clusterings, key=lambda one: one.inertia)]
    return sorted(clusterings, key=lambda one: one.inertia)


def balanced(embeddings: Tensor, start: Clusters, sizes: Tensor) -> Clusters:
    """Return clusters of these sizes (shares ``[k]``, the largest for the largest cluster), from those of a start.

    Embeddings are shared out by entropic transport, and centres moved to the mean of what they receive, in turns.
    """
    centres = start.centres
    order = torch.bincount(start.members, minlength=len(sizes)).argsort(descending=True)
    wanted = torch.empty_like(sizes)
    wanted[order.cpu()] = sizes.sort(descending=True).values
    settings = SinkhornSettings(epsilon=0.01, iterations=100, tolerance=1e-5, gradient="detached")
    for _ in range(BALANCING_STEPS):
        cost = torch.cdist(embeddings, centres).square()
        plan = sinkhorn(cost, columns=wanted.to(embeddings), settings=settings).plan
        before, centres = centres, plan.T @ embeddings / plan.sum(0)[:, None].clamp_min(1e-12)
        if float((centres - before).abs().max()) < 1e-4:
            break
    members, _ = nearest_centres(embeddings, centres)
    spent = (plan * torch.cdist(embeddings, centres).square()).sum() / plan.sum()
    return Clusters(centres, members, float(spent))


def naming_figures(head: NamedHead, names: Tensor) -> dict[str, Any]:
    """Return what depends on names, given the label of each cluster in each restart ``[r, k]``, the chosen one first.

    ``sizes``: the share of images that get each label. ``certainty``: how probable the name of each label's cluster is.
    ``agreement``: which part of each label's images the other restarts call the same. ``near``, ``far``: see ``prior_agreement``.
    """
    counts, votes, own = (torch.from_numpy(each) for each in (head.statistics.counts, head.votes, head.names))
    scores = torch.from_numpy(head.score(head.statistics.means, head.rows))  # the mean score is that of the mean
    near, far = prior_agreement(scores, torch.from_numpy(head.alike))
    return {
        "sizes": plain(counts / counts.sum()),
        "certainty": plain(votes.gather(1, own[:, None])[own.argsort(), 0]),
        "agreement": plain(overlap_agreement(torch.from_numpy(head.overlaps), names.cpu())),
        "near": near,
        "far": far,
    }


def overlap_agreement(overlaps: Tensor, names: Tensor) -> Tensor:
    """Return for each label ``[k]`` how many images of its cluster the other clusterings call the same, on average.

    From the overlaps ``[r, k, k]`` of ``naming.Evidence``, and the label of each cluster in each clustering ``[r, k]``.
    """
    by_label = overlaps.double().gather(2, names.argsort(1)[:, None].expand_as(overlaps))
    shares = by_label[:, names[0].argsort()].diagonal(dim1=1, dim2=2)
    return shares[1:].mean(0) if len(shares) > 1 else torch.ones_like(shares[0])


def kept_together(overlaps: Tensor) -> Tensor:
    """Return for each cluster of the first clustering ``[k]`` which share the others keep in one, whatever it is called."""
    shares = [one.double().gather(1, best_matching(one)[:, None])[:, 0] for one in overlaps[1:].cpu()]
    return torch.stack(shares).mean(0) if shares else torch.ones(overlaps.shape[1], dtype=torch.float64)


def prior_agreement(means: Tensor, similarity: Tensor) -> tuple[float, float]:
    """Return the share of labels whose two nearest, and whose two farthest, labels share one with the prior's (figure 4).

    From the mean scores of the images of each label ``[k, k]``, and the similarity of labels ``[k, k]``.
    """
    few = min(2, len(means) - 1)
    own, prior = rank_labels(means)[:, 1:], rank_labels(similarity)[:, 1:]
    ends = ((own[:, :few], prior[:, :few]), (own[:, -few:], prior[:, -few:]))
    near, far = (float((a[:, :, None] == b[:, None]).any(2).any(1).double().mean()) for a, b in ends)
    return near, far


def modal_shares(members: Tensor, answers: Tensor, k: int) -> Tensor:
    """Return the share of each cluster that is called by its most frequent label ``[k]`` (figure 4)."""
    counts = torch.bincount(members * k + answers, minlength=k * k).view(k, k).double()
    return counts.amax(1) / counts.sum(1).clamp_min(1)


def plain(values: Sequence[float] | Tensor, digits: int = 4) -> tuple[float, ...]:
    """Return numbers as plain rounded ones, for a summary."""
    return tuple(round(float(value), digits) for value in values)
