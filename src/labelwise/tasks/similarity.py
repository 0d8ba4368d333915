"""Similarity of images by one of several scores of their embeddings."""

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
    """Return the available scores of this model."""
    scores: tuple[By, ...] = ("similarity", "cosine", "sum") if isinstance(head, Compares) else ("cosine",)
    return (*scores, "whitened") if isinstance(head, Whitens) and head.whitens else scores


def best_score(head: Head) -> By:
    """Return the default score for search: whitened if the model whitens, which was better on every set measured."""
    return "whitened" if isinstance(head, Whitens) and head.whitens else "similarity"


def check_score(head: Head, by: By) -> None:
    """Raise an error if the score does not exist or the model does not support it."""
    allowed_values = get_args(By)
    if by not in allowed_values:
        raise UsageError(
            f'The score of a pair is by {", ".join(allowed_values[:-1])} or {allowed_values[-1]}; given "{by}".'
        )
    if by == "whitened" and not (isinstance(head, Whitens) and head.whitens):
        if not isinstance(head, Whitens):
            raise cannot(head, f"{WHITEN}: it does not know how embeddings vary inside a label")
        raise UnsupportedError(
            "This model cannot whiten: several labels may be true of an image, or no label "
            "had two images. Compare by cosine, or train again."
        )


def comparable(head: Head, embeddings: Array, by: By) -> tuple[Array, By]:
    """Return embeddings ``[n, d]`` and the score for them: whitened embeddings with their cosine, or unchanged ones."""
    check_score(head, by)
    if by == "whitened" and isinstance(head, Whitens):
        return head.whitened(embeddings), "cosine"
    return embeddings, by


def similarity_matrix(head: Head, queries: Array, gallery: Array, by: By) -> Array:
    """Return the similarity of each query and each gallery image ``[n, m]``, from embeddings ``[n, d]`` and ``[m, d]``."""
    measure = head.similarity if isinstance(head, Compares) else cosines
    return _scores(head, (queries, gallery), by, cosines, measure)


def row_similarity(head: Head, queries: Array, others: Array, by: By) -> Array:
    """Return the similarity ``[n]`` of row i of both embeddings ``[n, d]``, for each i."""
    measure = head.matched if isinstance(head, Compares) else row_cosines
    return _scores(head, (queries, others), by, row_cosines, measure)


def cosines(queries: Array, gallery: Array) -> Array:
    """Return the cosine of every pair of rows ``[n, m]``."""
    products: Array = unit_rows(queries) @ unit_rows(gallery).T
    return products


def row_cosines(queries: Array, others: Array) -> Array:
    """Return the cosine ``[n]`` of row i of both, for each i."""
    products: Array = (unit_rows(queries) * unit_rows(others)).sum(1)
    return products


def _scores(head: Head, pair: tuple[Array, Array], by: By, cosine: Measure, learned: Measure) -> Array:
    """Return the score of embeddings by either function, or the sum of both."""
    second, _ = comparable(head, pair[1], by)
    first, by = comparable(head, pair[0], by)
    if by == "similarity":
        return learned(first, second)
    similarity = cosine(first, second)
    # Each part is in [0, 1], so neither dominates: a learned similarity is a logit of any size.
    return similarity if by == "cosine" else (similarity + 1) / 2 + sigmoid(learned(first, second))
