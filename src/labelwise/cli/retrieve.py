"""The verb retrieve: which pictures are most like this one?"""

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import open_model, open_pictures, tell_skipped
from labelwise.cli.jobs import Engine, JobOut, make_job, run_job
from labelwise.cli.options import AsJson, Device, Model, ScoreBy, Strict
from labelwise.cli.output import note, plain_table, show
from labelwise.support.errors import DataError, UsageError
from labelwise.support.words import FIGURES

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.tasks.gallery import Gallery
    from labelwise.tasks.gallery_store import StoredGallery
    from labelwise.tasks.similarity import By


def retrieve(  # noqa: PLR0913 - the options of the verb
    model: Model,
    gallery: Annotated[
        Path, Option(help="A folder of pictures to search in, or what --index wrote: a file, or a .lance folder.")
    ],
    query: Annotated[
        list[Path] | None, Argument(help="Pictures, or folders of pictures; none where the gallery is only built.")
    ] = None,
    *,
    index: Annotated[
        Path | None,
        Option(
            help="Keep the encoded gallery here: used and brought up to date. NAME.lance is one on disk that need not fit in "
            'memory and may hold many folders; needs the extra "gallery".'
        ),
    ] = None,
    approximate: Annotated[
        bool | None,
        Option(
            "--approximate/--no-approximate",
            help='Look through a part of the gallery only: for many queries in a very large one. Needs the extra "search"; '
            "what a .lance folder does unless told otherwise.",
        ),
    ] = None,
    k: Annotated[int, Option("-k", min=1, help="How many pictures to list.")] = 5,
    by: ScoreBy = "similarity",
    where: Annotated[
        str | None,
        Option(help="Search only these pictures of a .lance folder: SQL on label, date, folder, file."),
    ] = None,
    remove: Annotated[
        str | None, Option(help="Remove these pictures from a .lance folder before: SQL as in --where.")
    ] = None,
    label: Annotated[str | None, Option(help="What is known of the pictures that --index NAME.lance adds.")] = None,
    job_out: JobOut = None,
    engine: Engine,
    json: AsJson = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """Which images are most like this one?"""
    from labelwise.tasks.gallery_index import need_faiss
    from labelwise.tasks.gallery_store import is_stored
    from labelwise.tasks.similarity import check_score

    if job_out is not None:
        if not is_stored(gallery) or not query or any((index, where, remove, label, strict, approximate is not None)):
            raise UsageError(
                "--out answers for very many pictures: give them and --gallery photos.lance, and besides only -k, --by and --device."
            )
        job = make_job("retrieve", model, job_out, device, k)
        run_job(replace(job, gallery=str(gallery.absolute()), by=by), query, engine, json=json)
        return
    engine.refuse()
    kept = index or gallery
    if not is_stored(kept):
        _only_on_disk(kept, {"--where": where, "--remove": remove, "--label": label})
        if not query and index is None:
            raise UsageError("Give a picture to search for, or --index to keep the gallery for later.")
        if approximate:
            need_faiss()
    classifier = open_model(model, device)
    check_score(classifier.head, by)
    images, names, skipped = open_pictures(classifier, query, strict=strict) if query else (None, [], [])
    searched: Gallery | StoredGallery
    if is_stored(kept):
        searched = _gallery_on_disk(classifier, gallery, index, by, label, strict)
        if remove is not None:
            note(f"Removed {searched.remove(remove)} pictures.")
    else:
        searched = _gallery(classifier, gallery, index, strict, bool(approximate))
    answers = (
        lw.retrieve(classifier, images, searched, k + 1, by=by, approximate=approximate, where=where)
        if images is not None
        else []
    )
    queries, tables = [], []
    for name, matches in zip(names, answers, strict=True):
        others = [match for match in matches if match.file != os.path.realpath(name)][:k]
        queries.append({"file": name, "matches": [asdict(match) for match in others]})
        rows = ((_from_here(match.file), f"{match.score:.4f}") for match in others)
        tables.append(plain_table(f"most like {name}", f">{FIGURES['score']}", rows=rows))
    document = {"model": str(model), "gallery": len(searched), "queries": queries, "skipped": skipped}
    words = [] if query else [f"{kept}: {len(searched)} pictures"]
    show(document, *words, *tables, json=json)


def _only_on_disk(kept: Path, options: dict[str, str | None]) -> None:
    """Raise an error where an option was given that only a gallery on disk knows."""
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option} goes with a gallery on disk (photos.lance); given {kept}.")


def _gallery_on_disk(
    classifier: "Classifier", source: Path, index: Path | None, by: "By", label: str | None, strict: bool
) -> "StoredGallery":
    """Return a gallery on disk; where a folder is given, with its pictures, and without those that are no longer in it."""
    from labelwise.tasks.gallery_files import add_files
    from labelwise.tasks.gallery_store import create_gallery, open_gallery

    if index is None:
        if label is not None:
            raise UsageError("--label goes with pictures that are added: --gallery FOLDER --index NAME.lance.")
        return open_gallery(source)
    if not source.is_dir():
        raise UsageError(f"--index goes with a folder of pictures; {source} is no folder.")
    files = _files(source)
    gallery = create_gallery(index, classifier, by)
    gone = sorted(gallery.below(source) - set(files))
    gallery.remove_files(gone)
    skipped = add_files(gallery, classifier, files, label=label, strict=strict)
    tell_skipped([replace(one, file=_from_here(one.file)) for one in skipped])
    return gallery


def _files(source: Path) -> list[str]:
    """Return the pictures of a folder."""
    from labelwise.images.decode.listing import list_pictures

    files = [os.path.realpath(file) for file in list_pictures(source)]
    if not files:
        raise DataError(f"No picture found in {source}.")
    return files


def _from_here(file: str) -> str:
    """Return the path of a file, short where it lies in or below the working folder."""
    here = os.path.join(os.path.realpath(os.curdir), "")
    return file.removeprefix(here)


def _gallery(classifier: "Classifier", source: Path, index: Path | None, strict: bool, approximate: bool) -> "Gallery":
    """Return the gallery of a file that ``--index`` wrote, or of a folder; of that only pictures that the index lacks are encoded."""
    from labelwise.tasks.gallery import load_gallery
    from labelwise.tasks.gallery_files import gallery_of_files

    if not source.is_dir():
        if index is not None:
            raise UsageError(f"--index goes with a folder of pictures; {source} is no folder.")
        gallery = load_gallery(source)
        if approximate and gallery.index is None:
            raise UsageError(
                f"{source} was kept without --approximate. Use it once with the folder: --gallery FOLDER --index {source} "
                "--approximate."
            )
        return gallery
    files = _files(source)
    old = load_gallery(index) if index is not None and index.exists() else None
    gallery, skipped = gallery_of_files(classifier, files, known=old, strict=strict)
    tell_skipped([replace(one, file=_from_here(one.file)) for one in skipped])
    if approximate and len(gallery):
        gallery = gallery.with_index()
    if index is not None and gallery is not old:
        index.parent.mkdir(parents=True, exist_ok=True)
        gallery.save(index)
    return gallery
