"""Retrieval on a test split: every image asks for the others of its label, and is never its own answer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from labelwise.core.model import LabelModel
from labelwise.evaluation.evaluation import Evaluation
from labelwise.support.errors import DataError, UsageError
from labelwise.tasks.similarity import By, all_alike, comparable

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
    evaluation = evaluation.own_labelled()
    first, precision = query_figures(
        evaluation.classifier.model,
        torch.from_numpy(evaluation.scores.embeddings),
        torch.from_numpy(evaluation.split.targets),
        by,
    )
    if not ks or min(ks) < 1:
        raise UsageError(f"Recall needs k of at least 1; given {list(ks)}.")
    return RetrievalResult(
        images=len(evaluation),
        queries=len(first),
        recall={k: float((first < k).double().mean()) for k in ks},
        precision_at_r=float(precision.mean()),
        leaked=evaluation.leaked,
    )


def query_figures(
    model: LabelModel, embeddings: Tensor, targets: Tensor, by: By = "similarity"
) -> tuple[Tensor, Tensor]:
    """Return for each query how many wrong images come before the first right one, and its average precision at R ``[q]``.

    Where a wrong image is as similar as a right one the wrong one comes first, so embeddings that are all alike gain nothing.
    """
    table, by = comparable(model, embeddings.cpu().numpy(), by)
    embeddings = torch.from_numpy(table)
    targets, every = targets.to(embeddings.device), torch.arange(len(embeddings), device=embeddings.device)
    before, precision = [], []
    with torch.no_grad():
        for rows in torch.split(every, max(1, CHUNK // max(1, len(embeddings)))):
            same = targets[rows, None] == targets
            same[rows - rows[0], rows] = False
            ask = same.any(1)
            scores = torch.from_numpy(all_alike(model, table[np.asarray(rows[ask])], table, by))
            scores[every[: len(scores)], rows[ask]] = -torch.inf
            right = _ranked(scores, same[ask])
            before.append(right.to(torch.uint8).argmax(1))
            precision.append(_precision_at_r(right))
    if not sum(map(len, before)):
        raise DataError("No two images share a label, so there is nothing to retrieve.")
    return torch.cat(before).cpu(), torch.cat(precision).cpu()


def _ranked(scores: Tensor, same: Tensor) -> Tensor:
    """Return whether the images in order of their scores ``[n, m]`` are right (bool); of equal scores the wrong ones first."""
    wrong_first = same.to(torch.uint8).sort(dim=1, stable=True)
    order = scores.gather(1, wrong_first.indices).sort(dim=1, descending=True, stable=True).indices
    return wrong_first.values.bool().gather(1, order)


def _precision_at_r(right: Tensor) -> Tensor:
    """Return the average precision at R ``[n]`` of ranked answers ``[n, m]`` (bool), R being how many are right at all."""
    places = torch.arange(1, right.shape[1] + 1, device=right.device)
    counted = right & (places <= right.sum(1, keepdim=True))
    precision = counted.cumsum(1).double() / places
    return (precision * counted).sum(1) / right.sum(1)
