"""How alike codes of images are, by one of several scores."""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from labelwise.core import LabelModel
from labelwise.errors import UsageError

Alike = Callable[[Tensor, Tensor], Tensor]
By = Literal["similarity", "cosine", "sum", "whitened"]


def learns_similarity(model: LabelModel) -> bool:
    """Return whether a model compares images by more than the cosine of their codes."""
    return type(model).similarity is not LabelModel.similarity


def known_scores(model: LabelModel) -> tuple[By, ...]:
    """Return the scores that differ for this model."""
    scores: tuple[By, ...] = ("similarity", "cosine", "sum") if learns_similarity(model) else ("cosine",)
    return (*scores, "whitened") if model.whitens else scores


def check_score(model: LabelModel, by: By) -> None:
    """Raise an error where there is no such score, or the model cannot compare by it."""
    known = get_args(By)
    if by not in known:
        raise UsageError(f'The score of a pair is by {", ".join(known[:-1])} or {known[-1]}; given "{by}".')
    if by == "whitened" and not model.whitens:
        model.whitened(torch.empty(0, 0))  # says why not


def compared(model: LabelModel, codes: Tensor, by: By) -> tuple[Tensor, By]:
    """Return codes and the score to compare them by: whitened codes by their cosine, others as they are.

    Args:
        model: what made the codes.
        codes: ``[n, d]``.
        by: the score.
    """
    check_score(model, by)
    return (model.whitened(codes), "cosine") if by == "whitened" else (codes, by)


def all_alike(model: LabelModel, queries: Tensor, gallery: Tensor, by: By) -> Tensor:
    """Return how alike every query and every image of a gallery are ``[n, m]``, from codes ``[n, d]`` and ``[m, d]``."""
    cosine = partial(LabelModel.similarity, model)
    return _scored(model, (queries, gallery), by, cosine, model.similarity)


def row_alike(model: LabelModel, queries: Tensor, others: Tensor, by: By) -> Tensor:
    """Return the same of each row of codes ``[n, d]`` and the same row of others ``[n, d]`` alone: ``[n]``."""
    return _scored(model, (queries, others), by, partial(LabelModel.matched, model), model.matched)


def _scored(model: LabelModel, codes: tuple[Tensor, Tensor], by: By, cosine: Alike, learned: Alike) -> Tensor:
    """Return the score of codes by either function, or by both."""
    second, _ = compared(model, codes[1], by)
    first, by = compared(model, codes[0], by)
    if by == "similarity":
        return learned(first, second)
    return cosine(first, second) if by == "cosine" else cosine(first, second) + learned(first, second)
