"""Formulas on NumPy arrays shared by scores, heads and tasks; ``train.tensors`` has their differentiable versions."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from labelwise.support.rows import unit_rows

Array = NDArray[Any]

FLAT = 1e-6  # added under the root, relative to a mean size of 1: the root has no slope at zero
LENGTH = 4.0  # root mean square of a standardised embedding, so the best learning rate does not depend on its size
FEW = 16  # select the top entries before sorting if the row is this many times longer


def root_features(features: Array) -> Array:
    """Return the signed roots of features ``[n, d]``, rows at unit length; zero rows stay zero."""
    even = features / np.maximum(abs(features).mean(1, keepdims=True), FLAT)
    return unit_rows(even / ((abs(even) + FLAT) ** 0.5 + FLAT**0.5))  # sign(e) (sqrt(|e| + f) - sqrt(f))


def features_of_roots(roots: Array) -> Array:
    """Return features ``[n, d]`` with these signed roots ``[n, d]``: the inverse of ``root_features``, up to scale.

    A root is c (sqrt(|e| + f) - sqrt(f)), and the mean of |e| is 1, which gives 1 / c.
    """
    small, sums = FLAT**0.5, abs(roots).sum(1, keepdims=True, dtype=np.float64)
    scale = np.sqrt(FLAT * sums**2 + roots.shape[1]) - small * sums
    return np.asarray(np.sign(roots) * ((abs(roots) * scale + small) ** 2 - FLAT), np.float32)


def linear_scores(image_embeddings: Array, label_embeddings: Array) -> Array:
    """Return ``[n, k]`` scores from image embeddings ``[n, d]`` and label embeddings ``[k, d + 1]`` (weights, then bias).

    A score depends on its image and its label alone, to the bit. BLAS takes an eighth of the time for thousands of images and labels,
    but rounds by how many there are.
    """
    scores: Array = np.einsum("nd,kd->nk", image_embeddings, label_embeddings[:, :-1])
    scores += label_embeddings[:, -1]
    return scores


def distances(first: Array, second: Array) -> Array:
    """Return Euclidean distances ``[n, m]`` of rows ``[n, d]`` and ``[m, d]``, summed in double precision."""
    x, y = first.astype(np.float64), second.astype(np.float64)
    squares = (x**2).sum(1)[:, None] + (y**2).sum(1) - 2 * (x @ y.T)
    roots: Array = np.sqrt(np.maximum(squares, 0))
    return roots.astype(np.result_type(first.dtype, second.dtype, np.float32))


def softmax(table: Array) -> Array:
    """Return the softmax ``[n, k]`` of log-odds."""
    powers: Array = np.exp(table - table.max(-1, keepdims=True))
    powers /= powers.sum(-1, keepdims=True)
    return powers


def sigmoid(log_odds: Array) -> Array:
    """Return the sigmoid of log-odds, accurate for small probabilities."""
    small = np.exp(-abs(log_odds))  # never overflows
    shares: Array = np.where(log_odds >= 0, 1, small) / (1 + small)
    return shares


def softplus(numbers: Array) -> Array:
    """Return log(1 + exp(x)) of numbers x."""
    return np.asarray(np.maximum(numbers, 0) + np.log1p(np.exp(-abs(numbers))))


def logit(probabilities: Array, eps: float) -> Array:
    """Return the log-odds of probabilities, clipped to ``eps`` from 0 and 1."""
    inside = probabilities.clip(eps, 1 - eps)
    log_odds: Array = np.log(inside / (1 - inside))
    return log_odds


def pieces(rows: Array, most: int) -> Iterator[Array]:
    """Yield rows ``[n, d]`` in pieces; an empty input gives one piece."""
    return (rows[start : start + most] if len(rows) > most else rows for start in range(0, max(1, len(rows)), most))


def top_columns(table: Array, count: int) -> Array:
    """Return the columns of the largest numbers of each row ``[n, count]``, largest first; ties go to the first column."""
    k = table.shape[1]
    if count * FEW > k:
        return np.argsort(-table, axis=1, kind="stable")[:, :count]
    columns = np.sort(np.argpartition(table, k - count, axis=1)[:, k - count :], axis=1)
    values = np.take_along_axis(table, columns, 1)
    columns = np.take_along_axis(columns, np.argsort(-values, axis=1, kind="stable"), 1)
    ambiguous_rows = np.flatnonzero(
        (table >= values.min(1, keepdims=True)).sum(1) > count
    )  # ties at the cut: the selection was arbitrary
    columns[ambiguous_rows] = np.argsort(-table[ambiguous_rows], axis=1, kind="stable")[:, :count]
    return columns
