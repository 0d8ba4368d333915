"""What can be told about a naming without a label, so that a good run can be told from a bad one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labelwise.ops.assignment import best_matching
from labelwise.ops.linear import linear_scores
from labelwise.ops.segments import segment_mean

if TYPE_CHECKING:
    from labelwise.methods.zero_label import NamedModel


@dataclass(frozen=True, kw_only=True)
class NamingReport:
    """What can be told about a run without a label.

    Attributes:
        losses: of each restart, the chosen one first: squared distance to the centres, or the loss of stage III.
        sizes: the share of images that get each label.
        shares: the share that each label should have.
        certainty: how probable the name of each label's cluster is.
        agreement: which part of each label's images the other restarts call the same.
        near, far: the share of labels that have one of their two most (and least) similar labels in common with the prior.
        cohesion: the share of each cluster that is called by its most frequent label.
    """

    losses: tuple[float, ...]
    sizes: tuple[float, ...]
    shares: tuple[float, ...]
    certainty: tuple[float, ...]
    agreement: tuple[float, ...]
    near: float
    far: float
    cohesion: tuple[float, ...]


def restart_agreement(answers: Tensor, k: int) -> Tensor:
    """Return for each label ``[k]`` how many of its images the other restarts call the same, on average.

    Args:
        answers: the label of each image in each restart ``[r, n]``; the first is the chosen one.
        k: how many labels.
    """
    if len(answers) < 2:
        return torch.ones(k, dtype=torch.float64)
    same = (answers[1:] == answers[0]).double().mean(0)
    return segment_mean(same[:, None], answers[0], k)[:, 0]


def overlap_agreement(overlaps: Tensor, names: Tensor) -> Tensor:
    """Return for each label ``[k]`` how many images of its cluster the other clusterings call the same, on average.

    Args:
        overlaps: which share of a cluster of the first lies in each cluster of the others ``[r, k, k]``.
        names: the label of each cluster in each clustering ``[r, k]``.
    """
    by_label = overlaps.double().gather(2, names.argsort(1)[:, None].expand_as(overlaps))
    by_label = by_label[:, names[0].argsort()]
    shares = by_label.diagonal(dim1=1, dim2=2)
    return shares[1:].mean(0) if len(shares) > 1 else torch.ones_like(shares[0])


def kept_together(overlaps: Tensor) -> Tensor:
    """Return for each cluster of the first clustering ``[k]`` which share the others keep in one, whatever it is called.

    Args:
        overlaps: which share of a cluster of the first lies in each cluster of the others ``[r, k, k]``.
    """
    shares = [one.double().gather(1, best_matching(one)[:, None])[:, 0] for one in overlaps[1:].cpu()]
    return torch.stack(shares).mean(0) if shares else torch.ones(overlaps.shape[1], dtype=torch.float64)


def prior_agreement(means: Tensor, similarity: Tensor) -> tuple[float, float]:
    """Return the share of labels whose two nearest, and whose two farthest, labels share one with the prior's (figure 4).

    Args:
        means: mean scores of the images of each label ``[k, k]``.
        similarity: of labels ``[k, k]``.
    """
    near, far = [], []
    k = len(means)
    few = min(2, k - 1)
    for label in range(k):
        others = [i for i in range(k) if i != label]
        own = sorted(others, key=lambda i: -float(means[label, i]))
        said = sorted(others, key=lambda i: -float(similarity[label, i]))
        near.append(bool(set(own[:few]) & set(said[:few])))
        far.append(bool(set(own[-few:]) & set(said[-few:])))
    return sum(near) / k, sum(far) / k


def modal_shares(members: Tensor, answers: Tensor, k: int) -> Tensor:
    """Return the share of each cluster that is called by its most frequent label ``[k]`` (figure 4)."""
    counts = torch.bincount(members * k + answers, minlength=k * k).view(k, k).double()
    return counts.amax(1) / counts.sum(1).clamp_min(1)


def renamed_report(report: Mapping[str, Any], old: "NamedModel", new: "NamedModel", names: Tensor) -> dict[str, Any]:
    """Return a report after clusters got other labels: sizes move with them, what depends on names is told anew.

    Args:
        report: that of the old model, as plain values.
        old: before.
        new: after.
        names: the label of each cluster in each restart ``[r, k]``, the chosen one first.
    """
    order = new.names.argsort()
    scores = linear_scores(
        new.means, new.encode_labels(new.spec.labels)
    )  # the mean score is that of the mean embedding
    near, far = prior_agreement(scores, new.alike[0])
    return {
        **report,
        "sizes": tuple(report["sizes"][label] for label in old.names[order].tolist()),
        "certainty": plain(new.votes.gather(1, new.names[:, None])[order, 0]),
        "agreement": plain(overlap_agreement(new.overlaps.cpu(), names)),
        "near": near,
        "far": far,
    }


def plain(values: Sequence[float] | Tensor, digits: int = 4) -> tuple[float, ...]:
    """Return numbers as plain rounded ones, for a summary."""
    return tuple(round(float(value), digits) for value in values)
