"""Retrieve: the gallery images most similar to an image, or that fit a sentence best, by exact or indexed search."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from labelwise.core.arrays import sigmoid
from labelwise.core.classifier import Classifier
from labelwise.core.head import Compares, Head
from labelwise.core.scores import Scores
from labelwise.support.errors import UsageError
from labelwise.support.rows import SHORTEST, unit_rows
from labelwise.tasks.ask import DRAFT, check_text
from labelwise.tasks.gallery import Gallery
from labelwise.tasks.gallery_index import Lists
from labelwise.tasks.gallery_store import Candidates, StoredGallery
from labelwise.tasks.similarity import By, best_score, check_score, comparable, row_similarity, similarity_matrix

CHUNK = 2**24  # similarities in memory at a time
CANDIDATES = 100
SPARE = 8  # extra candidates, since the index rounds

Embeddings = NDArray[np.float32]
Alike = Callable[[Embeddings, Embeddings], Embeddings]
Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Match:
    """A gallery image similar to a query."""

    file: str  # its name
    score: float  # larger is more alike
    label: str | None  # its label; None if unknown


def retrieve(  # noqa: PLR0913 - each may be chosen
    scores: Scores,
    gallery: Gallery | StoredGallery,
    k: int = 5,
    *,
    by: By | None = None,
    candidates: int | None = CANDIDATES,
    approximate: bool | None = None,
    where: str | None = None,
) -> list[list[Match]]:
    """Return the k most similar gallery images for each query, best first.

    Args:
        scores: of the queries, by the classifier that made the gallery.
        gallery: where to search.
        k: the number of images; a smaller gallery returns all of them.
        by: None for the best score (``best_score``), or the model's ``similarity``, the ``cosine`` of embeddings, their ``sum``, or the cosine of ``whitened`` ones.
        candidates: the number of best images by cosine to rank by another score; None ranks the whole gallery.
        approximate: search only the index regions nearest to the query, which may miss images.
            None does so for a gallery on disk.
        where: an SQL filter on label, date, folder and file, for a gallery on disk.
    """
    classifier = scores.classifier
    if isinstance(gallery, StoredGallery):
        by = by or ("whitened" if gallery.by == "whitened" else "similarity")
        return _from_disk(scores, gallery, k, by, max(candidates or 0, 2 * k), approximate is not False, where)
    _refuse_filter(where)
    gallery.check(classifier)
    lists = gallery.lists if approximate else None
    queries = np.asarray(scores.embeddings)
    by = by or best_score(classifier.head)
    values, places = search(classifier.head, queries, gallery.embeddings, k, candidates, lists, by=by)
    return [
        [
            Match(file=gallery.files[i], score=score, label=gallery.labels[i] if gallery.labels else None)
            for i, score in zip(row, value, strict=True)
        ]
        for row, value in zip(places.tolist(), values.tolist(), strict=True)
    ]


def retrieve_by_text(
    classifier: Classifier, text: str, gallery: Gallery | StoredGallery, k: int = 5, *, where: str | None = None
) -> list[Match]:
    """Return the k gallery images that fit a sentence best; the score is the probability of a yes.

    Every image of the gallery is compared. ``where`` is as in ``retrieve``.
    """
    text_classifier = check_text(classifier, text).select([DRAFT])
    if k < 1:
        raise UsageError(f"k must be at least 1; given {k}.")
    if isinstance(gallery, StoredGallery):
        gallery.check(classifier, "similarity")
        parts = gallery.scan(where)
    else:
        _refuse_filter(where)
        gallery.check(classifier)
        labels = [label or None for label in gallery.labels] or [None] * len(gallery)
        parts = iter([Candidates(embeddings=gallery.embeddings, files=list(gallery.files), labels=labels)])
    best: list[tuple[float, str, str | None]] = []
    for part in parts:
        odds = text_classifier.yes_odds(text_classifier.calibration.log_odds(text_classifier.score(part.embeddings)))[
            :, 0
        ]
        rows = _largest(odds[None], min(k, len(odds)))[1][0].tolist()
        best = sorted(
            [*best, *((float(odds[i]), part.files[i], part.labels[i]) for i in rows)], key=lambda one: -one[0]
        )
    probabilities = sigmoid(np.array([odds for odds, _, _ in best[:k]], np.float64)).tolist()
    return [Match(file=file, score=p, label=label) for p, (_, file, label) in zip(probabilities, best, strict=False)]


def _refuse_filter(where: str | None) -> None:
    if where is not None:
        raise UsageError("Only a gallery on disk (photos.lance) can be searched with a filter.")


def _from_disk(  # noqa: PLR0913 - what retrieve is given
    scores: Scores, gallery: StoredGallery, k: int, by: By, candidates: int, approximate: bool, where: str | None
) -> list[list[Match]]:
    """Search a gallery on disk: candidates by cosine, then ranked by the score."""
    head = scores.classifier.head
    check_score(head, by)
    gallery.check(scores.classifier, by)
    if k < 1:
        raise UsageError(f"k must be at least 1; given {k}.")
    queries, matches = comparable(head, scores.embeddings, gallery.by)[0], list[list[Match]]()
    measure = partial(row_similarity, head, by="cosine" if gallery.by == "whitened" else by)
    for query in queries.astype(np.float32):
        near = gallery.near(query, candidates, where=where, approximate=approximate)
        similarity, order = _rank(measure, query[None], near.embeddings, np.arange(len(near.files))[None])
        rows = zip(order[0, :k].tolist(), similarity[0, :k].tolist(), strict=True)
        matches.append([Match(file=near.files[i], score=score, label=near.labels[i]) for i, score in rows])
    return matches


def search(  # noqa: PLR0913 - each may be chosen
    head: Head,
    queries: Embeddings,
    gallery: Embeddings,
    k: int,
    candidates: int | None = CANDIDATES,
    lists: Lists | None = None,
    *,
    by: By = "similarity",
) -> tuple[Embeddings, Rows]:
    """Return the scores and rows ``[n, k]`` of the most similar embeddings of a gallery, best first.

    From embeddings ``[n, d]`` and ``[m, d]``. Candidates come from ``lists``, or from the whole gallery if there are none; a
    query that finds fewer than k is searched exactly. The rest is as in ``retrieve``.
    """
    check_score(head, by)
    if k < 1 or not len(gallery):
        raise UsageError(f"Retrieval needs a gallery and k of at least 1; given {len(gallery)} images and k = {k}.")
    if lists is not None and (candidates is None or len(lists) != len(gallery)):
        raise UsageError(
            "An approximate search needs the lists of this gallery and a number of candidates; given lists of "
            f"{len(lists)} embeddings for {len(gallery)}, and candidates={candidates}."
        )
    queries, k = queries.astype(np.float32), min(k, len(gallery))
    is_learned = by in ("sum", "whitened") or (by == "similarity" and isinstance(head, Compares))
    first = max(k, candidates) if is_learned and candidates is not None else k + SPARE if lists is not None else k
    first = min(len(gallery), first)
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    measure_all = partial(similarity_matrix, head, by=by) if is_learned else None
    step = max(1, min(256, CHUNK // first))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        if lists is None and (not is_learned or candidates is None):
            scores[part], rows[part] = _nearest(measure_all, queries[part], gallery, k)
            continue
        places = _nearest(None, queries[part], gallery, first)[1] if lists is None else lists.near(queries[part], first)
        values, places = _rank(partial(row_similarity, head, by=by), queries[part], gallery, places)
        short = (places[:, :k] < 0).any(1)
        if short.any():
            values[short, :k], places[short, :k] = search(head, queries[part][short], gallery, k, candidates, by=by)
        scores[part], rows[part] = values[:, :k], places[:, :k]
    return scores, rows


def _rank(measure: Alike, queries: Embeddings, gallery: Embeddings, places: Rows) -> tuple[Embeddings, Rows]:
    """Return scores and rows ``[n, c]`` of candidate rows ``[n, c]``, best first; -1 marks no candidate and sorts last."""
    neighbours = gallery[places.clip(0).ravel()]
    scores = measure(queries.repeat(places.shape[1], 0), neighbours).reshape(places.shape)
    scores = np.where(places < 0, -np.inf, scores)
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(scores, order, 1), np.take_along_axis(places, order, 1)


def _nearest(measure: Alike | None, queries: Embeddings, gallery: Embeddings, k: int) -> tuple[Embeddings, Rows]:
    """Return the k largest scores ``[n, k]`` and their rows, by cosine without a measure; reads the gallery in blocks."""
    scores, places = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64)
    unit, step = unit_rows(queries), max(1, CHUNK // max(len(queries), *gallery.shape[1:]))
    for start in range(0, len(gallery), step):
        part = gallery[start : start + step]
        similarity = _cosines(unit, part) if measure is None else measure(queries, part)
        similarity, rows = _largest(similarity, min(k, len(part)))
        scores, places = np.concatenate([scores, similarity], 1), np.concatenate([places, rows + start], 1)
        scores, best = _largest(scores, min(k, scores.shape[1]))
        places = np.take_along_axis(places, best, 1)
    return scores, places


def _largest(scores: Embeddings, k: int) -> tuple[Embeddings, Rows]:
    """Return the k largest scores of each row ``[n, k]``, largest first, and their columns; ties go to the first."""
    if k < scores.shape[1]:
        some = np.sort(np.argpartition(-scores, k - 1, axis=1)[:, :k], axis=1)
        values = np.take_along_axis(scores, some, 1)
    else:
        some, values = np.broadcast_to(np.arange(k), scores.shape), scores
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(values, order, 1), np.take_along_axis(some, order, 1)


def _cosines(unit: Embeddings, embeddings: Embeddings) -> Embeddings:
    """Return the cosines ``[n, m]`` of unit vectors ``[n, d]`` and ``[m, d]``, without copying the latter."""
    cosines: Embeddings = unit @ embeddings.T
    cosines /= np.maximum(np.linalg.norm(embeddings, axis=1), SHORTEST)
    return cosines
