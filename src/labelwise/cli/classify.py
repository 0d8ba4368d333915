"""The verb classify: what is it?"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Option

from labelwise.cli.answers import Answer, Answers, Writing, answer
from labelwise.cli.inputs import PIECE, open_model, read_pieces
from labelwise.cli.jobs import is_job, make_job, refuse_workers, run_job
from labelwise.cli.options import Model, Paths, shared
from labelwise.cli.output import bar, note, percent, plain_table, show, styled
from labelwise.cli.sorting import UNKNOWN
from labelwise.support.errors import UsageError
from labelwise.support.text import with_bar

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.images.images import Images

SHOWN = 1_000  # rows of the table on the screen


def classify(
    model: Model,
    paths: Paths,
    *,
    top: Annotated[int, Option(min=1, help="How many labels to list.")] = 3,
    writing: Writing,
) -> None:
    """What is it? Labels with probabilities, or unknown."""
    from labelwise.tasks.classify import classify as predictions

    if writing.out is not None and is_job(writing.out):
        if writing != Writing(out=writing.out):
            raise UsageError("A .parquet folder holds all answers; leave out --csv, --sort-into, --link and --only.")
        run_job(make_job("classify", model, writing.out, top), paths)
        return
    from labelwise.images.as_images import as_images

    refuse_workers()
    writing.check()
    classifier = open_model(model)
    answers = Answers(writing, classifier.labels.names)
    files = writing.unsorted(as_images(paths))
    several, skipped = classifier.calibration.multilabel, []
    count = len(classifier.labels) if several and not shared().json else top
    pieces: Iterable[Any] = with_bar(read_pieces(classifier, files), -(-len(files) // PIECE), "Classifying")
    for images, names, unread in pieces:
        skipped += unread
        some = predictions(classifier.scores(images), top=count) if names else []
        for row, (name, one) in enumerate(zip(names, some, strict=True)):
            answers.add(answer(name, one, writing.min_probability), partial(_pixels, classifier, images, row))
    written = answers.write(str(model))
    document: dict[str, Any] = {"model": str(model), "predictions": _rows(answers.rows), "skipped": skipped}
    if written:
        document |= {"written": written, "answers": dict(Counter(one.word for one in answers.rows))}
    elif len(answers.rows) > SHOWN:
        note(f"The first {SHOWN} of {len(answers.rows)} images are shown; --csv FILE writes all.")
    lines = _summary(answers.rows, written) if written else [_table(answers.rows[:SHOWN], several)]
    show(document, *lines)


def _pixels(classifier: "Classifier", images: "Images", row: int) -> Any:
    """Return the bytes ``[c, h, w]`` of an image."""
    return images.read([row], classifier.shape, classifier.encoder.fit)[0]


def _rows(answers: list[Answer]) -> list[dict[str, Any]]:
    """Return the predictions as JSON holds them."""
    rows: list[dict[str, Any]] = [{**asdict(one.prediction), "file": one.file} for one in answers]
    for row in rows:
        row["top"] = [{"label": label, "probability": value} for label, value in row["top"]]
    return rows


def _table(answers: list[Answer], multilabel: bool) -> RenderableType:
    """Return each image with its best labels; where several may be true each that is, or that none is and the nearest."""
    table = plain_table("image", "label", "", ">probability")
    for each in answers:
        one = each.prediction
        if one.label == UNKNOWN:
            table.add_row(each.file, styled((one.label, "bold yellow"), f", looks most like {one.top[0][0]}"), "", "")
            continue
        count = max(len(one.labels), 1) if multilabel else len(one.top)
        for rank, (label, value) in enumerate(one.top[:count]):
            style = "bold" if multilabel or not rank else ""
            none = () if rank or one.known else ((one.label, f"{style} yellow"), ("; most like ", style))
            table.add_row("" if rank else each.file, styled(*none, (label, style)), bar(value), percent(value))
    return table


def _summary(answers: list[Answer], written: list[str]) -> Iterator[RenderableType]:
    """Yield how many images have each answer, and what was written."""
    rows = ((word, str(count)) for word, count in Counter(one.word for one in answers).most_common())
    yield plain_table("answer", ">images", rows=rows)
    for place in written:
        yield styled((place, "bold"), " written")
