"""What answers to images that training did not use say of a classifier: accuracy with its interval, confusions, doubtful labels."""

from typing import Any

import torch
from torch import Tensor

from labelwise.core.metrics import wilson
from labelwise.core.scores import Scores
from labelwise.images.dataset import Split

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
    wrong = best != targets
    pairs, counts = torch.unique(targets[wrong] * len(names) + best[wrong], return_counts=True)
    order = counts.argsort(descending=True, stable=True)[:MOST_CONFUSED]
    return [
        {"label": names[pair // len(names)], "taken_for": names[pair % len(names)], "count": count}
        for pair, count in zip(pairs[order].tolist(), counts[order].tolist(), strict=True)
    ]


def _suspicious(scores: Scores, targets: Tensor, split: Split, rows: Tensor) -> list[dict[str, Any]]:
    """Return the images that look most like another label than their own."""
    names = scores.classifier.labels.names
    others, begun = list[tuple[Tensor, Tensor]](), 0
    for part in scores.parts():
        own = targets[begun : begun + len(part), None]
        others.append(part.probabilities.cpu().scatter(1, own, 0.0).max(1))
        begun += len(part)
    values, indices = (torch.cat(column) for column in zip(*others, strict=True))
    order = values.sort(descending=True, stable=True)
    return [
        {
            "file": split.files[int(rows[i])] if split.files else f"row {int(rows[i])}",
            "label": names[int(targets[i])],
            "looks_like": names[int(indices[i])],
            "probability": round(chance, 4),
        }
        for chance, i in zip(*(column[:MOST_SUSPICIOUS].tolist() for column in order), strict=True)
        if chance >= DOUBTFUL
    ]
