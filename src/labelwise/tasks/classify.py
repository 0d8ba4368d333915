"""Classify: the labels of an image with probabilities, or "unknown"."""

from dataclasses import dataclass

from labelwise.core.calibration import HALF
from labelwise.core.scores import NONE, UNKNOWN, Scores


@dataclass(frozen=True)
class Prediction:
    """The answer of a classifier for one image."""

    # the best label; "unknown" if no label fits well enough; "none" if several labels may be true, the image is
    # familiar, and the answer for each label is no
    label: str
    # the labels of the image: the one above or none; if several may be true, each with a probability of at least its
    # threshold (or one half), the most probable first
    labels: tuple[str, ...]
    # probability of the best label, given that one label is right; if several may be true, of a yes for it
    probability: float
    confidence: float  # the probability of a yes for the best label; low if none fits
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
