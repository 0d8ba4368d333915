"""Classify: what is it? Names, probabilities, and "unknown" where none fits."""

from dataclasses import dataclass

from labelwise.core import UNKNOWN, Classifier
from labelwise.data.pictures import Pictures, as_batch
from labelwise.tasks.outliers import outlier_scores


@dataclass(frozen=True)
class Prediction:
    """What a classifier says of one picture.

    Attributes:
        label: the best label, or ``unknown`` where no label fits well enough.
        probability: of the best label, given that one of the labels is right.
        confidence: the probability of a yes to the best label; low where none fits.
        outlier: the outlier score; larger is stranger.
        top: the best labels and their probabilities, best first.
    """

    label: str
    probability: float
    confidence: float
    outlier: float
    top: tuple[tuple[str, float], ...]

    @property
    def known(self) -> bool:
        """Whether some label fits."""
        return self.label != UNKNOWN


def classify(classifier: Classifier, pictures: Pictures, *, top: int = 5) -> list[Prediction]:
    """Return one prediction per picture.

    Args:
        classifier: any classifier.
        pictures: paths, PIL images, arrays or tensors; one or many.
        top: how many labels to list.
    """
    codes = classifier.encode(as_batch(pictures, classifier.model.spec.shape))
    scores = classifier.scores_of_codes(codes)
    strange = outlier_scores(classifier, codes)
    probabilities, order = classifier.probabilities(scores).topk(min(max(1, top), len(classifier.labels)))
    confidence = classifier.confidence(scores).tolist()
    names = classifier.labels.names
    found = []
    rows = zip(confidence, strange.tolist(), probabilities.tolist(), order.tolist(), strict=True)
    for sure, odd, row, columns in rows:
        known = classifier.outlier is None or odd <= classifier.outlier.limit
        best = tuple((names[column], value) for column, value in zip(columns, row, strict=True))
        found.append(Prediction(best[0][0] if known else UNKNOWN, best[0][1], sure, odd, best))
    return found
