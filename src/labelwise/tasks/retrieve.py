"""Retrieve: which pictures of a gallery are most like this one? The gallery is encoded once, then searched exactly or by an index."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.checkpoint import read_tensors, write_tensors
from labelwise.core import Classifier, LabelModel
from labelwise.data.dataset import Skipped
from labelwise.data.pictures import Pictures, as_batch, read_files
from labelwise.errors import DataError, StoreError, UsageError, listing
from labelwise.tasks.gallery_index import Index, Lists, make_index
from labelwise.tasks.likeness import Alike, By, all_alike, check_score, learns_similarity, row_alike

FORMAT = "labelwise gallery 1"
CHUNK = 2**24  # similarities held at a time
READ = 1_024  # files read at a time
CANDIDATES = 100
SPARE = 8  # more than k that an index is asked for, as it rounds
PROBES, DRIFT = (
    4,
    0.02,
)  # how a gallery of another model is told: codes of a few pictures of noise, and how far they may be off


@dataclass(frozen=True, eq=False, kw_only=True)
class Gallery:
    """Codes of pictures to search in. Never changes: ``join`` and ``remove`` return new ones.

    Attributes:
        codes: ``[m, d]``, float32 on the CPU.
        files: m unique names.
        labels: what is known of each picture, m names, or empty.
        probe: codes of fixed pictures of noise ``[p, d]``, which tell whether another model made a gallery.
        index: what an approximate search goes by, see ``with_index``; None is none.
    """

    codes: Tensor
    files: tuple[str, ...]
    labels: tuple[str, ...] = ()
    probe: Tensor
    index: Index | None = None

    def __post_init__(self) -> None:
        """Check that there is one name, and one label or none, for each code."""
        if len(self.files) != len(self.codes) or (self.labels and len(self.labels) != len(self.codes)):
            raise UsageError(
                f"A gallery needs a name for each code, and a label for each or none; given {len(self.codes)} codes, "
                f"{len(self.files)} names and {len(self.labels)} labels."
            )
        if len(set(self.files)) < len(self.files):
            twice = [name for name, count in Counter(self.files).items() if count > 1]
            raise UsageError(f"Names in a gallery must be unique; given more than once: {listing(twice)}.")

    def __len__(self) -> int:
        return len(self.files)

    def join(self, other: "Gallery") -> "Gallery":
        """Return the pictures of both; labels are kept if both have them, and an index of this one takes in the others."""
        _check_probe(self.probe, other.probe)
        codes = torch.cat([self.codes, other.codes])
        both = bool(self.labels) and bool(other.labels)
        return Gallery(
            codes=codes,
            files=self.files + other.files,
            labels=self.labels + other.labels if both else (),
            probe=self.probe,
            index=None if self.index is None else self.index.extended(codes),
        )

    def remove(self, files: Collection[str]) -> "Gallery":
        """Return the gallery without these pictures."""
        gone = set(files)
        missing = sorted(gone - set(self.files))
        if missing:
            raise UsageError(f"Not in this gallery of {len(self)} pictures: {listing(missing)}.")
        rows = [i for i, name in enumerate(self.files) if name not in gone]
        labels = tuple(self.labels[i] for i in rows) if self.labels else ()
        index = None if self.index is None else self.index.selected(self.codes, rows)
        files = tuple(self.files[i] for i in rows)
        return replace(self, codes=self.codes[rows], files=files, labels=labels, index=index)

    def with_index(self) -> "Gallery":
        """Return the gallery with an index for approximate search: its own, or a new one where that is missing or outgrown."""
        if self.index is not None and not self.index.outgrown:
            return self
        return replace(self, index=make_index(self.codes))

    @cached_property
    def lists(self) -> Lists:
        """What an approximate search looks through, made from the index when first asked for."""
        if self.index is None:
            raise UsageError("This gallery has no index to search by. Make one first: gallery.with_index().")
        return Lists(self.index, self.codes)

    def save(self, path: str | Path) -> None:
        """Write the gallery as one safetensors file with JSON in its header, whole or not at all."""
        about = {"format": FORMAT, "files": self.files, "labels": self.labels}
        tensors = {"codes": self.codes, "probe": self.probe}
        if self.index is not None:
            about["index"] = self.index.digest
            tensors |= {"centres": self.index.centres, "regions": self.index.regions}
        write_tensors(Path(path), tensors, about)


def load_gallery(path: str | Path) -> Gallery:
    """Return the gallery that ``Gallery.save`` wrote."""
    tensors, about = read_tensors(Path(path))
    if about.get("format") != FORMAT:
        raise StoreError(f"{path} is no saved gallery (or one of another version). Build it again.")
    return Gallery(
        codes=tensors["codes"],
        files=tuple(about["files"]),
        labels=tuple(about["labels"]),
        probe=tensors["probe"],
        index=_read_index(path, tensors, about),
    )


def _read_index(path: str | Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> Index | None:
    """Return the index of a gallery that was read; None where it was saved without."""
    if "index" not in about:
        return None
    try:
        return Index(centres=tensors["centres"], regions=tensors["regions"], digest=about["index"])
    except (KeyError, UsageError) as error:
        raise StoreError(f"The index in {path} is damaged ({error}). Build the gallery again.") from None


def make_gallery(
    classifier: Classifier, pictures: Pictures, files: Sequence[str], labels: Sequence[str] = ()
) -> Gallery:
    """Return a gallery of pictures under these names.

    Args:
        classifier: any; the gallery can be searched with it, and with those that ``teach`` or ``calibrate`` make of it.
        pictures: m of them.
        files: m unique names.
        labels: m names, or none.
    """
    images = as_batch(pictures, classifier.model.spec.shape)
    return Gallery(
        codes=classifier.encode(images).float().cpu(),
        files=tuple(files),
        labels=tuple(labels),
        probe=probe_codes(classifier),
    )


def gallery_of_files(
    classifier: Classifier, files: Sequence[str | Path], *, strict: bool = False
) -> tuple[Gallery, tuple[Skipped, ...]]:
    """Return a gallery of picture files under their own names, and the files that cannot be read.

    Args:
        classifier: any that takes pictures.
        files: paths; some are read at a time, so that pictures need not fit in memory together.
        strict: make a file that cannot be read an error.
    """
    probe, skipped, names = probe_codes(classifier), list[Skipped](), list[str]()
    parts = [probe[:0]]
    for start in range(0, len(files), READ):
        some = files[start : start + READ]
        try:
            images, kept, bad = read_files(some, classifier.model.spec.shape, strict=strict)
        except DataError:  # none of them can be read
            if strict:
                raise
            skipped += [Skipped(file=str(file), reason="not a picture that can be read") for file in some]
            continue
        parts.append(classifier.encode(images).float().cpu())
        names += [str(some[i]) for i in kept]
        skipped += bad
    return Gallery(codes=torch.cat(parts), files=tuple(names), probe=probe), tuple(skipped)


@dataclass(frozen=True, kw_only=True)
class Match:
    """A picture of a gallery that is like a query.

    Attributes:
        file: its name.
        score: larger is more alike.
        label: what is known of it; None where nothing is.
    """

    file: str
    score: float
    label: str | None


def retrieve(  # noqa: PLR0913 - each may be chosen
    classifier: Classifier,
    query: Pictures,
    gallery: Gallery,
    k: int = 5,
    *,
    by: By = "similarity",
    candidates: int | None = CANDIDATES,
    approximate: bool = False,
) -> list[list[Match]]:
    """Return for each query the k pictures of a gallery that are most like it, best first.

    Args:
        classifier: what made the gallery.
        query: one picture or many.
        gallery: where to search.
        k: how many; all of the gallery if it has fewer.
        by: the score: the model's ``similarity``, the ``cosine`` of codes, their ``sum``, or the cosine of ``whitened`` codes.
        candidates: how many of the best by cosine are ranked by another score; None ranks the whole gallery by it.
        approximate: look only through the part of the gallery where its index says the best are likely to be; scores are
            those of an exact search, but a picture may be missed.
    """
    _check_probe(gallery.probe, probe_codes(classifier))
    codes = classifier.encode(as_batch(query, classifier.model.spec.shape))
    lists = gallery.lists if approximate else None
    scores, places = search(classifier.model, codes, gallery.codes, k, candidates, lists, by=by)
    return [
        [
            Match(file=gallery.files[i], score=score, label=gallery.labels[i] if gallery.labels else None)
            for i, score in zip(row, values, strict=True)
        ]
        for row, values in zip(places.tolist(), scores.tolist(), strict=True)
    ]


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
    """Return the scores and the rows ``[n, k]`` of the most similar codes of a gallery, best first, on the CPU.

    Args:
        model: what made the codes.
        queries: codes ``[n, d]``.
        gallery: codes ``[m, d]``, on any device.
        k: how many; m if there are fewer.
        candidates: see ``retrieve``.
        lists: where to look for candidates; None looks at the whole gallery. A query that finds fewer than k is searched exactly.
        by: the score.
    """
    check_score(model, by)
    if k < 1 or not len(gallery):
        raise UsageError(f"Retrieval needs a gallery and k of at least 1; given {len(gallery)} pictures and k = {k}.")
    if lists is not None and (candidates is None or len(lists) != len(gallery)):
        raise UsageError(
            "An approximate search needs the lists of this gallery and a number of candidates; given lists of "
            f"{len(lists)} codes for {len(gallery)}, and candidates={candidates}."
        )
    queries, k = queries.to(model.device).float(), min(k, len(gallery))
    learned = by in ("sum", "whitened") or (by == "similarity" and learns_similarity(model))
    first = max(k, candidates) if learned and candidates is not None else k + SPARE if lists is not None else k
    first, found = min(len(gallery), first), []
    with torch.no_grad():
        for part in torch.split(queries, max(1, min(256, CHUNK // first))):
            if lists is None and (not learned or candidates is None):
                found.append(_nearest(partial(all_alike, model, by=by) if learned else None, part, gallery, k))
                continue
            places = _nearest(None, part, gallery, first)[1] if lists is None else lists.near(part, first)
            scores, places = _ranked(partial(row_alike, model, by=by), part, gallery, places)
            short = (places[:, :k] < 0).any(1)
            if short.any():
                scores[short, :k], places[short, :k] = search(
                    model, part[short.to(part.device)], gallery, k, candidates, by=by
                )
            found.append((scores[:, :k], places[:, :k]))
    return torch.cat([scores for scores, _ in found]), torch.cat([places for _, places in found])


def _ranked(alike: Alike, queries: Tensor, gallery: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Return scores and rows ``[n, c]`` of candidates, given as rows ``[n, c]``, best first; rows of -1 are none and last."""
    others = gallery[places.clamp(min=0).flatten().to(gallery.device)].to(queries)
    scores = alike(queries.repeat_interleave(places.shape[1], 0), others).view(places.shape).cpu()
    scores, order = scores.masked_fill(places < 0, -torch.inf).sort(dim=1, descending=True, stable=True)
    return scores, places.gather(1, order)


def _nearest(alike: Alike | None, queries: Tensor, gallery: Tensor, k: int) -> tuple[Tensor, Tensor]:
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


def _cosines(unit: Tensor, codes: Tensor) -> Tensor:
    """Return the cosines ``[n, m]`` of codes of unit length ``[n, d]`` with others ``[m, d]``, without a copy of these."""
    return (unit @ codes.T).div_(torch.linalg.vector_norm(codes, dim=1).clamp_(min=1e-12))


def probe_codes(classifier: Classifier) -> Tensor:
    """Return the codes of fixed pictures of noise ``[p, d]``, float32 on the CPU."""
    noise = torch.rand(PROBES, *classifier.model.spec.shape, generator=torch.Generator().manual_seed(0))
    return classifier.encode(noise).float().cpu()


def _check_probe(kept: Tensor, here: Tensor) -> None:
    """Raise an error where codes of the same pictures ``[p, d]`` differ: another model made them."""
    if kept.shape != here.shape or float((kept - here).norm()) > DRIFT * float(kept.norm()):
        raise UsageError(
            "This gallery was made by another model, so its codes mean something else. Build it again with this one."
        )
