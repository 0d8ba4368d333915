"""Yes or no by a threshold on a score: both kinds of error at every threshold, and what they cost at best.

A score equal to the threshold is accepted.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.support.errors import UsageError


@dataclass(frozen=True, eq=False, kw_only=True)
class DetCurve:
    """Both kinds of error at every threshold that differs, from the most lenient to the strictest."""

    thresholds: Tensor  # [t]; the last lies above every score (infinity)
    misses: Tensor  # the share of positives below the threshold [t], from 0 to 1
    false_accepts: Tensor  # the share of negatives not below it [t], from 1 to 0


def det_curve(positive: Tensor, negative: Tensor) -> DetCurve:
    """Return the detection error trade-off of scores of positives ``[p]`` and negatives ``[q]``, on the CPU."""
    up, down = (scores.detach().double().cpu().sort().values for scores in (positive, negative))
    if up.ndim != 1 or down.ndim != 1 or not len(up) or not len(down):
        raise UsageError(
            "Errors of detection need at least one positive and one negative score, in rows [n]; "
            f"given {list(up.shape)} and {list(down.shape)}."
        )
    thresholds = torch.cat([up, down]).sort().values
    if not thresholds.isfinite().all():
        raise UsageError("Errors of detection need finite scores; some are infinite or not a number (NaN).")
    thresholds = torch.cat([torch.unique_consecutive(thresholds), torch.full((1,), math.inf, dtype=torch.float64)])
    return DetCurve(
        thresholds=thresholds,
        misses=torch.searchsorted(up, thresholds).double() / len(up),
        false_accepts=(len(down) - torch.searchsorted(down, thresholds)).double() / len(down),
    )


def min_dcf(curve: DetCurve, p_target: float = 0.01) -> float:
    """Return the least detection cost over all thresholds, 1 being the cost of always giving the better constant answer.

    A miss and a false accept cost the same; ``min(p misses + (1 - p) false accepts) / min(p, 1 - p)``, where p is the share
    of positives to reckon with, whatever it is here.
    """
    costs = p_target * curve.misses + (1 - p_target) * curve.false_accepts
    return float(costs.min()) / min(p_target, 1 - p_target)


def misses_at(curve: DetCurve, false_accepts: float) -> float:
    """Return the least share of misses at a threshold that accepts at most this share of negatives."""
    return float(curve.misses[_strict_enough(curve, false_accepts)])


def threshold_at(curve: DetCurve, false_accepts: float) -> float:
    """Return a threshold that accepts at most this share of negatives and as many positives as can be; it is finite.

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
    return int((curve.false_accepts <= false_accepts).nonzero()[0])
