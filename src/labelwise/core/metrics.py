"""Figures that say how good answers are: plain functions of predictions or scores.

Inputs are rows of numbers: tensors, arrays or lists. Predictions and targets are positions of labels; a larger score means yes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from labelwise.core.detection import DetCurve, det_curve
from labelwise.support.errors import UsageError

Values = Tensor | NDArray[Any] | Sequence[float]


def accuracy(predicted: Values, targets: Values) -> float:
    """Return the share of predictions ``[n]`` that equal their target ``[n]``."""
    answers, right = _rows(predicted, targets)
    return float((answers == right).double().mean())


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of n images (Wilson's score interval); of none, anything."""
    if n < 1:
        return 0.0, 1.0
    z2 = 1.959963984540054**2 / n
    centre, half = share + z2 / 2, (z2 * (share * (1 - share) + z2 / 4)) ** 0.5
    return max(0.0, (centre - half) / (1 + z2)), min(1.0, (centre + half) / (1 + z2))


def per_class_accuracy(predicted: Values, targets: Values) -> float:
    """Return the mean of the accuracies within each class that has a target."""
    answers, right = _rows(predicted, targets)
    counts = torch.bincount(right)
    hits = torch.bincount(right[answers == right], minlength=len(counts)).double()
    return float((hits / counts).nanmean())


def harmonic_mean(unseen: float, seen: float) -> float:
    """Return the harmonic mean of two accuracies (generalised zero-shot: of unseen and of seen classes)."""
    return 2 * unseen * seen / (unseen + seen) if unseen + seen > 0 else 0.0


def confusion_matrix(predicted: Values, targets: Values, classes: int) -> Tensor:
    """Return counts ``[classes, classes]``: row is the target, column the prediction."""
    answers, right = _rows(predicted, targets)
    return torch.bincount(right * classes + answers, minlength=classes * classes).view(classes, classes)


def auroc(positive: Values, negative: Values) -> float:
    """Return the probability that a positive scores above a negative ``[p], [q]``; a tie counts one half."""
    up, down = _row(positive).double().contiguous(), _row(negative).double().sort().values
    twice = torch.searchsorted(down, up).sum() + torch.searchsorted(down, up, right=True).sum()
    return int(twice) / (2 * len(up) * len(down))


def fpr_at_tpr(positive: Values, negative: Values, tpr: float = 0.95) -> float:
    """Return the share of negatives accepted at the strictest threshold that accepts a share ``tpr`` of positives.

    A score equal to the threshold is accepted.
    """
    up, down = _row(positive), _row(negative)
    needed = math.ceil(tpr * len(up) - 1e-9)
    threshold = up.sort(descending=True).values[max(needed, 1) - 1]
    return float((down >= threshold).double().mean())


class EqualError(NamedTuple):
    """Where as many positives are refused as negatives are accepted."""

    rate: float  # the share of either, read off the straight line between the two nearest thresholds
    threshold: float  # the one where both shares are nearest; a score at least as large is accepted


def equal_error_rate(positive: Values, negative: Values) -> EqualError:
    """Return the equal error rate of scores of positives ``[p]`` and negatives ``[q]``, and its threshold."""
    return equal_error(det_curve(_row(positive), _row(negative)))


def equal_error(curve: DetCurve) -> EqualError:
    """Return the equal error rate of a detection error trade-off, and its threshold."""
    gap = curve.misses - curve.false_accepts  # from -1 to 1, never decreasing
    after = int((gap >= 0).nonzero()[0])
    low, high = gap[after - 1], gap[after]
    rate = torch.lerp(curve.misses[after - 1], curve.misses[after], low / (low - high))
    best = int(gap[:-1].abs().argmin())  # the last threshold is infinite
    below, at = curve.thresholds[max(best - 1, 0)].item(), curve.thresholds[best].item()
    middle = below / 2 + at / 2
    return EqualError(rate=float(rate), threshold=middle if below < middle else at)


@dataclass(frozen=True, eq=False)
class Reliability:
    """How often answers of a given confidence are right; bins of equal width over [0, 1]."""

    confidence: Tensor  # mean confidence in each bin [b]; NaN where it is empty
    accuracy: Tensor  # share of correct answers in each bin [b]; NaN where it is empty
    count: Tensor  # answers in each bin [b]

    @property
    def error(self) -> float:
        """The mean distance between confidence and accuracy, over bins weighted by count."""
        gaps = (self.confidence - self.accuracy).abs().nan_to_num(0)
        return float((gaps * self.count).sum() / self.count.sum())


def pooled(tables: Sequence[Reliability]) -> Reliability:
    """Return the reliability of answers in several tables together, whose bins are the same."""
    if len(tables) == 1:
        return tables[0]
    count = torch.stack([table.count for table in tables]).sum(0)
    sure, right = (
        torch.stack([getattr(table, name).nan_to_num(0) * table.count for table in tables]).sum(0) / count
        for name in ("confidence", "accuracy")
    )
    return Reliability(confidence=sure, accuracy=right, count=count)


def reliability(confidence: Values, correct: Values, bins: int = 15) -> Reliability:
    """Return mean confidence, accuracy and count of each bin, from the probability of each answer and whether it was right ``[n]``.

    A bin contains its upper edge.
    """
    sure, right = (values.double() for values in _rows(confidence, correct))
    places = torch.bucketize(sure, torch.arange(1, bins, dtype=torch.float64) / bins)
    count = torch.bincount(places, minlength=bins)
    totals = [torch.bincount(places, weights=values, minlength=bins) for values in (sure, right)]
    return Reliability(confidence=totals[0] / count, accuracy=totals[1] / count, count=count)


def expected_calibration_error(confidence: Values, correct: Values, bins: int = 15) -> float:
    """Return the mean distance between confidence and accuracy, over bins of equal width weighted by count."""
    return reliability(confidence, correct, bins).error


def _row(values: Values) -> Tensor:
    row = values.detach().cpu() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    if row.ndim != 1 or not len(row) or bool(row.isnan().any()):
        raise UsageError(f"A figure needs a row of numbers [n], at least one and none of them NaN; given {values}.")
    return row


def _rows(first: Values, second: Values) -> tuple[Tensor, Tensor]:
    one, other = _row(first), _row(second)
    if len(one) != len(other):
        raise UsageError(f"There are {len(one)} answers but {len(other)} targets; give one for each image.")
    return one, other
