"""Operating points: precision and recall of a label by threshold, to choose a threshold."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from labelwise.core.metrics import average_precision, wilson
from labelwise.core.scores import Scores
from labelwise.evaluation.evaluation import Evaluation
from labelwise.images.dataset import Array, truth_table
from labelwise.support.errors import DataError

THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MOST_PAIRS = 2**26  # pairs of image and label; more are not ranked
Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Point:
    """The result of answering a label from a threshold on."""

    threshold: float
    precision: float | None  # share of these answers that are right; None without answers
    precision_interval: Interval  # 95 % (Wilson)
    recall: float  # share of the label's images that get the label
    recall_interval: Interval
    answers: int  # number of images that get the label


@dataclass(frozen=True, kw_only=True)
class Operating:
    """The operating points of one label, answered yes or no on its own."""

    label: str
    average_precision: float  # average precision; needs no threshold
    points: tuple[Point, ...]  # one per threshold of ``THRESHOLDS``
    best: Point  # best F1 among all thresholds; chosen on these images
    chosen: Point | None  # at the classifier's own threshold, if set


def operating_points(evaluation: Evaluation) -> tuple[Operating, ...]:
    """Return the operating points of each label with a true image; none if there are too many pairs."""
    scores, truths = truths_of(evaluation)
    if truths.size > MOST_PAIRS:
        return ()
    names, own = scores.classifier.labels.names, scores.classifier.thresholds
    probabilities = np.asarray(scores.reported, np.float64)
    return tuple(
        _operating(name, probabilities[:, column], truths[:, column], own.get(name))
        for column, name in enumerate(names)
        if truths[:, column].any()
    )


def _operating(label: str, probabilities: Array, true: Array, own: float | None) -> Operating:
    return Operating(
        label=label,
        average_precision=average_precision(probabilities, true),
        points=tuple(point_at(threshold, probabilities, true) for threshold in THRESHOLDS),
        best=point_at(best_threshold(probabilities, true), probabilities, true),
        chosen=None if own is None else point_at(own, probabilities, true),
    )


def thresholds_for(evaluation: Evaluation, precisions: Mapping[str, float]) -> dict[str, float]:
    """Return the smallest threshold of each label with at least this precision."""
    scores, truths = truths_of(evaluation)
    thresholds = {}
    for name, precision in precisions.items():
        column = scores.classifier.labels.index(name)
        threshold = threshold_for(
            np.asarray(scores.reported[:, column], np.float64), truths[:, column], precision=precision
        )
        if threshold is None:
            raise DataError(
                f'No threshold gives "{name}" a precision of {precision:g} on these images. Choose a lower one.'
            )
        thresholds[name] = threshold
    return thresholds


def truths_of(evaluation: Evaluation) -> tuple[Scores, Array]:
    """Return the scores of labelled images, and the true labels of each ``[n, k]`` (bool)."""
    if evaluation.multilabel:
        return evaluation.asked_labels()
    scores, targets = evaluation.labelled()
    return scores, truth_table(targets, len(evaluation.classifier.labels))


def point_at(threshold: float, probabilities: Array, true: Array) -> Point:
    """Return precision and recall ``[n]`` at a threshold."""
    accepted = probabilities >= threshold
    answers, images, hits = int(accepted.sum()), int(true.sum()), int((accepted & true).sum())
    recall = hits / images
    return Point(
        threshold=float(threshold),
        precision=hits / answers if answers else None,
        precision_interval=wilson(hits / answers if answers else 0.0, answers),
        recall=recall,
        recall_interval=wilson(recall, images),
        answers=answers,
    )


def best_threshold(probabilities: Array, true: Array) -> float:
    """Return the threshold of the best F1, midway to the next smaller probability; ties go to the largest."""
    order = np.argsort(-probabilities, kind="stable")
    values, hits = probabilities[order], np.cumsum(true[order])
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # last image of each probability
    f1 = 2 * hits[ends] / (ends + 1 + true.sum())
    at = int(f1.argmax())
    next_value = values[ends[at] + 1] if at + 1 < len(ends) else 0.0
    return float((values[ends[at]] + next_value) / 2)


def threshold_for(probabilities: Array, true: Array, *, precision: float) -> float | None:
    """Return the smallest threshold with at least this precision ``[n]``, or None.

    Of equal recalls the larger threshold, midway between the probabilities of two images.
    """
    order = np.argsort(-probabilities, kind="stable")
    values, hits = probabilities[order], np.cumsum(true[order])
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    usable = np.where(hits[ends] >= precision * (ends + 1), hits[ends], 0)
    if not usable.any():
        return None
    end = ends[int(usable.argmax())]
    next_value = values[end + 1] if end + 1 < len(values) else 0.0
    return float((values[end] + next_value) / 2)
