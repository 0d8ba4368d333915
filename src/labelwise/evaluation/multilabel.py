"""Multi-label test images: ranking, yes/no answers and calibration."""

from dataclasses import dataclass

import numpy as np

from labelwise.core.metrics import average_precisions, f1_scores
from labelwise.evaluation.evaluation import Evaluation
from labelwise.tasks.calibrate import calibration_errors


@dataclass(frozen=True, kw_only=True)
class MultilabelResult:
    """Figures on multi-label test images. A yes is a probability of at least one half, or the label's threshold."""

    images: int  # number of test images
    asked: int  # labels per image: those shared by classifier and data
    mean_average_precision: float  # mean over labels that are true of a test image; needs no threshold
    micro_f1: float  # F1 of yes answers over all pairs of image and label
    macro_f1: float  # F1 of each label that is true of a test image, averaged
    exact: float  # share of images with every answer right
    answer_ece: float  # expected calibration error of yes/no answers over all pairs
    kept: float  # share of images not called unknown; the other figures count all images
    leaked: float  # share of test images seen in training or calibration; should be 0
    average_precision: dict[str, float | None]  # average precision per label; None if it is true of no test image


def evaluate_multilabel(evaluation: Evaluation) -> MultilabelResult:
    """Return the figures of multi-label test images."""
    scores, truths = evaluation.asked_labels()
    accepted, present = scores.agreed, np.asarray(truths.any(0))
    precisions = average_precisions(scores.log_odds, truths)
    micro, f1 = f1_scores(accepted, truths)
    return MultilabelResult(
        images=len(evaluation),
        asked=len(scores.classifier.labels),
        mean_average_precision=float(np.nanmean(precisions)),
        micro_f1=micro,
        macro_f1=float(f1[present].mean()),
        exact=float((accepted == truths).all(1).mean()),
        **calibration_errors(scores, truths),
        kept=float(1 - np.asarray(evaluation.scores.unknown).mean()),
        leaked=evaluation.leaked,
        average_precision={
            name: value if occurs else None
            for name, value, occurs in zip(
                scores.classifier.labels.names, precisions.tolist(), present.tolist(), strict=True
            )
        },
    )
