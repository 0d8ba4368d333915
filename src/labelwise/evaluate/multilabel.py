"""Test images of which several labels may be true: ranking, yes and no answers, and whether their probabilities are right."""

from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.core import Classifier, Labels, check_shape
from labelwise.data.dataset import Split
from labelwise.errors import DataError, listing
from labelwise.evaluate.closed import leaked_share
from labelwise.ops.ranking import average_precisions, f1_scores
from labelwise.tasks.calibrate import calibration_errors
from labelwise.tasks.outliers import flag_outliers, outlier_scores


@dataclass(frozen=True, kw_only=True)
class MultilabelResult:
    """Figures on test images of which several labels may be true. A yes is a probability of one half or more.

    Attributes:
        images: how many were tested.
        asked: how many labels each was asked about: those that both the classifier and the data know.
        mean_average_precision: mean over the labels that are true of a test image; needs no threshold.
        micro_f1: F1 of yes answers over all pairs of image and label.
        macro_f1: F1 of each label that is true of a test image, averaged.
        exact: share of images whose every answer is right.
        answer_ece: expected calibration error of yes/no answers over all pairs.
        kept: share of images not called unknown; the other figures count all images.
        leaked: share of the images that the classifier was trained or calibrated on; anything but 0 flatters it.
        average_precision: of each label; None where it is true of no test image.
    """

    images: int
    asked: int
    mean_average_precision: float
    micro_f1: float
    macro_f1: float
    exact: float
    answer_ece: float
    kept: float
    leaked: float
    average_precision: dict[str, float | None]


def evaluate_multilabel(classifier: Classifier, split: Split, labels: Labels) -> MultilabelResult:
    """Return the figures of a classifier on a test split whose truths are about ``labels``."""
    asked, truths = asked_truths(classifier, split, labels)
    check_shape(split.images, classifier.model.spec.shape)
    codes = classifier.encode(split.images)
    scores = asked.scores_of_codes(codes.float())
    truths = truths.to(scores.device)
    yes = asked.answers(scores) >= 0.5
    there = truths.any(0)
    each = average_precisions(scores, truths)
    micro, f1 = f1_scores(yes, truths)
    known = ~flag_outliers(classifier, outlier_scores(classifier, codes))
    return MultilabelResult(
        images=len(split),
        asked=len(asked.labels),
        mean_average_precision=float(each.nanmean()),
        micro_f1=micro,
        macro_f1=float(f1[there].mean()),
        exact=float((yes == truths).all(1).double().mean()),
        **calibration_errors(asked, scores, truths),
        kept=float(known.double().mean()),
        leaked=leaked_share(classifier, split.images),
        average_precision={
            name: value if found else None
            for name, value, found in zip(asked.labels.names, each.tolist(), there.tolist(), strict=True)
        },
    )


def asked_truths(classifier: Classifier, split: Split, labels: Labels) -> tuple[Classifier, Tensor]:
    """Return the classifier of the labels that the data know, too, and which of them are true ``[n, k]``.

    Args:
        classifier: any classifier.
        split: images, of which several labels may be true.
        labels: what its truths are about.
    """
    truths = split.table(len(labels))
    foreign = [labels.names[i] for i in truths.any(0).nonzero()[:, 0].tolist()]
    foreign = [name for name in foreign if name not in classifier.labels.names]
    if foreign:
        raise DataError(
            f"The classifier does not know these labels of the data: {listing(foreign)}. Teach them, or leave them out."
        )
    names = [name for name in classifier.labels.names if name in set(labels.names)]
    if not names or not bool(truths.any()):
        raise DataError("No label is true of any of these images, so there is nothing to measure.")
    return classifier.select(names), truths[:, torch.tensor([labels.index(name) for name in names])]


def all_truths(classifier: Classifier, split: Split, labels: Labels) -> Tensor:
    """Return which of the classifier's labels are true ``[n, k]``, or raise an error where the data do not say it of all."""
    asked, truths = asked_truths(classifier, split, labels)
    silent = [name for name in classifier.labels.names if name not in asked.labels.names]
    if silent:
        raise DataError(
            f"The data do not say where these labels are true: {listing(silent)}. Forget them first, or add them."
        )
    return truths
