"""The verb classify: what is it?"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console, RenderableType
from rich.progress import Progress
from typer import Option

from labelwise.cli.answers import Answer, Sorter, answer, folder_names, read_only, table_of
from labelwise.cli.inputs import list_files, open_model, read_pieces
from labelwise.cli.jobs import Engine, JobOut, Workers, make_job, refuse_alone, run_job
from labelwise.cli.options import AsJson, Device, Model, Paths, Strict
from labelwise.cli.output import bar, note, percent, plain_table, show, styled
from labelwise.errors import UsageError
from labelwise.writable import check_writable

if TYPE_CHECKING:
    from labelwise.classifier import Classifier
    from labelwise.quick import QuickClassifier
    from labelwise.report.answer_sheet import Sheet

SHOWN = 1_000  # rows of the table on the screen

CsvFile = Annotated[Path | None, Option("--csv", help="A table to write: file, answer, probability.")]
SortInto = Annotated[
    Path | None,
    Option(help="A folder to copy the pictures into, a folder per answer. Nothing is moved or overwritten."),
]
Link = Annotated[bool, Option("--link", help="With --sort-into: links in place of copies.")]
Only = Annotated[
    str | None,
    Option(help="List, copy and show only pictures with these answers: labels, unknown, unsure; commas between."),
]
Sure = Annotated[
    float, Option(min=0, max=1, help="For --csv, --sort-into, --only and --sheet: an answer less probable is unsure.")
]
SheetFile = Annotated[Path | None, Option("--sheet", help="A page (.html) of small pictures, grouped by answer.")]


def classify(  # noqa: PLR0913 - the options of the verb
    model: Model,
    paths: Paths,
    top: Annotated[int, Option(min=1, help="How many labels to list.")] = 3,
    csv_file: CsvFile = None,
    sort_into: SortInto = None,
    link: Link = False,
    only: Only = None,
    sure: Sure = 0.5,
    sheet_file: SheetFile = None,
    job_out: JobOut = None,
    workers: Workers = None,
    engine: Engine = None,
    json: AsJson = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """What is it? Names and probabilities, and "unknown" where no label fits; each label answered yes where several may be."""
    from labelwise.files import write_atomically
    from labelwise.quick import MOST
    from labelwise.tasks.classify import classify as predictions

    if job_out is not None:
        if any((csv_file, sort_into, link, only, sheet_file, strict)):
            raise UsageError(
                "--out writes all answers as Parquet; leave out --csv, --sort-into, --link, --only, --sheet, --strict."
            )
        run_job(make_job("classify", model, job_out, device, top), paths, workers, engine, json=json)
        return
    refuse_alone(workers, engine)
    if link and sort_into is None:
        raise UsageError("--link goes with --sort-into FOLDER.")
    if sheet_file is not None and sheet_file.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"A sheet is written as .html; given {sheet_file}.")
    for target in filter(None, (csv_file, sheet_file, sort_into and sort_into / "unsure")):
        check_writable(target)
    quick = sheet_file is None and device in ("auto", "cpu")
    classifier = _open(model, device) if quick else open_model(model, device)
    wanted = read_only(only, classifier.labels.names)
    sorter = sort_into and Sorter(sort_into, folder_names(classifier.labels.names), link, Counter())
    files = list_files(paths)
    if sort_into is not None:
        if not all(isinstance(file, Path) for file in files):
            raise UsageError("--sort-into copies picture files, and these lie in shards. Use --csv FILE.")
        own = sort_into.resolve()
        files = [file for file in files if isinstance(file, Path) and not file.resolve().is_relative_to(own)]
    if quick and len(files) > MOST:
        classifier = open_model(model, device)
    sheet, skipped = _sheet(sheet_file), []
    answers: list[Answer] = []
    count = len(classifier.labels) if classifier.calibration.multilabel and not json else top
    for images, names, unread in _shown(read_pieces(classifier, files, strict=strict), len(files)):
        skipped += unread
        some = predictions(classifier.scores(images), top=count) if names else []
        for row, (name, one) in enumerate(zip(names, some, strict=True)):
            said = answer(name, one, sure)
            if wanted is None or said.word in wanted:
                answers.append(said)
                if sorter:
                    sorter.place(said)
                if sheet:
                    sheet.add(
                        said.word, name, one, images[row : row + 1][0]
                    )  # a row: pixels of others are not asked for
    if csv_file is not None:
        write_atomically(csv_file, table_of(answers))
    if sheet and sheet_file is not None:
        write_atomically(sheet_file, sheet.page(str(model)).encode("utf-8", "replace"))
    written = [str(place) for place in (csv_file, sheet_file, sort_into) if place is not None]
    rows: list[dict[str, Any]] = [{**asdict(one.prediction), "file": one.file} for one in answers]
    for each in rows:
        each["top"] = [{"label": label, "probability": value} for label, value in each["top"]]
    document: dict[str, Any] = {"model": str(model), "predictions": rows, "skipped": skipped}
    about = {"written": written, "answers": dict(Counter(one.word for one in answers))}
    several = classifier.calibration.multilabel
    lines = _summary(answers, written) if written else [_table(answers[:SHOWN], several)]
    if not written and len(answers) > SHOWN:
        note(f"The first {SHOWN} of {len(answers)} pictures are shown; --csv FILE writes all.")
    show(document | (about if written else {}), *lines, json=json)


def _open(model: Path, device: str) -> "Classifier | QuickClassifier":
    """Return the classifier in a folder: one that does without torch, or the ordinary one, after which there is the other."""
    from labelwise.quick import keep_quick, open_quick, read_about

    about, classifier = read_about(model), open_quick(model)
    if classifier is not None:
        return classifier
    ordinary = open_model(model, device)
    if about == read_about(model):  # nobody replaced it meanwhile
        keep_quick(ordinary, about)
    return ordinary


def _table(answers: list[Answer], multilabel: bool) -> RenderableType:
    """Return each picture with its best labels; where several may be true each that is, or that none is and the nearest."""
    table = plain_table("picture", "label", "", ">probability")
    for each in answers:
        one = each.prediction
        count = max(len(one.labels), 1) if multilabel else len(one.top)
        for rank, (label, value) in enumerate(one.top[:count]):
            style = "bold" if multilabel or not rank else ""
            unknown = () if rank or one.known else ((one.label, f"{style} yellow"), ("; most like ", style))
            table.add_row("" if rank else each.file, styled(*unknown, (label, style)), bar(value), percent(value))
    return table


def _summary(answers: list[Answer], written: list[str]) -> Iterator[RenderableType]:
    """Yield how many pictures have each answer, and what was written."""
    rows = ((word, str(count)) for word, count in Counter(one.word for one in answers).most_common())
    yield plain_table("answer", ">pictures", rows=rows)
    for place in written:
        yield styled((place, "bold"), " written")


def _sheet(file: Path | None) -> "Sheet | None":
    if file is None:
        return None
    from labelwise.report.answer_sheet import Sheet

    return Sheet()


def _shown(pieces: Iterator[Any], total: int) -> Iterator[Any]:
    """Yield the pieces, with a bar where a person looks and there are many."""
    console = Console(stderr=True)
    hide = not console.is_terminal or total < 500
    with Progress(console=console, transient=True, disable=hide) as progress:
        task = progress.add_task("Classifying", total=total)
        for piece in pieces:
            yield piece
            progress.advance(task, len(piece[1]) + len(piece[2]))
