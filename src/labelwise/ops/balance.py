"""Balance: how far to hold back labels with training images, so that labels known from descriptions get their due.

A model favours the labels it was trained on. A gap takes something from their scores (or multiplies their distances by
1 + gap). Each image has one gap, its flip, at which its answer changes from the best seen label to the best unseen one,
so one sort of the flips gives the accuracies on both kinds of images for every gap there is.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from labelwise.errors import DataError

Kind = Literal["offset", "scale"]


@dataclass(frozen=True, eq=False)
class BalanceCurve:
    """Accuracies, averaged over labels, on images of unseen and of seen labels for every gap.

    Attributes:
        flips: the gaps at which an image's answer changes ``[m]``, each once, rising.
        unseen: accuracy on images of unseen labels ``[m + 1]``, never falling; entry i holds between flips i - 1 and i.
        seen: accuracy on images of seen labels ``[m + 1]``, never rising.
    """

    flips: Tensor
    unseen: Tensor
    seen: Tensor

    @property
    def harmonic(self) -> Tensor:
        """The harmonic mean of both accuracies ``[m + 1]``."""
        return 2 * self.unseen * self.seen / (self.unseen + self.seen).clamp_min(1e-12)

    @property
    def area(self) -> float:
        """The area under seen accuracy over unseen accuracy (AUSUC)."""
        return float(torch.trapezoid(self.seen, self.unseen))

    def at(self, gap: float) -> tuple[float, float]:
        """Return the accuracies on unseen and on seen labels at a gap."""
        place = int(torch.searchsorted(self.flips, torch.tensor(gap, dtype=self.flips.dtype)))
        return float(self.unseen[place]), float(self.seen[place])

    def best(self) -> float:
        """Return the gap with the largest harmonic mean, halfway between the flips around it; 0 where no gap helps."""
        place = int(self.harmonic.argmax())
        if not self.harmonic[place]:
            return 0.0
        low, high = self.flips[max(place - 1, 0)], self.flips[min(place, len(self.flips) - 1)]
        return float(low / 2 + high / 2)


def balance_curve(scores: Tensor, targets: Tensor, seen: Tensor, kind: Kind = "offset") -> BalanceCurve:
    """Return the accuracies for every gap.

    Args:
        scores: raw scores ``[n, k]``, without any gap.
        targets: true labels ``[n]``.
        seen: whether each label was trained on ``[k]``.
        kind: how a gap acts, see ``LabelModel.balance``.
    """
    scores, targets, seen = scores.detach().double().cpu(), targets.cpu(), seen.cpu()
    of_seen = seen[targets]
    if not (bool(of_seen.any()) and bool((~of_seen).any())):
        raise DataError("Seen and unseen labels can only be balanced on images of both.")
    best_seen, first = scores.masked_fill(~seen, -torch.inf).max(1)
    best_unseen, second = scores.masked_fill(seen, -torch.inf).max(1)
    flips = _flips(best_seen, best_unseen, kind)
    counts = torch.bincount(targets, minlength=len(seen)).double()
    weight = 1 / counts[targets]
    right_seen = weight * (of_seen & (first == targets)) / (counts[seen] > 0).sum()
    right_unseen = weight * (~of_seen & (second == targets)) / (counts[~seen] > 0).sum()
    order = flips.argsort()
    none = torch.zeros(1, dtype=torch.float64)
    kept = right_seen[order].flip(0).cumsum(0).flip(0)
    sorted_flips = flips[order]
    new = torch.ones(len(flips), dtype=torch.bool)
    new[1:] = sorted_flips[1:] > sorted_flips[:-1]  # images with the same flip change together
    return BalanceCurve(
        flips=sorted_flips[new],
        unseen=torch.cat([none, right_unseen[order].cumsum(0)])[torch.cat([new, torch.tensor([True])])],
        seen=torch.cat([kept, none])[torch.cat([new, torch.tensor([True])])],
    )


def _flips(best_seen: Tensor, best_unseen: Tensor, kind: Kind) -> Tensor:
    """Return the gap of each image at which its best seen label no longer wins ``[n]``."""
    if kind == "offset":
        return best_seen - best_unseen
    if float(torch.cat([best_seen, best_unseen]).max()) > 0:
        raise DataError("A gap can only scale scores that are not above zero, such as minus a distance.")
    return best_unseen / best_seen.clamp_max(-1e-12) - 1
