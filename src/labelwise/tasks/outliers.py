"""Outliers: which pictures are none of the labels?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.core import Classifier
from labelwise.data.pictures import Pictures, as_batch


@dataclass(frozen=True)
class Outlier:
    """How little a picture fits any label: ``score`` is one minus the confidence; ``flagged`` if past the threshold."""

    score: float
    flagged: bool


def outliers(classifier: Classifier, pictures: Pictures) -> list[Outlier]:
    """Return one outlier score per picture; larger is stranger."""
    scores = outlier_scores(classifier, as_batch(pictures, classifier.model.spec.shape))
    limit = 1.0 if classifier.unknown is None else 1 - classifier.unknown
    return [Outlier(score, score > limit) for score in scores.tolist()]


def outlier_scores(classifier: Classifier, images: Tensor) -> Tensor:
    """Return outlier scores ``[n]`` of images in the model's own shape."""
    scores = classifier.scores(images)
    return torch.zeros(0) if not len(scores) else 1 - classifier.confidence(scores)
