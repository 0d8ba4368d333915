"""Retrieve: which pictures of a gallery are most like this one? Searched exactly, or by an index."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.model import Compares, LabelModel
from labelwise.core.scores import Scores
from labelwise.support.errors import UsageError
from labelwise.tasks.gallery import Gallery
from labelwise.tasks.gallery_index import Lists
from labelwise.tasks.gallery_store import StoredGallery
from labelwise.tasks.similarity import By, Measure, all_alike, check_score, compared, row_alike

CHUNK = 2**24  # similarities held at a time
CANDIDATES = 100
SPARE = 8  # more than k that an index is asked for, as it rounds


@dataclass(frozen=True, kw_only=True)
class Match:
    """A picture of a gallery that is like a query."""

    file: str  # its name
    score: float  # larger is more alike
    label: str | None  # what is known of it; None where nothing is


def retrieve(  # noqa: PLR0913 - each may be chosen
    scores: Scores,
    gallery: Gallery | StoredGallery,
    k: int = 5,
    *,
    by: By = "similarity",
    candidates: int | None = CANDIDATES,
    approximate: bool | None = None,
    where: str | None = None,
) -> list[list[Match]]:
    """Return for each query the k pictures of a gallery, or all of a smaller one, that are most like it, best first.

    Args:
        scores: of the queries, by the classifier that made the gallery.
        gallery: where to search.
        k: how many.
        by: the model's ``similarity``, the ``cosine`` of embeddings, their ``sum``, or the cosine of ``whitened`` ones.
        candidates: how many of the best by cosine are ranked by another score; None ranks the whole gallery by it.
        approximate: look only where the gallery's index says the best are likely to be; scores are exact, a picture may be missed.
            None does so in a gallery on disk.
        where: search only the pictures of a gallery on disk for which this holds, a condition of SQL on label, date, folder, file.
    """
    classifier = scores.classifier
    if isinstance(gallery, StoredGallery):
        return _from_disk(scores, gallery, k, by, max(candidates or 0, 2 * k), approximate is not False, where)
    if where is not None:
        raise UsageError("Only a gallery on disk (photos.lance) can be searched with a filter.")
    gallery.check(classifier)
    lists = gallery.lists if approximate else None
    values, places = search(classifier.model, scores.embeddings, gallery.embeddings, k, candidates, lists, by=by)
    return [
        [
            Match(file=gallery.files[i], score=score, label=gallery.labels[i] if gallery.labels else None)
            for i, score in zip(row, told, strict=True)
        ]
        for row, told in zip(places.tolist(), values.tolist(), strict=True)
    ]


def _from_disk(  # noqa: PLR0913 - what retrieve is given
    scores: Scores, gallery: StoredGallery, k: int, by: By, candidates: int, approximate: bool, where: str | None
) -> list[list[Match]]:
    """Return what ``retrieve`` does, of a gallery on disk: the candidates of each query by the cosine of what is stored, ranked."""
    model = scores.classifier.model
    check_score(model, by)
    gallery.check(scores.classifier, by)
    if k < 1:
        raise UsageError(f"Retrieval needs k of at least 1; given {k}.")
    with torch.no_grad():
        queries, matches = compared(model, scores.embeddings, gallery.by)[0], list[list[Match]]()
        measure: By = "cosine" if gallery.by == "whitened" else by
        for query in queries.float():
            near = gallery.near(query, candidates, where=where, approximate=approximate)
            alike, order = _ranked(
                partial(row_alike, model, by=measure), query[None], near.embeddings, torch.arange(len(near.files))[None]
            )
            rows = zip(order[0, :k].tolist(), alike[0, :k].tolist(), strict=True)
            matches.append([Match(file=near.files[i], score=score, label=near.labels[i]) for i, score in rows])
    return matches


def search(  # noqa: PLR0913 - each may be chosen
    model: LabelModel,
    queries: Tensor,
    gallery: Tensor,
    k: int,
    candidates: int | None = CANDIDATES,
    lists: Lists | None = None,
    *,
    by: By = "similarity",
) -> tuple[Tensor, Tensor]:
    """Return the scores and the rows ``[n, k]`` of the most similar embeddings of a gallery, best first, on the CPU.

    From embeddings ``[n, d]`` and ``[m, d]``, these on any device. Candidates are looked for in ``lists``, in the whole gallery
    where there are none; a query that finds fewer than k is searched exactly. The rest is as in ``retrieve``.
    """
    check_score(model, by)
    if k < 1 or not len(gallery):
        raise UsageError(f"Retrieval needs a gallery and k of at least 1; given {len(gallery)} pictures and k = {k}.")
    if lists is not None and (candidates is None or len(lists) != len(gallery)):
        raise UsageError(
            "An approximate search needs the lists of this gallery and a number of candidates; given lists of "
            f"{len(lists)} embeddings for {len(gallery)}, and candidates={candidates}."
        )
    queries, k = queries.to(model.device).float(), min(k, len(gallery))
    learned = by in ("sum", "whitened") or (by == "similarity" and isinstance(model, Compares))
    first = max(k, candidates) if learned and candidates is not None else k + SPARE if lists is not None else k
    first, results = min(len(gallery), first), []
    with torch.no_grad():
        for part in torch.split(queries, max(1, min(256, CHUNK // first))):
            if lists is None and (not learned or candidates is None):
                results.append(_nearest(partial(all_alike, model, by=by) if learned else None, part, gallery, k))
                continue
            places = _nearest(None, part, gallery, first)[1] if lists is None else lists.near(part, first)
            scores, places = _ranked(partial(row_alike, model, by=by), part, gallery, places)
            short = (places[:, :k] < 0).any(1)
            if short.any():
                scores[short, :k], places[short, :k] = search(
                    model, part[short.to(part.device)], gallery, k, candidates, by=by
                )
            results.append((scores[:, :k], places[:, :k]))
    return torch.cat([scores for scores, _ in results]), torch.cat([places for _, places in results])


def _ranked(alike: Measure, queries: Tensor, gallery: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores and rows ``[n, c]`` of candidates, given as rows ``[n, c]``, best first; rows of -1 are none and last."""
    others = gallery[places.clamp(min=0).flatten().to(gallery.device)].to(queries)
    scores = alike(queries.repeat_interleave(places.shape[1], 0), others).view(places.shape).cpu()
    scores, order = scores.masked_fill(places < 0, -torch.inf).sort(dim=1, descending=True, stable=True)
    return scores, places.gather(1, order)


def _nearest(alike: Measure | None, queries: Tensor, gallery: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest scores ``[n, k]`` and their rows, the cosine where none is given; a part of the gallery at a time."""
    scores, places = queries.new_empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
    places = places.to(queries.device)
    unit, step = normalize(queries, dim=1), max(1, CHUNK // max(len(queries), *gallery.shape[1:]))
    for start in range(0, len(gallery), step):
        part = gallery[start : start + step].to(queries)
        here = _cosines(unit, part) if alike is None else alike(queries, part)
        here, rows = here.topk(min(k, len(part)), dim=1)
        scores, places = torch.cat([scores, here], 1), torch.cat([places, rows + start], 1)
        scores, best = scores.topk(min(k, scores.shape[1]), dim=1)
        places = places.gather(1, best)
    return scores.cpu(), places.cpu()


def _cosines(unit: Tensor, embeddings: Tensor) -> Tensor:
    """Return the cosines ``[n, m]`` of embeddings of unit length ``[n, d]`` with others ``[m, d]``, without a copy of these."""
    return (unit @ embeddings.T).div_(torch.linalg.vector_norm(embeddings, dim=1).clamp_(min=1e-12))
