"""The verb retrieve: which images are most like this one, or fit a sentence best?"""

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import open_images, open_model, tell_skipped
from labelwise.cli.jobs import JobOut, make_job, run_job
from labelwise.cli.options import Model, SearchBy, refuse_workers, shared
from labelwise.cli.output import note, percent, plain_table, show
from labelwise.support.errors import DataError, UsageError
from labelwise.support.text import FIGURES
from labelwise.support.writable import check_writable, writing

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.tasks.gallery import Gallery
    from labelwise.tasks.gallery_store import StoredGallery
    from labelwise.tasks.similarity import By


def retrieve(  # noqa: PLR0913 - the options of the verb
    model: Model,
    gallery: Annotated[Path, Option(help="Images to search: a folder, or a stored index.")],
    query: Annotated[list[Path] | None, Argument(help="Images to search for, or folders of images.")] = None,
    *,
    text: Annotated[str | None, Option(help="A sentence to search for instead of images.")] = None,
    index: Annotated[
        Path | None,
        Option(help="Store the encoded gallery here; NAME.lance for large ones."),
    ] = None,
    approximate: Annotated[
        bool | None,
        Option(
            "--approximate/--no-approximate",
            help="Approximate search, for very large galleries.",
        ),
    ] = None,
    k: Annotated[int, Option("--top", min=1, help="How many images to list.")] = 5,
    by: SearchBy = None,
    where: Annotated[
        str | None,
        Option(help="Filter in SQL: label, date, folder, file (.lance only)."),
    ] = None,
    remove: Annotated[str | None, Option(help="Remove images first, SQL as in --where (.lance only).")] = None,
    label: Annotated[str | None, Option(help="The label of images that --index adds (.lance only).")] = None,
    job_out: JobOut = None,
) -> None:
    """Which images are most like this one?"""
    if text is not None and (query or by is not None or approximate or job_out is not None):
        raise UsageError(
            "--text searches all of the gallery for a sentence: leave out images, --by, --approximate and --out."
        )
    from labelwise.tasks.gallery_index import need_faiss
    from labelwise.tasks.gallery_store import is_stored
    from labelwise.tasks.similarity import check_score

    if job_out is not None:
        if not is_stored(gallery) or not query or any((index, where, remove, label, approximate is not None)):
            raise UsageError(
                "--out is for very many images. Use it with images, --gallery photos.lance, --top and --by only."
            )
        job = make_job("retrieve", model, job_out, k)
        run_job(replace(job, gallery=str(gallery.absolute()), by=by), query)
        return
    refuse_workers()
    kept = index or gallery
    if not is_stored(kept):
        _only_on_disk(kept, {"--where": where, "--remove": remove, "--label": label})
        if not query and text is None and index is None:
            raise UsageError("Give an image to search for, or --index to store the gallery.")
        if approximate:
            need_faiss()
    classifier = open_model(model)
    if by is not None:
        check_score(classifier.head, by)
    images, names, skipped = open_images(classifier, query) if query else (None, [], [])
    searched: Gallery | StoredGallery
    if is_stored(kept):
        searched = _gallery_on_disk(classifier, gallery, index, by, label)
        if remove is not None:
            note(f"Removed {searched.remove(remove)} images.")
    else:
        searched = _gallery(classifier, gallery, index, bool(approximate))
    answers = (
        lw.retrieve(classifier, images, searched, k + 1, by=by, approximate=approximate, where=where)
        if images is not None
        else []
    )
    queries: list[dict[str, Any]] = []
    tables = []
    if text is not None:
        matches = lw.retrieve_by_text(classifier, text, searched, k, where=where)
        queries.append({"text": text, "matches": [asdict(match) for match in matches]})
        best = ((_from_here(match.file), percent(match.score)) for match in matches)
        tables.append(plain_table(f"fit best: {text}", ">yes", rows=best))
    for name, matches in zip(names, answers, strict=True):
        others = [match for match in matches if match.file != os.path.realpath(name)][:k]
        queries.append({"file": name, "matches": [asdict(match) for match in others]})
        rows = ((_from_here(match.file), f"{match.score:.4f}") for match in others)
        tables.append(plain_table(f"most like {name}", f">{FIGURES['score']}", rows=rows))
    document = {"model": str(model), "gallery": len(searched), "queries": queries, "skipped": skipped}
    words = [] if query or text else [f"{kept}: {len(searched)} images"]
    show(document, *words, *tables)


def _only_on_disk(kept: Path, options: dict[str, str | None]) -> None:
    """Raise an error for an option that only a gallery on disk supports."""
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option} goes with a gallery on disk (photos.lance); given {kept}.")


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
    gone = sorted(gallery.below(source) - set(files))
    gallery.remove_files(gone)
    skipped = add_files(gallery, classifier, files, label=label, strict=shared().strict)
    tell_skipped([replace(one, file=_from_here(one.file)) for one in skipped])
    return gallery


def _files(source: Path) -> list[str]:
    """Return the images of a folder."""
    from labelwise.images.sources.paths import list_images

    files = [os.path.realpath(file) for file in list_images(source)]
    if not files:
        raise DataError(f"No image found in {source}.")
    return files


def _from_here(file: str) -> str:
    """Return the path of a file, relative if it is in or below the working folder."""
    here = os.path.join(os.path.realpath(os.curdir), "")
    return file.removeprefix(here)


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
    gallery, skipped = gallery_of_files(classifier, files, known=old, strict=shared().strict)
    tell_skipped([replace(one, file=_from_here(one.file)) for one in skipped])
    if approximate and len(gallery):
        gallery = gallery.with_index()
    if index is not None and gallery is not old:
        with writing(index):
            gallery.save(index)
    return gallery
