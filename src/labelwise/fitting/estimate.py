"""What answers to images that training did not use say of a classifier: accuracy with its interval, confusions, suspicious labels."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.core.metrics import average_precisions, wilson
from labelwise.core.scores import Scores
from labelwise.images.dataset import Split

if TYPE_CHECKING:
    from labelwise.train.data import TensorSplit

MOST_CONFUSED = 3  # pairs of labels
MOST_SUSPICIOUS = 10  # images
LEAST_IMAGES = 20  # validation images from which on they say how good a classifier is
LEAST_SUSPICIOUS = 0.5  # probability of another label, at least, of an image whose own label is suspicious


def estimate(
    scores: Scores, split: "Split | TensorSplit", rows: Array, independent: int, right: Array | None = None
) -> dict[str, Any]:
    """Return the accuracy of answers to images of one label each, its 95 % interval, confused labels and suspicious images.

    Args:
        scores: of the images, calibrated.
        split: where they come from.
        rows: which of its images these are ``[n]``.
        independent: how many of them count: copies of one image count once.
        right: whether images like these would be answered right ``[n]``; None: as they are answered.
    """
    names, targets = scores.classifier.labels.names, np.asarray(split.targets)[rows]
    best = scores.best
    accuracy = float((best == targets if right is None else right).mean())
    low, high = wilson(accuracy, independent)
    share, largest = baseline(targets)
    figures: dict[str, Any] = {"accuracy": accuracy, "low": low, "high": high, "images": len(rows)}
    figures["baseline"] = {"label": names[largest], "accuracy": share}
    confused = confused_labels(best, targets, names)
    return {**figures, "confused": confused, "suspicious": _suspicious(scores, targets, split, rows)}


def baseline(targets: Array) -> tuple[float, int]:
    """Return how often the most frequent label ``[n]`` would be right if it were always the answer, and which that is."""
    counts = np.bincount(targets)
    return float(counts.max() / len(targets)), int(counts.argmax())


def confused_labels(best: Array, targets: Array, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return which labels are most often taken for which others."""
    wrong = best != targets
    pairs, counts = np.unique(targets[wrong] * len(names) + best[wrong], return_counts=True)
    order = (-counts).argsort(kind="stable")[:MOST_CONFUSED]
    return [
        {"label": names[pair // len(names)], "taken_for": names[pair % len(names)], "count": count}
        for pair, count in zip(pairs[order].tolist(), counts[order].tolist(), strict=True)
    ]


def _suspicious(scores: Scores, targets: Array, split: "Split | TensorSplit", rows: Array) -> list[dict[str, Any]]:
    """Return the images that look most like another label than their own."""
    names = scores.classifier.labels.names
    chances, others = np.empty(len(targets)), np.empty(len(targets), np.int64)
    start = 0
    for part in scores.parts():
        probabilities, end = part.probabilities.copy(), start + len(part)
        probabilities[np.arange(len(part)), targets[start:end]] = 0.0
        chances[start:end], others[start:end], start = probabilities.max(1), probabilities.argmax(1), end
    return [
        {
            "file": split.files[rows[i]] if split.files else f"row {rows[i]}",
            "label": names[targets[i]],
            "looks_like": names[others[i]],
            "probability": round(float(chances[i]), 4),
        }
        for i in (-chances).argsort(kind="stable")[:MOST_SUSPICIOUS].tolist()
        if chances[i] >= LEAST_SUSPICIOUS
    ]


def estimate_on_validation(classifier: Classifier, scores: Scores, val: "Split | TensorSplit") -> Classifier:
    """Return the classifier with what enough validation images of one label each say of it."""
    if val.multilabel or len(val) < LEAST_IMAGES:
        return classifier
    alone = val.groups.count("") if val.groups else len(val)
    independent = alone + len(set(val.groups) - {""})
    about = estimate(scores.of(classifier), val, np.arange(len(val)), independent)
    summary = {**classifier.origin.summary, "validation": about}
    return replace(classifier, origin=replace(classifier.origin, summary=summary))


def merit(scores: Scores, val: "Split | TensorSplit") -> dict[str, float]:
    """Return how good scores of validation images are: accuracy, or mean average precision of several labels."""
    if val.multilabel:
        return {"validation_precision": float(np.nanmean(average_precisions(scores.log_odds, val.targets)))}
    return {"validation_accuracy": float((scores.best == np.asarray(val.targets)).mean())}
