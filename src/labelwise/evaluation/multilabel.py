"""Test images of which several labels may be true: ranking, yes and no answers, and whether their probabilities are right."""

from dataclasses import dataclass

import numpy as np

from labelwise.core.metrics import average_precisions, f1_scores
from labelwise.evaluation.evaluation import Evaluation
from labelwise.tasks.calibrate import calibration_errors


@dataclass(frozen=True, kw_only=True)
class MultilabelResult:
    """Figures on test images of which several labels may be true. A yes is a probability of one half or more, or of the label's threshold."""

    images: int  # how many were tested
    asked: int  # how many labels each was asked about: those that both the classifier and the data know
    mean_average_precision: float  # mean over the labels that are true of a test image; needs no threshold
    micro_f1: float  # F1 of yes answers over all pairs of image and label
    macro_f1: float  # F1 of each label that is true of a test image, averaged
    exact: float  # share of images whose every answer is right
    answer_ece: float  # expected calibration error of yes/no answers over all pairs
    kept: float  # share of images not called unknown; the other figures count all images
    leaked: float  # share of the images that the classifier was trained or calibrated on; anything but 0 flatters it
    average_precision: dict[str, float | None]  # of each label; None where it is true of no test image


def evaluate_multilabel(evaluation: Evaluation) -> MultilabelResult:
    """Return the figures of test images of which several labels may be true."""
    scores, truths = evaluation.asked()
    yes, there = scores.agreed, np.asarray(truths.any(0))
    each = average_precisions(scores.log_odds, truths)
    micro, f1 = f1_scores(yes, truths)
    return MultilabelResult(
        images=len(evaluation),
        asked=len(scores.classifier.labels),
        mean_average_precision=float(np.nanmean(each)),
        micro_f1=micro,
        macro_f1=float(f1[there].mean()),
        exact=float((yes == truths).all(1).mean()),
        **calibration_errors(scores, truths),
        kept=float(1 - np.asarray(evaluation.scores.unknown).mean()),
        leaked=evaluation.leaked,
        average_precision={
            name: value if occurs else None
            for name, value, occurs in zip(scores.classifier.labels.names, each.tolist(), there.tolist(), strict=True)
        },
    )
