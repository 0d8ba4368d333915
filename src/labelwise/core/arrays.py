"""Formulas that take numpy's arrays and torch's tensors alike, so that an answer needs no torch: see ``labelwise.core.quick``."""
# mypy: disable-error-code="no-any-return"

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", "Tensor", npt.NDArray[Any])

FLAT = 1e-6  # added under the root, relative to a mean size of 1: the root has no slope at zero
LEAST = 1e-12  # what rows are divided by at least


def unit_rows(rows: Array) -> Array:
    """Return rows ``[n, d]`` of unit length; zeros stay zeros."""
    if isinstance(rows, np.ndarray):
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), LEAST)
    from torch.nn.functional import normalize

    return normalize(rows, dim=1)


def root_features(features: Array) -> Array:
    """Return the roots of features ``[n, d]`` with their signs, each row at unit length; all zeros stay zeros."""
    even = features / (abs(features).mean(1)[:, None]).clip(FLAT)
    return unit_rows(even / ((abs(even) + FLAT) ** 0.5 + FLAT**0.5))  # sign(e) (sqrt(|e| + f) - sqrt(f))


def joined(parts: list[Array]) -> Array:
    """Return rows in parts as one array; a single part as it is."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(parts)


def linear_scores(image_embeddings: Array, label_embeddings: Array) -> Array:
    """Return ``[n, k]`` scores from image embeddings ``[n, d]`` and label embeddings ``[k, d + 1]`` (weights, then bias)."""
    if isinstance(image_embeddings, np.ndarray):
        return image_embeddings @ label_embeddings[:, :-1].T + label_embeddings[:, -1]
    return label_embeddings[:, -1].addmm(image_embeddings, label_embeddings[:, :-1].T)


def mean_distances(rows: Array, scores: Array, centre: Array, root: Array, sharpness: Array) -> Array:
    """Return squared distances ``[n]`` of embeddings ``[n, d]`` to the nearest mean of a label, from scores ``[n, k]`` of these."""
    return (((rows - centre) @ root) ** 2).sum(1) - 2 / sharpness * largest(scores)


def largest(table: Array) -> Array:
    """Return the largest number of each row ``[n]`` of a table ``[n, k]``."""
    return table.max(-1) if isinstance(table, np.ndarray) else table.amax(-1)


def values_at(values: Array, places: Array) -> Array:
    """Return the numbers at some places ``[n]`` of others, in double precision, where the places lie."""
    return double(values)[places] if isinstance(values, np.ndarray) else values.double().to(places.device)[places]


def larger(first: Array, second: Array) -> Array:
    """Return the larger one of each two numbers."""
    return np.maximum(first, second) if isinstance(first, np.ndarray) else first.maximum(second)


def double(numbers: Array) -> Array:
    """Return numbers in double precision."""
    return numbers.astype(np.float64) if isinstance(numbers, np.ndarray) else numbers.double()


def softmax(table: Array) -> Array:
    """Return the shares ``[n, k]`` that log-odds of labels stand for."""
    if not isinstance(table, np.ndarray):
        return table.softmax(-1)
    powers = np.exp(table - table.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(log_odds: Array) -> Array:
    """Return the probabilities that log-odds stand for."""
    if not isinstance(log_odds, np.ndarray):
        return log_odds.sigmoid()
    small = np.exp(-abs(log_odds))  # never overflows, and keeps the digits of small probabilities
    return np.where(log_odds >= 0, 1, small) / (1 + small)


def softplus(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return log(1 + exp(x)) of numbers x."""
    return np.maximum(numbers, 0) + np.log1p(np.exp(-abs(numbers)))


def logit(probabilities: Array, eps: float) -> Array:
    """Return the log-odds of probabilities, which are kept away from 0 and 1."""
    if not isinstance(probabilities, np.ndarray):
        return probabilities.logit(eps)
    kept = probabilities.clip(eps, 1 - eps)
    return np.log(kept / (1 - kept))


def top(table: Array, count: int) -> tuple[Array, Array]:
    """Return the largest numbers of each row ``[n, count]``, largest first, and their places."""
    if not isinstance(table, np.ndarray):
        values, places = table.topk(count)
        return values, places
    places = np.argsort(-table, axis=-1, kind="stable")[:, :count]
    return np.take_along_axis(table, places, -1), places
