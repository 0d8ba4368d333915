"""The closed protocol: test images of known labels. Accuracy, calibration, and how many images are called unknown."""

from dataclasses import dataclass

import numpy as np

from labelwise.core.metrics import accuracy, per_class_accuracy
from labelwise.evaluation.evaluation import Evaluation
from labelwise.tasks.calibrate import calibration_errors


@dataclass(frozen=True, kw_only=True)
class ClosedResult:
    """Figures on test images of known labels."""

    images: int  # how many were tested
    accuracy: float  # share of images whose best label is the true one, even if they are called unknown
    balanced_accuracy: float  # the same averaged over labels
    ece: float  # expected calibration error of the best label's probability
    answer_ece: float  # expected calibration error of yes/no answers over all pairs
    kept: float  # share of images not called unknown
    kept_accuracy: float  # accuracy among those
    leaked: float  # share of the images that the classifier was trained or calibrated on; anything but 0 flatters it


def evaluate_closed(evaluation: Evaluation) -> ClosedResult:
    """Return the closed-protocol figures of test images that have one label each."""
    scores, targets = evaluation.labelled()
    known, best = ~np.asarray(scores.unknown), np.asarray(scores.best)
    right = best == targets
    return ClosedResult(
        images=len(scores),
        accuracy=accuracy(best, targets),
        balanced_accuracy=per_class_accuracy(best, targets),
        **calibration_errors(scores, targets),
        kept=float(known.mean()),
        kept_accuracy=float(right[known].mean()) if known.any() else 0.0,
        leaked=evaluation.leaked,
    )
