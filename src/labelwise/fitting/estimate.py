"""What answers to images that training did not use say of a classifier: accuracy with its interval, confusions, doubtful labels."""

from typing import Any

from torch import Tensor

from labelwise.data.dataset import Split
from labelwise.metrics import confusion_matrix, wilson
from labelwise.scores import Scores

MOST_CONFUSED = 3  # pairs of labels
MOST_SUSPICIOUS = 10  # images
DOUBTFUL = 0.5  # how probable another label is, at least, of an image whose own label is suspicious


def estimate(
    scores: Scores, split: Split, rows: Tensor, independent: int, right: Tensor | None = None
) -> dict[str, Any]:
    """Return the accuracy of answers to images of one label each, its 95 % interval, confused labels and suspicious images.

    Args:
        scores: of the images, calibrated.
        split: where they come from.
        rows: which of its images these are ``[n]``.
        independent: how many of them count: of those that look alike one does.
        right: whether images like these would be answered right ``[n]``, where these answers are not what to expect of others.
    """
    names, targets = scores.classifier.labels.names, split.targets[rows].cpu()
    accuracy = float((scores.best.cpu() == targets if right is None else right).double().mean())
    low, high = wilson(accuracy, independent)
    figures = {"accuracy": accuracy, "low": low, "high": high, "images": len(rows)}
    confused = _confused(scores.best.cpu(), targets, names)
    return {**figures, "confused": confused, "suspicious": _suspicious(scores, targets, split, rows)}


def _confused(best: Tensor, targets: Tensor, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return which labels are most often taken for which others."""
    table = confusion_matrix(best, targets, len(names)).fill_diagonal_(0)
    counts, places = table.flatten().sort(descending=True, stable=True)
    return [
        {"label": names[place // len(names)], "taken_for": names[place % len(names)], "count": int(count)}
        for count, place in zip(counts[:MOST_CONFUSED].tolist(), places.tolist(), strict=False)
        if count
    ]


def _suspicious(scores: Scores, targets: Tensor, split: Split, rows: Tensor) -> list[dict[str, Any]]:
    """Return the images that look most like another label than their own."""
    names = scores.classifier.labels.names
    other = scores.probabilities.cpu().scatter(1, targets[:, None], 0.0).max(1)
    order = other.values.sort(descending=True, stable=True)
    return [
        {
            "file": split.files[int(rows[i])] if split.files else f"row {int(rows[i])}",
            "label": names[int(targets[i])],
            "looks_like": names[int(other.indices[i])],
            "probability": round(chance, 4),
        }
        for chance, i in zip(order.values[:MOST_SUSPICIOUS].tolist(), order.indices.tolist(), strict=False)
        if chance >= DOUBTFUL
    ]
