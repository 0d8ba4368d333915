"""Classify: what is it? Names, probabilities, and "unknown" where none fits; all names that are true where several may be."""

from dataclasses import dataclass

from labelwise.core import NONE, UNKNOWN, Classifier
from labelwise.data.pictures import Pictures, as_batch
from labelwise.tasks.outliers import outlier_scores


@dataclass(frozen=True)
class Prediction:
    """What a classifier says of one picture.

    Attributes:
        label: the best label, or ``unknown`` where no label fits well enough; ``none`` where several labels might be true,
            the picture is a familiar one, and the answer to each of them is no.
        labels: the labels it has: the one above, or none; where several may be true, each that is answered yes (a
            probability of one half or more), the most probable first.
        probability: of the best label, given that one of the labels is right; where several may be true, of a yes to it.
        confidence: the probability of a yes to the best label; low where none fits.
        outlier: the outlier score; larger is stranger.
        top: the best labels and their probabilities, best first.
    """

    label: str
    labels: tuple[str, ...]
    probability: float
    confidence: float
    outlier: float
    top: tuple[tuple[str, float], ...]

    @property
    def known(self) -> bool:
        """Whether some label fits."""
        return bool(self.labels)


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
    said = classifier.answers(scores) if classifier.multilabel else classifier.probabilities(scores)
    probabilities, order = said.topk(len(classifier.labels) if classifier.multilabel else _listed(classifier, top))
    confidence = classifier.confidence(scores).tolist()
    names = classifier.labels.names
    found = []
    rows = zip(confidence, strange.tolist(), probabilities.tolist(), order.tolist(), strict=True)
    for sure, odd, row, columns in rows:
        known = classifier.outlier is None or odd <= classifier.outlier.limit
        best = tuple((names[column], value) for column, value in zip(columns, row, strict=True))
        yes = tuple(name for name, value in best if value >= 0.5) if classifier.multilabel else (best[0][0],)
        labels = yes if known else ()
        label = labels[0] if labels else NONE if known else UNKNOWN
        found.append(Prediction(label, labels, best[0][1], sure, odd, best[: _listed(classifier, top)]))
    return found


def _listed(classifier: Classifier, top: int) -> int:
    return min(max(1, top), len(classifier.labels))
