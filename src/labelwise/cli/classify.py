"""The verb classify: what is it? It prints answers, and writes a table, a page of thumbnails, or images sorted into folders."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Option

from labelwise.cli.boxes import LEVEL, SEEN, Boxing, joined_cells, joined_table
from labelwise.cli.camera_traps import Form, check_form, write_form
from labelwise.cli.inputs import PIECE, PRIOR_HELP, open_model, read_pieces, restricted
from labelwise.cli.jobs import is_job, make_job, run_job
from labelwise.cli.options import Model, Paths, refuse_workers, shared_options
from labelwise.cli.output import Bar, note, percent, plain_table, show, styled
from labelwise.cli.sorting import NONE, UNKNOWN, UNSURE, Sorter, check_sorted
from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.file_names import folder_names
from labelwise.support.text import to_cell, with_bar
from labelwise.support.writable import check_writable, write_file

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.images.formats.boxes import Boxes
    from labelwise.images.images import Images
    from labelwise.tasks.box_answers import Joined
    from labelwise.tasks.classify import Prediction

SHOWN = 1_000  # rows of the table on the screen
COLUMNS = ("file", "answer", "labels", "probability", "second", "second_probability", "outlier")


@dataclass(frozen=True, kw_only=True)
class Writing:
    """Which files to write, and for which answers."""

    csv_file: Annotated[Path | None, Option("--csv", help="A table to write: file, answer, probability.")] = None
    sort_into: Annotated[Path | None, Option(help="Copy images into a folder per answer.")] = None
    link: Annotated[bool, Option("--link", help="With --sort-into: link instead of copying.")] = False
    only: Annotated[str | None, Option(help="Only images with these answers, separated by commas.")] = None
    min_probability: Annotated[float, Option(min=0, max=1, help="Less probable answers count as unsure.")] = 0.5
    out: Annotated[Path | None, Option("--out", help="A page (.html) of thumbnails, or a .parquet folder.")] = None
    form: Annotated[Form | None, Option("--format", help="Tables of camera traps, written to --out.")] = None

    def check(self, paths: Sequence[Path]) -> None:
        """Check options and output paths before any image is read."""
        if self.form is not None:
            check_form(self.form, self.out, paths)
            if self.only is not None:
                raise UsageError("--format writes all answers. Leave out --only.")
        if self.link and self.sort_into is None:
            raise UsageError("--link goes with --sort-into FOLDER.")
        if self.form is None and self.out is not None and self.out.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"--out takes a page (.html) or a folder of answers (.parquet); given {self.out}.")
        if self.sort_into is not None:
            check_sorted(self.sort_into)
        for target in filter(None, (self.csv_file, self.out, self.sort_into and self.sort_into / "unsure")):
            check_writable(target)

    def unsorted(self, files: "Images") -> "Images":
        """Return the files that are not already in the sorted folder."""
        from labelwise.images.file_images import FileImages

        if self.sort_into is None:
            return files
        if not isinstance(files, FileImages):
            raise UsageError("--sort-into copies image files and cannot read shards. Use --csv FILE.")
        own = self.sort_into.resolve()
        return files.select([not Path(file).resolve().is_relative_to(own) for file in files.ids])


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Options for answers: what to list and to promise."""

    top: Annotated[int, Option(min=1, help="How many labels to list.")] = 3
    coverage: Annotated[float | None, Option(help="List enough labels to hold the right one this often.")] = None
    max_error: Annotated[float | None, Option(help="Answer with a parent, or unsure, to err no more often.")] = None
    prior: Annotated[Path | None, Option(help=PRIOR_HELP)] = None


@dataclass(frozen=True)
class AnswerRow:
    """The answer for one image: a label, unknown, unsure or none."""

    file: str
    word: str
    prediction: "Prediction"

    def cells(self) -> list[str]:
        """Return a row of the table of answers."""
        prediction = self.prediction
        second = prediction.top[1] if len(prediction.top) > 1 else ("", None)
        numbers = (
            "" if value is None else f"{value:.4f}" for value in (prediction.probability, second[1], prediction.outlier)
        )
        probability, runner_up, outlier = numbers
        labels = ";".join(prediction.labels or (prediction.top[0][0],))
        words = (to_cell(text) for text in (self.file, self.word, labels, second[0]))
        file, word, labels, score = words
        return [file, word, labels, probability, score, runner_up, outlier]


def answer(file: str, prediction: "Prediction", min_probability: float) -> AnswerRow:
    """Return the answer for an image; a label below ``min_probability`` counts as unsure, unless a share of errors is promised."""
    sure = prediction.parents is not None or prediction.probability >= min_probability
    return AnswerRow(file, prediction.label if sure or not prediction.known else UNSURE, prediction)


