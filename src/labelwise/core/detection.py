"""Yes or no by a threshold on a score: both kinds of error at every threshold, and what they cost at best.

A score equal to the threshold is accepted.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.support.errors import UsageError


@dataclass(frozen=True, eq=False, kw_only=True)
class DetCurve:
    """Both kinds of error at every distinct threshold, from the most lenient to the strictest."""

    thresholds: NDArray[Any]  # [t]; the last is above every score (infinity)
    misses: NDArray[Any]  # the share of positives below the threshold [t], from 0 to 1
    false_accepts: NDArray[Any]  # the share of negatives not below it [t], from 1 to 0


def det_curve(positive: ArrayLike, negative: ArrayLike) -> DetCurve:
    """Return the detection error trade-off of scores of positives ``[p]`` and negatives ``[q]``."""
    up, down = np.asarray(positive, np.float64), np.asarray(negative, np.float64)
    if up.ndim != 1 or down.ndim != 1 or not len(up) or not len(down):
        raise UsageError(
            "Errors of detection need at least one positive and one negative score, in rows [n]; "
            f"given {list(up.shape)} and {list(down.shape)}."
        )
    thresholds = np.unique(np.concatenate([up, down]))
    if not np.isfinite(thresholds).all():
        raise UsageError("Errors of detection need finite scores; some are infinite or not a number (NaN).")
    thresholds = np.append(thresholds, math.inf)
    return DetCurve(
        thresholds=thresholds,
        misses=np.searchsorted(np.sort(up), thresholds) / len(up),
        false_accepts=(len(down) - np.searchsorted(np.sort(down), thresholds)) / len(down),
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

    It lies half-way between the scores on both sides of it.
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
