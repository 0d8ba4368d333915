"""How well scores rank true labels first, and how well yes/no answers agree with the truth, label by label."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def average_precisions(scores: ArrayLike, truths: ArrayLike) -> NDArray[Any]:
    """Return the average precision of each label ``[k]``, from scores and truths ``[n, k]``; NaN where it is true of no image.

    Images are ranked by their score for the label; the precision at each true image, averaged. Images with equal scores
    are taken together, so their order does not matter.
    """
    columns = zip(np.asarray(truths).T, np.asarray(scores, np.float64).T, strict=True)
    return np.array([average_precision(own, true) for true, own in columns])


def average_precision(scores: NDArray[Any], truths: NDArray[Any]) -> float:
    """Return the precision at each true image, averaged, from scores and truths ``[n]``; NaN without a true image."""
    order = np.argsort(-scores, kind="stable")
    values, true = scores[order], truths[order].astype(bool)
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))  # of images with equal scores
    found = np.cumsum(true)[ends]
    gains = np.diff(found, prepend=0)
    return float((gains * found / (ends + 1)).sum() / found[-1]) if found[-1] else math.nan


def f1_scores(yes: ArrayLike, truths: ArrayLike) -> tuple[float, NDArray[Any]]:
    """Return F1 over all pairs of image and label (micro), and of each label ``[k]``, from answers and truths ``[n, k]`` (bool).

    It is 0 where nothing is true or yes.
    """
    answers, true = np.asarray(yes), np.asarray(truths)
    both, either = (answers & true).sum(0), answers.sum(0) + true.sum(0)
    return float(2 * both.sum() / max(either.sum(), 1)), 2 * both / np.maximum(either, 1)
