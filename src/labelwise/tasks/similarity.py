"""Similarity of images, by one of several scores of their embeddings."""

from collections.abc import Callable
from typing import Literal, get_args

from labelwise.core.arrays import Array, sigmoid
from labelwise.core.head import Compares, Head, Whitens, cannot
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.support.rows import unit_rows
from labelwise.support.text import WHITEN

Measure = Callable[[Array, Array], Array]
By = Literal["similarity", "cosine", "sum", "whitened"]


def known_scores(head: Head) -> tuple[By, ...]:
    """Return the scores that differ for this model."""
    scores: tuple[By, ...] = ("similarity", "cosine", "sum") if isinstance(head, Compares) else ("cosine",)
    return (*scores, "whitened") if isinstance(head, Whitens) and head.whitens else scores


def best_score(head: Head) -> By:
    """Return the score to search by where none is asked for: whitened where the model whitens, which was better on every set measured."""
    return "whitened" if isinstance(head, Whitens) and head.whitens else "similarity"


def check_score(head: Head, by: By) -> None:
    """Raise an error where there is no such score, or the model cannot compare by it."""
    known = get_args(By)
    if by not in known:
        raise UsageError(f'The score of a pair is by {", ".join(known[:-1])} or {known[-1]}; given "{by}".')
    if by == "whitened" and not (isinstance(head, Whitens) and head.whitens):
        if not isinstance(head, Whitens):
            raise cannot(head, f"{WHITEN}: it does not know how embeddings vary inside a label")
        raise UnsupportedError(
            "This model cannot whiten: several labels may be true of an image, or no label "
            "had two images. Compare by cosine, or train again."
        )


def comparable(head: Head, embeddings: Array, by: By) -> tuple[Array, By]:
    """Return embeddings ``[n, d]`` and the score to compare them by: whitened ones by their cosine, others unchanged."""
    check_score(head, by)
    if by == "whitened" and isinstance(head, Whitens):
        return head.whitened(embeddings), "cosine"
    return embeddings, by


def all_alike(head: Head, queries: Array, gallery: Array, by: By) -> Array:
    """Return how alike every query and every image of a gallery are ``[n, m]``, from embeddings ``[n, d]`` and ``[m, d]``."""
    learned = head.similarity if isinstance(head, Compares) else cosines
    return _scores(head, (queries, gallery), by, cosines, learned)


def row_alike(head: Head, queries: Array, others: Array, by: By) -> Array:
    """Return the same of each row of embeddings ``[n, d]`` and the same row of others ``[n, d]`` alone: ``[n]``."""
    learned = head.matched if isinstance(head, Compares) else row_cosines
    return _scores(head, (queries, others), by, row_cosines, learned)


def cosines(queries: Array, gallery: Array) -> Array:
    """Return the cosine of every pair of rows ``[n, m]``."""
    alike: Array = unit_rows(queries) @ unit_rows(gallery).T
    return alike


def row_cosines(queries: Array, others: Array) -> Array:
    """Return the cosine of each row and the same row of others ``[n]``."""
    alike: Array = (unit_rows(queries) * unit_rows(others)).sum(1)
    return alike


def _scores(head: Head, pair: tuple[Array, Array], by: By, cosine: Measure, learned: Measure) -> Array:
    """Return the score of embeddings by either function, or by both."""
    second, _ = comparable(head, pair[1], by)
    first, by = comparable(head, pair[0], by)
    if by == "similarity":
        return learned(first, second)
    alike = cosine(first, second)
    # Each part lies from 0 to 1, so that neither outweighs the other: a learned similarity is a logit of any size.
    return alike if by == "cosine" else (alike + 1) / 2 + sigmoid(learned(first, second))
