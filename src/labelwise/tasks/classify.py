"""Classify: the labels of an image with probabilities, or "unknown"."""

from dataclasses import dataclass, replace

from labelwise.core.calibration import HALF
from labelwise.core.scores import NONE, UNKNOWN, UNSURE, Scores


@dataclass(frozen=True)
class Prediction:
    """The answer for one image."""

    # the best label; "unknown" if no label fits; "none" if several labels may be true, the image is familiar,
    # and every label is answered no; with ``max_error`` also a parent of labels, or "unsure"
    label: str
    # the labels of the image: the best one, or none if the answer is unknown or unsure; if several may be true, those above their threshold
    # (or one half), most probable first
    labels: tuple[str, ...]
    # probability of the best label, given that one is right; if several may be true, of a yes to it; of a parent, the sum of its labels
    probability: float
    confidence: float  # probability of a yes to the best label; low if none fits
    outlier: float  # the outlier score; larger is less familiar
    top: tuple[tuple[str, float], ...]  # the best labels and their probabilities, the answer first
    parents: tuple[str, ...] | None = (
        None  # with ``max_error``: the parents of the answer, from the nearest to the broadest
    )

    def __repr__(self) -> str:
        best = ", ".join(f"{label} {100 * value:.1f} %" for label, value in self.top[:3])
        return f"<Prediction: {', '.join(self.labels) or self.label}; {best}>"

    @property
    def known(self) -> bool:
        """Whether a label fits."""
        return bool(self.labels)


def classify(
    scores: Scores, *, top: int = 5, coverage: float | None = None, max_error: float | None = None
) -> list[Prediction]:
    """Return one prediction per image, each listing the ``top`` labels.

    With ``coverage``, such as 0.9, each lists as many labels as it takes for the right one to be among them at this rate, as measured
    on images that training left out. With ``max_error``, such as 0.05, an answer is a parent of the label where the label is too unsure, and
    "unsure" where all parents are, so that at most this share of images gets a wrong answer.
    """
    predictions = [prediction for part in scores.parts() for prediction in _predictions(part, top, coverage)]
    if max_error is None:
        return predictions
    return [
        _coarser(prediction, *answer) for prediction, answer in zip(predictions, scores.coarser(max_error), strict=True)
    ]


def _coarser(prediction: Prediction, path: tuple[str, ...], probability: float) -> Prediction:
    """Return the prediction with the last entry of a path from the broadest parent; unknown stays unknown."""
    if not prediction.known:
        return prediction
    if not path:
        return replace(prediction, label=UNSURE, labels=(), parents=())
    return replace(prediction, label=path[-1], labels=path[-1:], probability=probability, parents=path[-2::-1])


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
        accepted = tuple(name for name, p in best if p >= limits.get(name, HALF)) if multilabel else (best[0][0],)
        labels = () if unknown else accepted
        label = labels[0] if labels else UNKNOWN if unknown else NONE
        predictions.append(Prediction(label, labels, best[0][1], confidence, outlier, tuple(best[: max(1, top)])))
    return predictions
