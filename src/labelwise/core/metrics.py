"""Metrics: plain functions of predictions or scores.

Inputs are rows of numbers. Predictions and targets are positions of labels; a larger score means yes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.support.errors import UsageError


def accuracy(predicted: ArrayLike, targets: ArrayLike) -> float:
    """Return the share of predictions ``[n]`` that equal their target ``[n]``."""
    answers, right = _rows(predicted, targets)
    return float((answers == right).mean())


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of a share of n images (Wilson's score interval); of none, anything."""
    if n < 1:
        return 0.0, 1.0
    z2 = 1.959963984540054**2 / n
    centre, half = share + z2 / 2, (z2 * (share * (1 - share) + z2 / 4)) ** 0.5
    return max(0.0, (centre - half) / (1 + z2)), min(1.0, (centre + half) / (1 + z2))


def balanced_interval(recalls: ArrayLike, counts: ArrayLike) -> tuple[float, float]:
    """Return the 95 % interval of the mean of recalls ``[k]`` over numbers of images ``[k]``, each at least one.

    Distances of the recalls to the ends of their Wilson intervals are added as squares: Zou, Huang and Zhang, "A note on confidence
    interval estimation for a linear function of binomial proportions", Computational Statistics & Data Analysis 53 (2009).
    """
    shares = _row(recalls)
    ends = np.array([wilson(share, n) for share, n in zip(shares.tolist(), np.asarray(counts).tolist(), strict=True)])
    below, above = (np.sqrt(((shares - ends[:, i]) ** 2).sum()) / len(shares) for i in (0, 1))
    return max(0.0, float(shares.mean() - below)), min(1.0, float(shares.mean() + above))


def per_class_accuracy(predicted: ArrayLike, targets: ArrayLike) -> float:
    """Return the mean of the accuracies within each label that has a target."""
    answers, right = _rows(predicted, targets)
    counts = np.bincount(right)
    hits = np.bincount(right[answers == right], minlength=len(counts))
    return float((hits[counts > 0] / counts[counts > 0]).mean())


def harmonic_mean(unseen: float, seen: float) -> float:
    """Return the harmonic mean of two accuracies (generalised zero-shot: of unseen and of seen labels)."""
    return 2 * unseen * seen / (unseen + seen) if unseen + seen > 0 else 0.0


def confusion_matrix(predicted: ArrayLike, targets: ArrayLike, labels: int) -> NDArray[Any]:
    """Return counts ``[labels, labels]``: row is the target, column the prediction."""
    answers, right = _rows(predicted, targets)
    return np.bincount(right * labels + answers, minlength=labels * labels).reshape(labels, labels)


def auroc(positive: ArrayLike, negative: ArrayLike) -> float:
    """Return the probability that a positive scores above a negative ``[p], [q]``; a tie counts one half."""
    positives, negatives = _row(positive), np.sort(_row(negative))
    doubled_wins = (
        np.searchsorted(negatives, positives).sum() + np.searchsorted(negatives, positives, side="right").sum()
    )
    return int(doubled_wins) / (2 * len(positives) * len(negatives))


def fpr_at_tpr(positive: ArrayLike, negative: ArrayLike, tpr: float = 0.95) -> float:
    """Return the share of negatives accepted at the strictest threshold that accepts a share ``tpr`` of positives.

    A score equal to the threshold is accepted.
    """
    positives, negatives = np.sort(_row(positive)), _row(negative)
    min_hits = max(math.ceil(tpr * len(positives) - 1e-9), 1)
    return float((negatives >= positives[-min_hits]).mean())


@dataclass(frozen=True, eq=False, kw_only=True)
class DetCurve:
    """Both kinds of error at every distinct threshold, from the most lenient to the strictest."""

    thresholds: NDArray[Any]  # [t]; the last is above every score (infinity)
    misses: NDArray[Any]  # the share of positives below the threshold [t], from 0 to 1
    false_accepts: NDArray[Any]  # the share of negatives not below it [t], from 1 to 0


