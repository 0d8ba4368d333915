"""Choose the seen penalty, which balances seen labels and unseen labels (those with only a description).

A model favours the labels it was trained on. A seen penalty takes something from their scores (or multiplies their
distances by 1 + penalty). Each image has one penalty, its flip, at which its answer changes from the best seen label to
the best unseen one, so one sort of the flips gives the accuracies on both kinds of images for every penalty there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.core.calibration import Penalty
from labelwise.support.errors import DataError


@dataclass(frozen=True, eq=False)
class BalanceCurve:
    """Accuracies, averaged over labels, on images of unseen and of seen labels for every seen penalty."""

    flips: NDArray[Any]  # the distinct penalties at which an image's answer changes [m], rising
    # accuracy on images of unseen labels [m + 1], never falling; entry i holds between flips i - 1 and i
    unseen: NDArray[Any]
    seen: NDArray[Any]  # accuracy on images of seen labels [m + 1], never rising

    @property
    def harmonic(self) -> NDArray[Any]:
        """The harmonic mean of both accuracies ``[m + 1]``."""
        return np.asarray(2 * self.unseen * self.seen / np.maximum(self.unseen + self.seen, 1e-12))

    @property
    def area(self) -> float:
        """The area under seen accuracy over unseen accuracy (AUSUC)."""
        seen, unseen = np.asarray(self.seen), np.asarray(self.unseen)
        return float(((seen[1:] + seen[:-1]) / 2 * np.diff(unseen)).sum())

    def at(self, penalty: float) -> tuple[float, float]:
        """Return the accuracies on unseen and on seen labels at a seen penalty."""
        row = np.searchsorted(self.flips, penalty)
        return float(self.unseen[row]), float(self.seen[row])

    def best(self) -> float:
        """Return the penalty with the largest harmonic mean, halfway between the flips around it; 0 where none helps."""
        row = int(self.harmonic.argmax())
        if not self.harmonic[row]:
            return 0.0
        low, high = self.flips[max(row - 1, 0)], self.flips[min(row, len(self.flips) - 1)]
        return float(low / 2 + high / 2)


def best_of_all(curves: Sequence[BalanceCurve]) -> float:
    """Return the penalty with the largest mean harmonic mean over several curves, halfway between the flips around it."""
    flips = np.unique(np.concatenate([curve.flips for curve in curves]))
    middles = (flips[:-1] + flips[1:]) / 2
    harmonic = np.mean([curve.harmonic[np.searchsorted(curve.flips, middles)] for curve in curves], 0)
    return float(middles[harmonic.argmax()])


def seen_spread(scores: ArrayLike, seen: ArrayLike) -> float:
    """Return the standard deviation of an image's scores ``[n, k]`` of the seen labels ``[k]``, the mean over images."""
    return max(float(np.asarray(scores)[:, np.asarray(seen)].std(1, dtype=np.float64).mean()), 1e-12)


def balance_curve(scores: ArrayLike, targets: ArrayLike, seen: ArrayLike, kind: Penalty = "offset") -> BalanceCurve:
    """Return the accuracies for every seen penalty, from raw scores ``[n, k]`` and targets ``[n]``.

    ``seen [k]`` says which labels were trained on; ``kind`` how a penalty acts, see ``Head.penalty``.
    """
    table, right, is_seen = np.asarray(scores, np.float64), np.asarray(targets), np.asarray(seen)
    of_seen = is_seen[right]
    if not (of_seen.any() and (~of_seen).any()):
        raise DataError("Balancing seen and unseen labels needs images of both.")
    (best_seen, first), (best_unseen, second) = _best(table, is_seen), _best(table, ~is_seen)
    flips = _flips(best_seen, best_unseen, kind)
    counts = np.bincount(right, minlength=len(is_seen))
    right_seen = (of_seen & (first == right)) / counts[right] / (counts[is_seen] > 0).sum()
    right_unseen = (~of_seen & (second == right)) / counts[right] / (counts[~is_seen] > 0).sum()
    order = flips.argsort()
    flips = flips[order]
    first_of_equals = np.append(True, flips[1:] > flips[:-1])  # equal flips change together
    entries = np.append(first_of_equals, True)
    return BalanceCurve(
        flips=flips[first_of_equals],
        unseen=np.append(0.0, right_unseen[order].cumsum())[entries],
        seen=np.append(right_seen[order][::-1].cumsum()[::-1], 0.0)[entries],
    )


def _best(scores: NDArray[Any], of: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the largest score of each image among some labels ``[n]``, and which label has it ``[n]``."""
    candidates = np.where(of, scores, -np.inf)
    return candidates.max(1), candidates.argmax(1)


def _flips(best_seen: NDArray[Any], best_unseen: NDArray[Any], kind: Penalty) -> NDArray[Any]:
    """Return the penalty of each image at which its best seen label no longer wins ``[n]``."""
    if kind == "offset":
        return np.asarray(best_seen - best_unseen)
    if max(best_seen.max(), best_unseen.max()) > 0:
        raise DataError("A multiplicative seen penalty needs scores of at most zero, such as negative distances.")
    return np.asarray(best_unseen / np.minimum(best_seen, -1e-12) - 1)
