"""Verbs that compare pictures with each other: verify, retrieve."""

import csv
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from labelwise.cli.output import note, out, percent, plain_table, print_json
from labelwise.cli.picture_verbs import AsJson, Device, Model, ScoreBy, Strict, open_model, read
from labelwise.errors import DataError, UsageError

if TYPE_CHECKING:
    from labelwise.classifier import Classifier
    from labelwise.tasks.gallery import Gallery

Pair = list[tuple[Path, Path]]


def verify(
    model: Model,
    first: Annotated[Path | None, typer.Argument(help="A picture.", show_default=False)] = None,
    second: Annotated[Path | None, typer.Argument(help="Another picture.", show_default=False)] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(help="A .csv table of two columns, a pair of pictures in each row.", show_default=False),
    ] = None,
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Do two pictures show the same label, be it a known one or not? With a probability, for pairs half of which are the same."""
    from labelwise.tasks.verify import verify as run

    chosen = _pairs(first, second, pairs)
    classifier = open_model(model, device)
    files = list(dict.fromkeys(file for pair in chosen for file in pair))
    scores, _, _ = read(classifier, files, strict=True)
    place = {file: i for i, file in enumerate(files)}
    left, right = (scores[[place[pair[side]] for pair in chosen]] for side in (0, 1))
    found = run(left, right)
    if json:
        rows = [{"first": str(a), "second": str(b), **asdict(one)} for (a, b), one in zip(chosen, found, strict=True)]
        rule = classifier.verifier
        print_json({"model": str(model), "pairs": rows, "rule": None if rule is None else asdict(rule)})
        return
    table = plain_table("picture", "and", "", ">score", ">probability of same")
    for (a, b), one in zip(chosen, found, strict=True):
        answer = Text("same", style="green") if one.same else Text("different", style="yellow")
        table.add_row(Text(str(a)), Text(str(b)), answer, f"{one.score:.4f}", percent(one.probability))
    out().print(table)


def retrieve(  # noqa: PLR0913 - the options of the verb
    model: Model,
    query: Annotated[list[Path], typer.Argument(help="Pictures, or folders of pictures.", show_default=False)],
    gallery: Annotated[
        Path, typer.Option(help="A folder of pictures to search in, or a file that --index wrote.", show_default=False)
    ],
    index: Annotated[
        Path | None,
        typer.Option(help="Keep the encoded gallery in this file: used and brought up to date.", show_default=False),
    ] = None,
    approximate: Annotated[
        bool,
        typer.Option(
            "--approximate",
            help='Look through a part of the gallery only: for many queries in a very large one. Needs the extra "search".',
        ),
    ] = False,
    k: Annotated[int, typer.Option("-k", min=1, help="How many pictures to list.")] = 5,
    by: ScoreBy = "similarity",
    json: AsJson = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """Which pictures of a folder are most like this one? A picture is never its own answer."""
    from labelwise.tasks.gallery_index import need_faiss
    from labelwise.tasks.retrieve import retrieve as run
    from labelwise.tasks.similarity import check_score

    if approximate:
        need_faiss()
    classifier = open_model(model, device)
    check_score(classifier.model, by)
    scores, names, skipped = read(classifier, query, strict)
    searched = _gallery(classifier, gallery, index, strict, approximate)
    found = run(scores, searched, k + 1, by=by, approximate=approximate)
    here = [str(Path(name).resolve()) for name in names]
    kept = [[m for m in matches if m.file != own][:k] for own, matches in zip(here, found, strict=True)]
    if json:
        rows = [{"file": n, "matches": [asdict(m) for m in matches]} for n, matches in zip(names, kept, strict=True)]
        print_json({"model": str(model), "gallery": len(searched), "queries": rows, "skipped": skipped})
        return
    for name, matches in zip(names, kept, strict=True):
        table = plain_table(f"most like {name}", ">score")
        for match in matches:
            table.add_row(Text(match.file), f"{match.score:.4f}")
        out().print(table)


def _pairs(first: Path | None, second: Path | None, table: Path | None) -> Pair:
    """Return the pairs that were given, as two pictures or as a table whose paths start from where it lies."""
    if table is None:
        if first is None or second is None:
            raise UsageError("Give two pictures, or a table of pairs: --pairs pairs.csv.")
        return [(first, second)]
    if first is not None:
        raise UsageError("Give two pictures or --pairs, not both.")
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Cannot read the table of pairs {table}: {error}.") from None
    for number, row in enumerate(rows, 1):
        if len(row) < 2 or not (row[0] and row[1]):
            raise DataError(f"Row {number} of {table} must name two pictures; given {row}.")
    paths = [(table.parent / row[0], table.parent / row[1]) for row in rows]
    if paths and not (
        paths[0][0].exists() or paths[0][1].exists()
    ):  # the names of the columns, if other rows are there
        paths = paths[1:]
    if not paths:
        raise DataError(f"{table} holds no pair of pictures; write the paths of two pictures in each row.")
    return paths


def _gallery(classifier: "Classifier", source: Path, index: Path | None, strict: bool, approximate: bool) -> "Gallery":
    """Return the gallery of a folder or a file; where a file is kept, only pictures that it lacks are encoded."""
    from labelwise.data.read.pictures import list_pictures
    from labelwise.tasks.gallery import gallery_of_files, load_gallery

    if not source.is_dir():
        if index is not None:
            raise UsageError(f"--index goes with a folder of pictures; {source} is no folder.")
        ready = load_gallery(source)
        if approximate and ready.index is None:
            raise UsageError(
                f"{source} was kept without --approximate. Use it once with the folder: --gallery FOLDER --index {source} "
                "--approximate."
            )
        return ready
    files = [str(file.resolve()) for file in list_pictures(source)]
    if not files:
        raise DataError(f"No picture found in {source}.")
    kept = load_gallery(index) if index is not None and index.exists() else None
    known = kept
    old = set() if known is None else set(known.files)
    new = [file for file in files if file not in old]
    gone = old - set(files)
    if known is not None and gone:
        known = known.remove(gone)
    if known is None or new:
        made, skipped = gallery_of_files(classifier, new, strict=strict)
        for one in skipped[:10]:
            note(f"Skipped {one.file}: {one.reason}")
        known = made if known is None else known.join(made)
    if approximate and len(known):
        known = known.with_index()
    if index is not None and known is not kept:
        index.parent.mkdir(parents=True, exist_ok=True)
        known.save(index)
    return known