def det_curve(positive: ArrayLike, negative: ArrayLike) -> DetCurve:
    """Return the detection error trade-off of scores of positives ``[p]`` and negatives ``[q]``."""
    positives, negatives = np.asarray(positive, np.float64), np.asarray(negative, np.float64)
    if positives.ndim != 1 or negatives.ndim != 1 or not len(positives) or not len(negatives):
        raise UsageError(
            "Errors of detection need at least one positive and one negative score, in rows [n]; "
            f"given {list(positives.shape)} and {list(negatives.shape)}."
        )
    thresholds = np.unique(np.concatenate([positives, negatives]))
    if not np.isfinite(thresholds).all():
        raise UsageError("Errors of detection need finite scores; some are infinite or not a number (NaN).")
    thresholds = np.append(thresholds, math.inf)
    return DetCurve(
        thresholds=thresholds,
        misses=np.searchsorted(np.sort(positives), thresholds) / len(positives),
        false_accepts=(len(negatives) - np.searchsorted(np.sort(negatives), thresholds)) / len(negatives),
    )


def min_dcf(curve: DetCurve, p_target: float = 0.01) -> float:
    """Return the least detection cost over all thresholds; 1 is the cost of the better constant answer.

    A miss and a false accept cost the same: ``min(p misses + (1 - p) false accepts) / min(p, 1 - p)``, where p is the
    expected share of positives, whatever their share here.
    """
    costs = p_target * curve.misses + (1 - p_target) * curve.false_accepts
    return float(costs.min()) / min(p_target, 1 - p_target)


def misses_at(curve: DetCurve, false_accepts: float) -> float:
    """Return the least share of misses at a threshold that accepts at most this share of negatives."""
    return float(curve.misses[_strict_enough(curve, false_accepts)])


def threshold_at(curve: DetCurve, false_accepts: float) -> float:
    """Return a finite threshold that accepts at most this share of negatives and as many positives as possible.

    It is half-way between the scores on both sides.
    """
    place = _strict_enough(curve, false_accepts)
    below = float(curve.thresholds[place - 1]) if place else -math.inf
    at = float(curve.thresholds[place])
    if math.isinf(at):
        return math.nextafter(below, math.inf)
    middle = below / 2 + at / 2
    return middle if below < middle < at and place else at


def _strict_enough(curve: DetCurve, false_accepts: float) -> int:
    return int((curve.false_accepts <= false_accepts).argmax())


class EqualError(NamedTuple):
    """Where as many positives are refused as negatives are accepted."""

    rate: float  # the share of either, read off the straight line between the two nearest thresholds
    threshold: float  # the one where both shares are nearest; a score at least as large is accepted


def equal_error(curve: DetCurve) -> EqualError:
    """Return the equal error rate of a detection error trade-off, and its threshold."""
    gap = curve.misses - curve.false_accepts  # from -1 to 1, never decreasing
    after = int((gap >= 0).argmax())
    low, high = gap[after - 1], gap[after]
    before, behind = curve.misses[after - 1], curve.misses[after]
    rate = float(before + (behind - before) * low / (low - high))
    best = int(abs(gap[:-1]).argmin())  # the last threshold is infinite
    below, at = float(curve.thresholds[max(best - 1, 0)]), float(curve.thresholds[best])
    middle = below / 2 + at / 2
    return EqualError(rate=rate, threshold=middle if below < middle else at)


def average_precisions(scores: ArrayLike, truths: ArrayLike) -> NDArray[Any]:
    """Return the average precision of each label ``[k]``, from scores and truths ``[n, k]``; NaN where it is true of no image.

    Images are ranked by their score for the label; the precision at each true image, averaged. Images with equal scores
    are taken together, so their order does not matter.
    """
    columns = zip(np.asarray(truths).T, np.asarray(scores, np.float64).T, strict=True)
    return np.array([average_precision(own, true) for true, own in columns])


