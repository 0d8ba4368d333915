"""The verb retrieve: which images are most like this one, or fit a sentence best?"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import open_images, open_model, tell_skipped
from labelwise.cli.jobs import JobOut, make_job, run_job
from labelwise.cli.options import Model, SearchBy, refuse_workers, shared_options
from labelwise.cli.output import note, percent, plain_table, show
from labelwise.support.errors import DataError, UsageError
from labelwise.support.text import FIGURES
from labelwise.support.writable import check_writable, writing

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.images.images import Images
    from labelwise.tasks.gallery import Gallery
    from labelwise.tasks.gallery_store import StoredGallery
    from labelwise.tasks.similarity import By


@dataclass(frozen=True, kw_only=True)
class Search:
    """The query and the search."""

    text: Annotated[str | None, Option(help="A sentence to search for instead of images.")] = None
    k: Annotated[int, Option("--top", min=1, help="How many images to list.")] = 5
    by: SearchBy = None
    approximate: Annotated[
        bool | None, Option("--approximate/--no-approximate", help="Approximate search, for very large galleries.")
    ] = None
    where: Annotated[str | None, Option(help="Filter in SQL: label, date, folder, file (.lance only).")] = None


@dataclass(frozen=True, kw_only=True)
class Storing:
    """How the gallery is stored and changed."""

    index: Annotated[Path | None, Option(help="Store the encoded gallery here; NAME.lance for large ones.")] = None
    remove: Annotated[str | None, Option(help="Remove images first, SQL as in --where (.lance only).")] = None
    label: Annotated[str | None, Option(help="The label of images that --index adds (.lance only).")] = None


def retrieve(
    model: Model,
    gallery: Annotated[Path, Option(help="Images to search: a folder, or a stored index.")],
    query: Annotated[list[Path] | None, Argument(help="Images to search for, or folders of images.")] = None,
    *,
    search: Search,
    storing: Storing,
    job_out: JobOut = None,
) -> None:
    """Which images are most like this one?"""
    from labelwise.tasks.similarity import check_score

    if search.text is not None and (query or search.by is not None or search.approximate or job_out is not None):
        raise UsageError(
            "--text searches all of the gallery for a sentence: leave out images, --by, --approximate and --out."
        )
    if job_out is not None:
        _run_job(model, gallery, query or [], search, storing, job_out)
        return
    refuse_workers()
    _check(gallery, search, storing, any_option=bool(query) or search.text is not None)
    classifier = open_model(model)
    if search.by is not None:
        check_score(classifier.head, search.by)
    images, names, skipped = open_images(classifier, query) if query else (None, [], [])
    gallery_searched = _open_gallery(classifier, gallery, search, storing)
    results: list[tuple[dict[str, Any], RenderableType]] = []
    if search.text is not None:
        results.append(_fitting(classifier, gallery_searched, search, search.text))
    if images is not None:
        results += _similar_lines(classifier, images, names, gallery_searched, search)
    document = {"model": str(model), "gallery": len(gallery_searched), "queries": [name for name, _ in results]}
    words = [] if query or search.text else [f"{storing.index or gallery}: {len(gallery_searched)} images"]
    show(document | {"skipped": skipped}, *words, *(table for _, table in results))


def _run_job(
    model: Path, gallery: Path, query: Sequence[Path], search: Search, storing: Storing, job_out: Path
) -> None:
    """Search for very many images."""
    from labelwise.tasks.gallery_store import is_stored

    plain = search == Search(k=search.k, by=search.by) and storing == Storing()
    if not is_stored(gallery) or not query or not plain:
        raise UsageError(
            "--out is for very many images. Use it with images, --gallery photos.lance, --top and --by only."
        )
    job = make_job("retrieve", model, job_out, search.k)
    run_job(replace(job, gallery=str(gallery.absolute()), by=search.by), query)


def _check(gallery: Path, search: Search, storing: Storing, *, any_option: bool) -> None:
    """Raise an error for options that do not fit the gallery; ``any_option`` is whether there is a query."""
    from labelwise.tasks.gallery_index import need_faiss
    from labelwise.tasks.gallery_store import is_stored

    target = storing.index or gallery
    if is_stored(target):
        return
    for option, value in {"--where": search.where, "--remove": storing.remove, "--label": storing.label}.items():
        if value is not None:
            raise UsageError(f"{option} goes with a gallery on disk (photos.lance); given {target}.")
    if not any_option and storing.index is None:
        raise UsageError("Give an image to search for, or --index to store the gallery.")
    if search.approximate:
        need_faiss()


def _open_gallery(
    classifier: "Classifier", gallery: Path, search: Search, storing: Storing
) -> "Gallery | StoredGallery":
    """Apply the requested changes to a gallery and return it."""
    from labelwise.tasks.gallery_store import is_stored

    if not is_stored(storing.index or gallery):
        return _gallery(classifier, gallery, storing.index, bool(search.approximate))
    stored_gallery = _gallery_on_disk(classifier, gallery, storing.index, search.by, storing.label)
    if storing.remove is not None:
        note(f"Removed {stored_gallery.remove(storing.remove)} images.")
    return stored_gallery


def _fitting(
    classifier: "Classifier", gallery: "Gallery | StoredGallery", search: Search, text: str
) -> tuple[dict[str, Any], RenderableType]:
    """Return the images that fit a sentence best, as JSON and as a table."""
    matches = lw.retrieve_by_text(classifier, text, gallery, search.k, where=search.where)
    rows = ((_from_here(match.file), percent(match.score)) for match in matches)
    document = {"text": text, "matches": [asdict(match) for match in matches]}
    return document, plain_table(f"fit best: {text}", ">yes", rows=rows)


def _similar_lines(
    classifier: "Classifier", images: "Images", names: list[str], gallery: "Gallery | StoredGallery", search: Search
) -> Iterator[tuple[dict[str, Any], RenderableType]]:
    """Yield the most similar images of each query, as JSON and as a table."""
    answers = lw.retrieve(
        classifier, images, gallery, search.k + 1, by=search.by, approximate=search.approximate, where=search.where
    )
    for name, matches in zip(names, answers, strict=True):
        matches_of_others = [match for match in matches if match.file != os.path.realpath(name)][: search.k]
        rows = ((_from_here(match.file), f"{match.score:.4f}") for match in matches_of_others)
        document = {"file": name, "matches": [asdict(match) for match in matches_of_others]}
        yield document, plain_table(f"most like {name}", f">{FIGURES['score']}", rows=rows)


def _gallery_on_disk(
    classifier: "Classifier", source: Path, index: Path | None, by: "By | None", label: str | None
) -> "StoredGallery":
    """Open a gallery on disk; with a folder, first update the gallery to the images in it."""
    from labelwise.tasks.gallery_files import add_files
    from labelwise.tasks.gallery_store import create_gallery, open_gallery

    if index is None:
        if label is not None:
            raise UsageError("--label needs images to add: --gallery FOLDER --index NAME.lance.")
        return open_gallery(source)
    if not source.is_dir():
        raise UsageError(f"--index goes with a folder of images; {source} is not a folder.")
    files = _files(source)
    gallery = create_gallery(index, classifier, by)
    removed = sorted(gallery.files_below(source) - set(files))
    gallery.remove_files(removed)
    skipped = add_files(gallery, classifier, files, label=label, strict=shared_options().strict)
    tell_skipped([replace(skip, file=_from_here(skip.file)) for skip in skipped])
    return gallery


def _files(source: Path) -> list[str]:
    """Return the images of a folder."""
    from labelwise.images.sources.paths import list_images

    files = [os.path.realpath(file) for file in list_images(source)]
    if not files:
        raise DataError(f"No image found in {source}.")
    return files


def _from_here(file: str) -> str:
    """Return the path of a file, relative if it is inside the working folder."""
    prefix = os.path.join(os.path.realpath(os.curdir), "")
    return file.removeprefix(prefix)


def _gallery(classifier: "Classifier", source: Path, index: Path | None, approximate: bool) -> "Gallery":
    """Return the gallery of an index or of a folder; encode only images that the index lacks."""
    from labelwise.tasks.gallery import load_gallery
    from labelwise.tasks.gallery_files import gallery_of_files

    if not source.is_dir():
        if index is not None:
            raise UsageError(f"--index goes with a folder of images; {source} is not a folder.")
        gallery = load_gallery(source)
        if approximate and gallery.index is None:
            raise UsageError(
                f"{source} was stored without --approximate. Use it once with the folder: --gallery FOLDER --index {source} "
                "--approximate."
            )
        return gallery
    if index is not None:
        check_writable(index)
    files = _files(source)
    old = load_gallery(index) if index is not None and index.exists() else None
    gallery, skipped = gallery_of_files(classifier, files, previous=old, strict=shared_options().strict)
    tell_skipped([replace(skip, file=_from_here(skip.file)) for skip in skipped])
    if approximate and len(gallery):
        gallery = gallery.with_index()
    if index is not None and gallery is not old:
        with writing(index):
            gallery.save(index)
    return gallery
