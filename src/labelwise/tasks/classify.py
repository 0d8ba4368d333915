"""Classify: what is it? Names, probabilities, and "unknown" where none fits; all names that are true where several may be."""

from dataclasses import dataclass

from labelwise.core.calibration import HALF
from labelwise.core.scores import NONE, UNKNOWN, Scores


@dataclass(frozen=True)
class Prediction:
    """What a classifier says of one image."""

    # the best label, or unknown where no label fits well enough; none where several labels might be true, the
    # image is a familiar one, and the answer to each of them is no
    label: str
    # the labels it has: the one above, or none; where several may be true, each that is answered yes (from its
    # threshold on, or one half), the most probable first
    labels: tuple[str, ...]
    # of the best label, given that one of the labels is right; where several may be true, of a yes to it
    probability: float
    confidence: float  # the probability of a yes to the best label; low where none fits
    outlier: float  # the outlier score; larger fits less
    top: tuple[tuple[str, float], ...]  # the best labels and their probabilities, the answer first

    def __repr__(self) -> str:
        best = ", ".join(f"{label} {100 * value:.1f} %" for label, value in self.top[:3])
        return f"<Prediction: {', '.join(self.labels) or self.label}; {best}>"

    @property
    def known(self) -> bool:
        """Whether some label fits."""
        return bool(self.labels)


def classify(scores: Scores, *, top: int = 5, coverage: float | None = None) -> list[Prediction]:
    """Return one prediction per image, each listing the ``top`` labels.

    With ``coverage``, such as 0.9, each lists as many labels as it takes for the right one to be among them at this rate, as measured
    on images that training left out.
    """
    return [one for part in scores.parts() for one in _predictions(part, top, coverage)]


def _predictions(scores: Scores, top: int, coverage: float | None) -> list[Prediction]:
    multilabel = scores.classifier.calibration.multilabel
    if coverage is None:
        tops = scores.top(len(scores.classifier.labels) if multilabel else top)
    else:
        sizes = scores.covering(coverage).sum(1).tolist()
        tops = [row[:size] for row, size in zip(scores.top(max(sizes, default=1)), sizes, strict=True)]
        top = len(scores.classifier.labels)
    rows = zip(tops, scores.confidence.tolist(), scores.outlier_score.tolist(), scores.unknown.tolist(), strict=True)
    limits = scores.classifier.thresholds
    predictions = []
    for best, confidence, outlier, unknown in rows:
        yes = tuple(name for name, p in best if p >= limits.get(name, HALF)) if multilabel else (best[0][0],)
        labels = () if unknown else yes
        label = labels[0] if labels else UNKNOWN if unknown else NONE
        predictions.append(Prediction(label, labels, best[0][1], confidence, outlier, tuple(best[: max(1, top)])))
    return predictions
