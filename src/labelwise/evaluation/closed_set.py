"""The closed-set protocol: accuracy, calibration and rejection on test images of known labels."""

from dataclasses import dataclass

import numpy as np

from labelwise.core.metrics import accuracy, per_class_accuracy
from labelwise.evaluation.evaluation import Evaluation
from labelwise.tasks.calibrate import calibration_errors


@dataclass(frozen=True, kw_only=True)
class ClosedResult:
    """Figures on test images of known labels."""

    images: int  # number of test images
    accuracy: float  # accuracy of the best label, also of images called unknown
    balanced_accuracy: float  # accuracy averaged over labels
    ece: float  # expected calibration error of the best label's probability
    answer_ece: float  # expected calibration error of yes/no answers over all pairs
    kept: float  # share of images not called unknown
    kept_accuracy: float  # accuracy on those
    leaked: float  # share of test images seen in training or calibration; should be 0


def evaluate_closed(evaluation: Evaluation) -> ClosedResult:
    """Return the closed-set figures of test images with one label each."""
    scores, targets = evaluation.labelled()
    is_known, best = ~np.asarray(scores.unknown), np.asarray(scores.best)
    right = best == targets
    return ClosedResult(
        images=len(scores),
        accuracy=accuracy(best, targets),
        balanced_accuracy=per_class_accuracy(best, targets),
        **calibration_errors(scores, targets),
        kept=float(is_known.mean()),
        kept_accuracy=float(right[is_known].mean()) if is_known.any() else 0.0,
        leaked=evaluation.leaked,
    )
