"""Classify: the labels of an image with probabilities, or "unknown"."""

from dataclasses import dataclass, replace

from labelwise.core.calibration import HALF
from labelwise.core.scores import NONE, UNKNOWN, UNSURE, Scores


@dataclass(frozen=True)
class Prediction:
    """The answer of a classifier for one image."""

    # the best label; "unknown" if no label fits well enough; "none" if several labels may be true, the image is
    # familiar, and the answer for each label is no; with ``max_error`` also a parent of labels, or "unsure"
    label: str
    # the labels of the image: the one above, or none if it says unknown or unsure; if several may be true, each with a probability of at least its
    # threshold (or one half), the most probable first
    labels: tuple[str, ...]
    # probability of the best label, given that one label is right; if several may be true, of a yes for it; of a parent: the sum of its labels
    probability: float
    confidence: float  # the probability of a yes for the best label; low if none fits
    outlier: float  # the outlier score; larger fits less
    top: tuple[tuple[str, float], ...]  # the best labels and their probabilities, the answer first
    parents: tuple[str, ...] | None = (
        None  # with ``max_error``: what holds the answer, from the nearest to the broadest
    )

    def __repr__(self) -> str:
        best = ", ".join(f"{label} {100 * value:.1f} %" for label, value in self.top[:3])
        return f"<Prediction: {', '.join(self.labels) or self.label}; {best}>"

    @property
    def known(self) -> bool:
        """Whether some label fits."""
        return bool(self.labels)


def classify(
    scores: Scores, *, top: int = 5, coverage: float | None = None, max_error: float | None = None
) -> list[Prediction]:
    """Return one prediction per image, each listing the ``top`` labels.

    With ``coverage``, such as 0.9, each lists as many labels as it takes for the right one to be among them at this rate, as measured
    on images that training left out. With ``max_error``, such as 0.05, an answer is a parent of the label where the label is too unsure, and
    "unsure" where all parents are, so that at most this share of images gets a wrong answer.
    """
    predictions = [one for part in scores.parts() for one in _predictions(part, top, coverage)]
    if max_error is None:
        return predictions
    return [_coarser(one, *answer) for one, answer in zip(predictions, scores.coarser(max_error), strict=True)]


def _coarser(one: Prediction, path: tuple[str, ...], probability: float) -> Prediction:
    """Return the prediction whose answer is the end of a path from the broadest parent; unknown stays unknown."""
    if not one.known:
        return one
    if not path:
        return replace(one, label=UNSURE, labels=(), parents=())
    return replace(one, label=path[-1], labels=path[-1:], probability=probability, parents=path[-2::-1])


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
