"""Balance: how far to hold back seen labels, so that unseen labels, known from descriptions, get their due.

A model favours the labels it was trained on. A seen penalty takes something from their scores (or multiplies their
distances by 1 + penalty). Each image has one penalty, its flip, at which its answer changes from the best seen label to
the best unseen one, so one sort of the flips gives the accuracies on both kinds of images for every penalty there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.core.calibration import Penalty
from labelwise.support.errors import DataError


@dataclass(frozen=True, eq=False)
class BalanceCurve:
    """Accuracies, averaged over labels, on images of unseen and of seen labels for every seen penalty."""

    flips: Tensor  # the penalties at which an image's answer changes [m], each once, rising
    # accuracy on images of unseen labels [m + 1], never falling; entry i holds between flips i - 1 and i
    unseen: Tensor
    seen: Tensor  # accuracy on images of seen labels [m + 1], never rising

    @property
    def harmonic(self) -> Tensor:
        """The harmonic mean of both accuracies ``[m + 1]``."""
        return 2 * self.unseen * self.seen / (self.unseen + self.seen).clamp_min(1e-12)

    @property
    def area(self) -> float:
        """The area under seen accuracy over unseen accuracy (AUSUC)."""
        return float(torch.trapezoid(self.seen, self.unseen))

    def at(self, penalty: float) -> tuple[float, float]:
        """Return the accuracies on unseen and on seen labels at a seen penalty."""
        row = int(torch.searchsorted(self.flips, torch.tensor(penalty, dtype=self.flips.dtype)))
        return float(self.unseen[row]), float(self.seen[row])

    def best(self) -> float:
        """Return the penalty with the largest harmonic mean, halfway between the flips around it; 0 where none helps."""
        row = int(self.harmonic.argmax())
        if not self.harmonic[row]:
            return 0.0
        low, high = self.flips[max(row - 1, 0)], self.flips[min(row, len(self.flips) - 1)]
        return float(low / 2 + high / 2)


def best_of_all(curves: Sequence[BalanceCurve]) -> float:
    """Return the penalty with the largest harmonic mean over several curves on average, halfway between the flips around it."""
    flips = torch.unique(torch.cat([curve.flips for curve in curves]))
    middles = (flips[:-1] + flips[1:]) / 2
    rows = [torch.searchsorted(curve.flips, middles) for curve in curves]
    harmonic = torch.stack([curve.harmonic[row] for curve, row in zip(curves, rows, strict=True)]).mean(0)
    return float(middles[harmonic.argmax()])


def seen_spread(scores: Tensor, seen: Tensor) -> float:
    """Return the standard deviation of an image's scores ``[n, k]`` of the seen labels ``[k]``, the mean over images."""
    return max(float(scores[:, seen.to(scores.device)].std(1, correction=0).mean()), 1e-12)


def balance_curve(scores: Tensor, targets: Tensor, seen: Tensor, kind: Penalty = "offset") -> BalanceCurve:
    """Return the accuracies for every seen penalty, from raw scores ``[n, k]`` and targets ``[n]``.

    ``seen [k]`` says which labels were trained on; ``kind`` how a penalty acts, see ``LabelModel.penalty``.
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
    order, none = flips.argsort(), torch.zeros(1, dtype=torch.float64)
    flips = flips[order]
    first_of_equals = torch.cat(
        [torch.ones(1, dtype=torch.bool), flips[1:] > flips[:-1]]
    )  # equal flips change together
    entries = torch.cat([first_of_equals, torch.tensor([True])])
    return BalanceCurve(
        flips=flips[first_of_equals],
        unseen=torch.cat([none, right_unseen[order].cumsum(0)])[entries],
        seen=torch.cat([right_seen[order].flip(0).cumsum(0).flip(0), none])[entries],
    )


def _flips(best_seen: Tensor, best_unseen: Tensor, kind: Penalty) -> Tensor:
    """Return the penalty of each image at which its best seen label no longer wins ``[n]``."""
    if kind == "offset":
        return best_seen - best_unseen
    if float(torch.cat([best_seen, best_unseen]).max()) > 0:
        raise DataError("A seen penalty can only scale scores that are not above zero, such as minus a distance.")
    return best_unseen / best_seen.clamp_max(-1e-12) - 1
