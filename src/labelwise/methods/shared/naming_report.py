"""What can be told about a naming without a label, so that a good run can be told from a bad one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from labelwise.methods.shared.label_prior import rank_labels
from labelwise.ops.assignment import best_matching
from labelwise.ops.linear import linear_scores

if TYPE_CHECKING:
    from labelwise.methods.zero_label import NamedModel


def naming_figures(model: "NamedModel", names: Tensor) -> dict[str, Any]:
    """Return what depends on names, given the label of each cluster in each restart ``[r, k]``, the chosen one first.

    ``sizes``: the share of images that get each label. ``certainty``: how probable the name of each label's cluster is.
    ``agreement``: which part of each label's images the other restarts call the same. ``near``, ``far``: see ``prior_agreement``.
    """
    scores = linear_scores(model.means, model.encode_labels(model.spec.labels))  # the mean score is that of the mean
    near, far = prior_agreement(scores, model.alike[0])
    return {
        "sizes": plain(model.counts / model.counts.sum()),
        "certainty": plain(model.votes.gather(1, model.names[:, None])[model.names.argsort(), 0]),
        "agreement": plain(overlap_agreement(model.overlaps.cpu(), names.cpu())),
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
