"""How alike images are, by one of several scores of their embeddings."""

from collections.abc import Callable
from typing import Literal, get_args

from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from labelwise.core.capabilities import WHITEN
from labelwise.core.model import Compares, LabelModel, Whitens, cannot
from labelwise.support.errors import UnsupportedError, UsageError

Measure = Callable[[Tensor, Tensor], Tensor]
By = Literal["similarity", "cosine", "sum", "whitened"]


def known_scores(model: LabelModel) -> tuple[By, ...]:
    """Return the scores that differ for this model."""
    scores: tuple[By, ...] = ("similarity", "cosine", "sum") if isinstance(model, Compares) else ("cosine",)
    return (*scores, "whitened") if isinstance(model, Whitens) and model.whitens else scores


def check_score(model: LabelModel, by: By) -> None:
    """Raise an error where there is no such score, or the model cannot compare by it."""
    known = get_args(By)
    if by not in known:
        raise UsageError(f'The score of a pair is by {", ".join(known[:-1])} or {known[-1]}; given "{by}".')
    if by == "whitened" and not (isinstance(model, Whitens) and model.whitens):
        if not isinstance(model, Whitens):
            raise cannot(model, f"{WHITEN}: it does not know how embeddings vary inside a label")
        raise UnsupportedError(
            "This model does not know how embeddings vary inside a label: it was saved by an earlier version, several labels may "
            "be true of an image, or no label had two images. Compare by cosine, or train again."
        )


def compared(model: LabelModel, embeddings: Tensor, by: By) -> tuple[Tensor, By]:
    """Return embeddings ``[n, d]`` and the score to compare them by: whitened ones by their cosine, others as they are."""
    check_score(model, by)
    if by == "whitened" and isinstance(model, Whitens):
        return model.whitened(embeddings), "cosine"
    return embeddings, by


def all_alike(model: LabelModel, queries: Tensor, gallery: Tensor, by: By) -> Tensor:
    """Return how alike every query and every image of a gallery are ``[n, m]``, from embeddings ``[n, d]`` and ``[m, d]``."""
    return _scored(model, (queries, gallery), by, cosines, model.similarity if isinstance(model, Compares) else cosines)


def row_alike(model: LabelModel, queries: Tensor, others: Tensor, by: By) -> Tensor:
    """Return the same of each row of embeddings ``[n, d]`` and the same row of others ``[n, d]`` alone: ``[n]``."""
    learned = model.matched if isinstance(model, Compares) else cosine_similarity
    return _scored(model, (queries, others), by, cosine_similarity, learned)


def cosines(queries: Tensor, gallery: Tensor) -> Tensor:
    """Return the cosine of every pair of rows ``[n, m]``."""
    return normalize(queries.float(), dim=1) @ normalize(gallery.float(), dim=1).T


def _scored(model: LabelModel, pair: tuple[Tensor, Tensor], by: By, cosine: Measure, learned: Measure) -> Tensor:
    """Return the score of embeddings by either function, or by both."""
    second, _ = compared(model, pair[1], by)
    first, by = compared(model, pair[0], by)
    if by == "similarity":
        return learned(first, second)
    return cosine(first, second) if by == "cosine" else cosine(first, second) + learned(first, second)