def read_only(words: str | None, labels: Sequence[str]) -> frozenset[str] | None:
    """Return the answers named by --only, or None for all; raise an error for an unknown name."""
    from labelwise.images.describe.labels import Labels

    if words is None:
        return None
    names = [name.strip() for name in next(csv.reader([words], skipinitialspace=True), [])]
    allowed = Labels(names=(*labels, UNKNOWN, UNSURE, NONE))
    for name in names:
        if allowed.find(name) is None:
            raise UsageError(
                f'--only: "{name}" is not a possible answer.{suggest(name, allowed.names)} Answers: {listing(allowed.names)}.'
            )
    if not names:
        raise UsageError("--only takes labels separated by commas; given none.")
    return frozenset(map(allowed.meant, names))


class Answers:
    """Collects the selected answers and sorts images as they arrive."""

    def __init__(self, writing: Writing, labels: Sequence[str]) -> None:
        self.writing, self.rows, self.joined = writing, list[AnswerRow](), list["Joined"]()
        self._labels = labels
        self._only = read_only(writing.only, labels)
        self._sorter = writing.sort_into and Sorter(
            writing.sort_into, folder_names((UNKNOWN, UNSURE, NONE, *labels, *SEEN)), link=writing.link
        )
        self._sheet = None
        if writing.out is not None and writing.form is None:
            from labelwise.reporting.answer_sheet import Sheet

            self._sheet = Sheet()

    def add(self, answer: AnswerRow, read: Callable[[], Any], *, place: bool = True) -> None:
        """Add the answer for an image if it is selected; ``read`` returns its pixels ``[c, h, w]``, ``place`` copies its file."""
        if self._only is not None and answer.word not in self._only:
            return
        self.rows.append(answer)
        if self._sorter and place:
            self._sorter.place(answer.file, answer.word)
        if self._sheet:
            self._sheet.add(answer.word, answer.file, answer.prediction, read())

    def collect(
        self, classifier: "Classifier", files: "Images", boxes: "Boxes", asking: Asking
    ) -> list[dict[str, str]]:
        """Add the answers for all images, and those that join boxes; return the unreadable files."""
        from labelwise.tasks.box_answers import decider, join
        from labelwise.tasks.classify import classify as predictions

        in_boxes: dict[str, Any] = {}
        skipped: list[dict[str, str]] = []
        count = (
            len(classifier.labels) if classifier.calibration.multilabel and not shared_options().json else asking.top
        )
        pieces: Iterable[Any] = with_bar(read_pieces(classifier, files), -(-len(files) // PIECE), "Classifying")
        for images, names, unread in pieces:
            skipped += unread
            scores = classifier.scores(images) if names else None
            some = (
                predictions(scores, top=count, coverage=asking.coverage, max_error=asking.max_error) if scores else []
            )
            for row, (name, prediction) in enumerate(zip(names, some, strict=True)):
                if scores and name in boxes.records:
                    in_boxes[name] = prediction.label, scores.reported[row]
                reading = partial(_pixels, classifier, images, row)
                self.add(
                    answer(name, prediction, self.writing.min_probability), reading, place=name not in boxes.records
                )
        self._join(join(boxes.records, in_boxes, decider(classifier, asking.max_error)))
        return skipped

    def _join(self, every: Sequence["Joined"]) -> None:
        """Add the joined answers of images and events; images are sorted by theirs."""
        self.joined = [
            joined_answer for joined_answer in every if self._only is None or joined_answer.label in self._only
        ]
        for joined_answer in self.joined if self._sorter else ():
            if self._sorter and joined_answer.level != "event" and Path(joined_answer.name).is_file():
                self._sorter.place(joined_answer.name, joined_answer.label)

    def write(self, model: str) -> list[str]:
        """Write the table and the page, and return all written paths."""
        table, sheet, folder = self.writing.csv_file, self.writing.out, self.writing.sort_into
        if self._sorter:
            self._sorter.finish(model)
        if table is not None:
            write_file(table, table_of(self.rows, self.joined))
        if self._sheet and sheet is not None:
            write_file(sheet, self._sheet.page(model, self._labels).encode("utf-8", "replace"))
        return [str(path) for path in (table, sheet, folder) if path is not None]


def table_of(answers: Iterable[AnswerRow], box_answers: Sequence["Joined"] = ()) -> bytes:
    """Return the answers as CSV; answers of boxes are followed by those of images and events."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow((*COLUMNS, LEVEL) if box_answers else COLUMNS)
    writer.writerows([*answer.cells(), _level(answer.file)] if box_answers else answer.cells() for answer in answers)
    writer.writerows(joined_cells(answer) for answer in box_answers)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _level(file: str) -> str:
    """Return what an address is of."""
    from labelwise.images.decode.crops import parse_crop

    part = parse_crop(file)
    return "image" if part is None else "box" if part.box else "frame"


def classify(model: Model, paths: Paths, *, asking: Asking, boxing: Boxing, writing: Writing) -> None:
    """What is it? Labels with probabilities, or unknown.

    Of an annotation file, such as that of MegaDetector, each box is classified, and the answers are joined for each image and event.
    Of a video, one frame per second is classified, and the answers are joined.
    """
    if writing.out is not None and is_job(writing.out):
        if writing != Writing(out=writing.out) or asking.prior is not None:
            raise UsageError(
                "A .parquet folder holds all answers. Leave out --csv, --sort-into, --link, --only, --min-probability and --prior."
            )
        job = make_job("classify", model, writing.out, asking.top)
        run_job(replace(job, coverage=asking.coverage, max_error=asking.max_error), paths, boxing)
        return
    from labelwise.images.as_images import as_images
    from labelwise.images.formats.boxes import all_boxes

    refuse_workers()
    writing.check(paths)
    classifier, prior = open_model(model), asking.prior
    if prior is not None:
        classifier = restricted(classifier, prior)
    words = (*classifier.labels.names, *(classifier.labels.groups if asking.max_error is not None else ()))
    answers = Answers(writing, words)
    places, boxes = all_boxes(paths, boxing.min_detection, shared_options().root, boxing.events, boxing.frame_rate)
    files = writing.unsorted(as_images(places) if places else boxes.images)
    several = classifier.calibration.multilabel
    skipped = answers.collect(classifier, files, boxes, asking)
    if writing.form is not None and writing.out is not None:
        write_form(writing.form, writing.out, paths, answers, boxes.records, model)
    written_files = answers.write(str(model))
    document: dict[str, Any] = {"model": str(model), "predictions": _rows(answers.rows), "skipped": skipped}
    document |= {"joined": list(map(asdict, answers.joined))} if boxes.records else {}
    if prior is not None:
        document["prior"] = {"file": str(prior), "labels": list(classifier.labels.names)}
    if written_files:
        document |= {"written": written_files, "answers": dict(Counter(answer.word for answer in answers.rows))}
    rows = [row for row in answers.rows if _level(row.file) != "frame"]  # videos have one answer
    if not written_files and len(rows) > SHOWN:
        note(f"The first {SHOWN} of {len(rows)} images are shown; --csv FILE writes all.")
    lines = (
        [*_summary(answers.rows, written_files)] if written_files else [_table(rows[:SHOWN], several)] if rows else []
    )
    show(document, *lines, *joined_table(answers.joined[:SHOWN]))


def _pixels(classifier: "Classifier", images: "Images", row: int) -> Any:
    """Return the bytes ``[c, h, w]`` of an image."""
    return images.read([row], classifier.shape, classifier.encoder.fit)[0]


def _rows(answers: list[AnswerRow]) -> list[dict[str, Any]]:
    """Return the predictions as JSON values."""
    rows: list[dict[str, Any]] = [{**asdict(answer.prediction), "file": answer.file} for answer in answers]
    for row in rows:
        if row["parents"] is None:
            del row["parents"]
        row["top"] = [{"label": label, "probability": value} for label, value in row["top"]]
    return rows


def _table(answers: list[AnswerRow], multilabel: bool) -> RenderableType:
    """Return a table of images and their best labels; with several labels per image, every label that holds."""
    table = plain_table("image", "label", "", ">probability")
    for answer in answers:
        prediction = answer.prediction
        if prediction.label in (UNKNOWN, UNSURE):
            nearest = styled(f"looks most like {prediction.top[0][0]}")
            table.add_row(answer.file, styled((prediction.label, "bold yellow")), nearest, "")
            continue
        count = max(len(prediction.labels), 1) if multilabel else len(prediction.top)
        labels = prediction.top[:count]
        if prediction.parents is not None:  # the answer may be a parent, which is not among the labels
            labels = (
                (prediction.label, prediction.probability),
                *(pair for pair in labels if pair[0] != prediction.label),
            )
        for rank, (label, value) in enumerate(labels):
            style = "bold" if multilabel or not rank else ""
            none = () if rank or prediction.known else ((prediction.label, f"{style} yellow"), ("; most like ", style))
            table.add_row("" if rank else answer.file, styled(*none, (label, style)), Bar(value), percent(value))
    return table


def _summary(answers: list[AnswerRow], files: list[str]) -> Iterator[RenderableType]:
    """Yield the number of images per answer, and the written files."""
    rows = ((word, str(count)) for word, count in Counter(answer.word for answer in answers).most_common())
    yield plain_table("answer", ">images", rows=rows)
    for place in files:
        yield styled((place, "bold"), " written")
