"""The retrieval protocol: every test image searches for others with its label."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from labelwise.core.head import Head
from labelwise.evaluation.evaluation import Evaluation
from labelwise.support.errors import DataError, UsageError
from labelwise.tasks.similarity import By, comparable, similarity_matrix

CHUNK = 2**23  # similarities held at a time
KS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True)
class RetrievalResult:
    """Figures on test images, each searched for among the others."""

    images: int  # how many are searched
    queries: int  # how many ask: those that share their label with another
    recall: dict[int, float]  # at each k, the share of queries with an image of their label among the first k
    precision_at_r: float  # mean average precision at R, R being the number of others of the query's label
    leaked: float  # share of the images that the classifier was trained or calibrated on; anything but 0 flatters it


def evaluate_retrieval(evaluation: Evaluation, *, by: By = "similarity", ks: Sequence[int] = KS) -> RetrievalResult:
    """Return how well images find others of their label, known or not, among the first ``ks``."""
    if not ks or min(ks) < 1:
        raise UsageError(f"Each k must be at least 1; given {list(ks)}.")
    evaluation = evaluation.own_labelled()
    targets = np.asarray(evaluation.split.targets)
    first, precision = query_figures(evaluation.classifier.head, evaluation.scores.embeddings, targets, by)
    return RetrievalResult(
        images=len(evaluation),
        queries=len(first),
        recall={k: float((first < k).mean()) for k in ks},
        precision_at_r=float(precision.mean()),
        leaked=evaluation.leaked,
    )


def query_figures(
    head: Head, embeddings: Any, targets: ArrayLike, by: By = "similarity"
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return for each query how many wrong images precede the first right one, and its average precision at R ``[q]``.

    Of equally similar images the wrong ones come first, so embeddings that are all alike gain nothing.
    """
    embeddings, by = comparable(head, np.asarray(embeddings), by)
    targets = np.asarray(targets)
    count, before, precision = len(targets), list[NDArray[np.int64]](), list[NDArray[np.float64]]()
    step = max(1, CHUNK // max(1, count))
    for start in range(0, count, step):
        rows = np.arange(start, min(start + step, count))
        same = targets[rows, None] == targets
        same[rows - start, rows] = False
        ask = same.any(1)
        scores = np.array(similarity_matrix(head, embeddings[rows[ask]], embeddings, by))
        scores[np.arange(len(scores)), rows[ask]] = -np.inf
        right = _rank_matches(scores, same[ask])
        before.append(right.argmax(1))
        precision.append(_precision_at_r(right))
    if not sum(map(len, before)):
        raise DataError("No two images share a label, so there is nothing to retrieve.")
    return np.concatenate(before), np.concatenate(precision)


def _rank_matches(scores: NDArray[np.float32], same: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether the images in order of their scores ``[n, m]`` are right; of equal scores the wrong ones come first."""
    return np.take_along_axis(same, np.lexsort((same, -scores), axis=1), 1)


def _precision_at_r(right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the average precision at R ``[n]`` of ranked answers ``[n, m]``, R being how many are right at all."""
    places = np.arange(1, right.shape[1] + 1)
    hits = right & (places <= right.sum(1, keepdims=True))
    precision = hits.cumsum(1) / places
    return np.asarray((precision * hits).sum(1) / right.sum(1))
