"""The verb retrieve: which pictures are most like this one?"""

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

import labelwise as lw
from labelwise.cli.inputs import open_model, open_pictures, tell_skipped
from labelwise.cli.options import AsJson, Device, Model, Paths, ScoreBy, Strict
from labelwise.cli.output import plain_table, show
from labelwise.errors import DataError, UsageError
from labelwise.words import FIGURES

if TYPE_CHECKING:
    from labelwise.tasks.gallery import Gallery


def retrieve(  # noqa: PLR0913 - the options of the verb
    model: Model,
    query: Paths,
    gallery: Annotated[Path, Option(help="A folder of pictures to search in, or a file that --index wrote.")],
    index: Annotated[
        Path | None, Option(help="Keep the encoded gallery in this file: used and brought up to date.")
    ] = None,
    approximate: Annotated[
        bool,
        Option(
            "--approximate",
            help='Look through a part of the gallery only: for many queries in a very large one. Needs the extra "search".',
        ),
    ] = False,
    k: Annotated[int, Option("-k", min=1, help="How many pictures to list.")] = 5,
    by: ScoreBy = "similarity",
    json: AsJson = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """Which pictures of a folder are most like this one? A picture is never its own answer."""
    from labelwise.tasks.gallery_index import need_faiss
    from labelwise.tasks.similarity import check_score

    if approximate:
        need_faiss()
    classifier = open_model(model, device)
    check_score(classifier.model, by)
    images, names, skipped = open_pictures(classifier, query, strict=strict)
    searched = _gallery(classifier, gallery, index, strict, approximate)
    answers = lw.retrieve(classifier, images, searched, k + 1, by=by, approximate=approximate)
    queries, tables = [], []
    for name, matches in zip(names, answers, strict=True):
        others = [match for match in matches if match.file != os.path.realpath(name)][:k]
        queries.append({"file": name, "matches": [asdict(match) for match in others]})
        rows = ((_from_here(match.file), f"{match.score:.4f}") for match in others)
        tables.append(plain_table(f"most like {name}", f">{FIGURES['score']}", rows=rows))
    document = {"model": str(model), "gallery": len(searched), "queries": queries, "skipped": skipped}
    show(document, *tables, json=json)


def _from_here(file: str) -> str:
    """Return the path of a file, short where it lies in or below the working folder."""
    here = os.path.join(os.path.realpath(os.curdir), "")
    return file.removeprefix(here)


def _gallery(
    classifier: "lw.Classifier", source: Path, index: Path | None, strict: bool, approximate: bool
) -> "Gallery":
    """Return the gallery of a file that ``--index`` wrote, or of a folder; of that only pictures that the index lacks are encoded."""
    from labelwise.data.read.pictures import list_pictures
    from labelwise.tasks.gallery import gallery_of_files, load_gallery

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
    files = [os.path.realpath(file) for file in list_pictures(source)]
    if not files:
        raise DataError(f"No picture found in {source}.")
    old = load_gallery(index) if index is not None and index.exists() else None
    gallery, skipped = gallery_of_files(classifier, files, known=old, strict=strict)
    tell_skipped([replace(one, file=_from_here(one.file)) for one in skipped])
    if approximate and len(gallery):
        gallery = gallery.with_index()
    if index is not None and gallery is not old:
        index.parent.mkdir(parents=True, exist_ok=True)
        gallery.save(index)
    return gallery
