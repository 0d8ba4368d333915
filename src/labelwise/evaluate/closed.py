"""The closed protocol: test images of known labels. Accuracy, calibration and how often "unknown" is said."""

from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.core import Classifier, Labels, check_shape
from labelwise.data.dataset import Split
from labelwise.data.fingerprints import fingerprints
from labelwise.errors import DataError, listing
from labelwise.metrics import accuracy, per_class_accuracy
from labelwise.tasks.calibrate import calibration_errors
from labelwise.tasks.outliers import flag_outliers, outlier_scores


@dataclass(frozen=True, kw_only=True)
class ClosedResult:
    """Figures on test images of known labels.

    Attributes:
        images: how many were tested.
        accuracy: share of images whose best label is the true one, whatever the unknown threshold.
        class_accuracy: the same averaged over labels.
        ece: expected calibration error of the best label's probability.
        answer_ece: expected calibration error of yes/no answers over all pairs.
        kept: share of images not called unknown.
        kept_accuracy: accuracy among those.
        leaked: share of the images that the classifier was trained or calibrated on; anything but 0 flatters it.
    """

    images: int
    accuracy: float
    class_accuracy: float
    ece: float
    answer_ece: float
    kept: float
    kept_accuracy: float
    leaked: float


def evaluate_closed(classifier: Classifier, split: Split, labels: Labels) -> ClosedResult:
    """Return the closed-protocol figures of a classifier on a test split whose targets point into ``labels``."""
    if split.truths is not None:
        raise DataError("Several labels may be true of these images; measure them with evaluate_multilabel.")
    targets = align_targets(classifier, split, labels)
    rows = (targets >= 0).nonzero()[:, 0]
    if not len(rows):
        raise DataError("There is no labelled test image to evaluate on.")
    targets = targets[rows].to(classifier.codes.device)
    check_shape(split.images, classifier.model.spec.shape)
    codes = classifier.encode(split.images[rows])
    scores = classifier.scores_of_codes(codes)
    chosen = scores.argmax(1)
    known = ~flag_outliers(classifier, outlier_scores(classifier, codes))
    right = chosen == targets
    return ClosedResult(
        images=len(rows),
        accuracy=accuracy(chosen, targets),
        class_accuracy=per_class_accuracy(chosen, targets),
        **calibration_errors(classifier, scores, targets),
        kept=float(known.double().mean()),
        kept_accuracy=float(right[known].double().mean()) if bool(known.any()) else 0.0,
        leaked=leaked_share(classifier, split.images[rows]),
    )


def leaked_share(classifier: Classifier, images: Tensor) -> float:
    """Return the share of the images that the classifier was made from, by their bytes."""
    return float(leaked_rows(classifier, images).double().mean()) if len(images) else 0.0


def leaked_rows(classifier: Classifier, images: Tensor) -> Tensor:
    """Return which images ``[n]`` (bool) the classifier was made from, by their bytes; none where it keeps no hashes."""
    if classifier.seen is None or not len(images):
        return torch.zeros(len(images), dtype=torch.bool)
    return torch.isin(fingerprints(images), classifier.seen.cpu())


def align_targets(classifier: Classifier, split: Split, labels: Labels) -> Tensor:
    """Return the split's targets as positions among the classifier's labels, -1 where an image has no label."""
    used = [labels.names[i] for i in sorted(set(split.targets.tolist())) if i >= 0]
    foreign = [name for name in used if name not in classifier.labels.names]
    if foreign:
        raise DataError(
            f"The classifier does not know these labels of the data: {listing(foreign)}. Teach them, or leave their images out."
        )
    places = torch.full((len(labels) + 1,), -1)
    for name in used:
        places[labels.index(name)] = classifier.labels.index(name)
    return places[split.targets.cpu()]