def average_precision(scores: NDArray[Any], truths: NDArray[Any]) -> float:
    """Return the precision at each true image, averaged, from scores and truths ``[n]``; NaN without a true image."""
    order = np.argsort(-scores, kind="stable")
    values, true = scores[order], truths[order].astype(bool)
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # of images with equal scores
    hits = np.cumsum(true)[ends]
    gains = np.diff(hits, prepend=0)
    return float((gains * hits / (ends + 1)).sum() / hits[-1]) if hits[-1] else math.nan


def f1_scores(yes: ArrayLike, truths: ArrayLike) -> tuple[float, NDArray[Any]]:
    """Return F1 over all pairs of image and label (micro), and of each label ``[k]``, from answers and truths ``[n, k]`` (bool).

    It is 0 where nothing is true or yes.
    """
    answers, true = np.asarray(yes), np.asarray(truths)
    intersection, total = (answers & true).sum(0), answers.sum(0) + true.sum(0)
    return float(2 * intersection.sum() / max(total.sum(), 1)), 2 * intersection / np.maximum(total, 1)


@dataclass(frozen=True, eq=False)
class Reliability:
    """How often answers of a given confidence are right; bins of equal width over [0, 1]."""

    confidence: NDArray[Any]  # mean confidence in each bin [b]; NaN where it is empty
    accuracy: NDArray[Any]  # share of correct answers in each bin [b]; NaN where it is empty
    count: NDArray[Any]  # answers in each bin [b]

    @property
    def error(self) -> float:
        """The mean distance between confidence and accuracy, over bins weighted by count."""
        gaps = np.nan_to_num(abs(self.confidence - self.accuracy))
        return float((gaps * self.count).sum() / self.count.sum())


def pool_reliabilities(tables: Sequence[Reliability]) -> Reliability:
    """Return the reliability of the answers of several tables with the same bins."""
    sums = [
        sum(np.nan_to_num(getattr(table, name)) * table.count for table in tables)
        for name in ("confidence", "accuracy")
    ]
    return _reliability(sums, np.sum([table.count for table in tables], 0))


def reliability(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, weights: ArrayLike | None = None
) -> Reliability:
    """Return mean confidence, accuracy and count of each bin, from the probability of each answer and whether it was right ``[n]``.

    A bin contains its upper edge. An answer of weight w ``[n]`` counts as w answers.
    """
    sure, right = _rows(confidence, correct)
    places = np.searchsorted(np.arange(1, bins) / bins, sure.astype(np.float64))
    counts = np.ones(len(sure)) if weights is None else np.asarray(weights)
    sums = [np.bincount(places, weights=values * counts, minlength=bins) for values in (sure, right)]
    return _reliability(sums, np.bincount(places, None if weights is None else counts, minlength=bins))


def _reliability(sums: Sequence[Any], count: NDArray[Any]) -> Reliability:
    """Return the reliability of bins from the sums over their answers ``[b]``."""
    with np.errstate(invalid="ignore"):
        return Reliability(confidence=sums[0] / count, accuracy=sums[1] / count, count=count)


def expected_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, weights: ArrayLike | None = None
) -> float:
    """Return the mean distance between confidence and accuracy, over bins of equal width weighted by count."""
    return reliability(confidence, correct, bins, weights).error


def _row(values: ArrayLike) -> NDArray[Any]:
    row = np.asarray(values)
    if row.ndim != 1 or not len(row) or bool(np.isnan(row).any()):
        raise UsageError(f"A metric needs at least one number [n] and no NaN; given {values!r}.")
    return row


def _rows(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    first_row, second_row = _row(first), _row(second)
    if len(first_row) != len(second_row):
        raise UsageError(f"Give one target per answer; given {len(first_row)} answers and {len(second_row)} targets.")
    return first_row, second_row
