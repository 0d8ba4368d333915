"""The verb audit: find wrong labels, and duplicate, ambiguous or odd images."""

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import RenderableType
from typer import Option

import labelwise as lw
from labelwise.cli.inputs import open_data, tell_skipped
from labelwise.cli.options import Data
from labelwise.cli.output import one_line, percent, show, styled
from labelwise.support.errors import UsageError
from labelwise.support.text import to_cell
from labelwise.support.writable import check_writable, write_file

if TYPE_CHECKING:
    from labelwise.fitting.suspects import Suspect

SHOWN = 24  # rows: a screen
APPLIED = 0.9  # smallest probability of an applied suggestion: below, hard images outnumber wrong labels
COLUMNS = ("file", "label", "suggested", "probability", "reason", "other", "other_label")


def audit(
    data: Data,
    page: Annotated[Path | None, Option("--out", help="A page (.html) of the images to check.")] = None,
    table: Annotated[Path | None, Option("--csv", help="A table of all suspects.")] = None,
    corrected: Annotated[
        Path | None, Option("--apply", help="A table (.csv) of the data with suggested labels.")
    ] = None,
    patch: Annotated[Path | None, Option("--corrections", help="A file saved by the page, for --apply to use.")] = None,
) -> None:
    """Find wrong labels and duplicate images.

    Each image is classified by leave-one-out, held-out images included. No image is changed: --apply writes a table for fit.
    """
    from labelwise.images.sources.build import readable

    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out takes a page (.html); given {page}.")
    if corrected is not None and corrected.suffix.lower() != ".csv":
        raise UsageError(f"--apply takes a table (.csv); given {corrected}.")
    if patch is not None and corrected is None:
        raise UsageError("--corrections needs --apply FILE.csv, the corrected table to write.")
    for target in filter(None, (page, table, corrected)):
        check_writable(target)
    dataset = readable(open_data(data, None))
    tell_skipped(dataset.skipped)
    if patch is not None and corrected is not None:
        _apply_patch(corrected, dataset, patch)
        return
    suspects = lw.suspects(dataset)
    files = []
    if table is not None:
        files.append(_write(table, COLUMNS, ([str(asdict(suspect)[name]) for name in COLUMNS] for suspect in suspects)))
    if corrected is not None:
        files.append(_write_corrected(corrected, dataset, suspects))
    if page is not None:
        files.append(_write_page(page, dataset, suspects))
    doubtful, twins = (
        [suspect for suspect in suspects if suspect.reason == "label"],
        [suspect for suspect in suspects if suspect.other],
    )
    lines: list[RenderableType] = [one_line(_line(suspect)) for suspect in suspects[:SHOWN]]
    if len(suspects) > SHOWN:
        lines.append(f"The first {SHOWN} of {len(suspects)}. --csv FILE writes all of them.")
    clash = sum(suspect.doubtful for suspect in twins)
    lines.append(f"Doubtful labels: {len(doubtful)}. Duplicates: {len(twins)}, {clash} of them under another label.")
    close, odd = (sum(suspect.reason == reason for suspect in suspects) for reason in ("ambiguous", "odd"))
    lines.append(f"Ambiguous images: {close}. Odd images, unlike all labels: {odd}.")
    lines += [styled((str(place), "bold"), " written") for place in files]
    if corrected is not None:
        sure = sum(suspect.probability >= APPLIED for suspect in doubtful)
        lines.append(
            one_line(
                f"{corrected} has {sure} suggested labels with a probability of at least {percent(APPLIED)}. Check it, then fit it."
            )
        )
    show(
        {
            "data": data,
            "suspects": [asdict(suspect) for suspect in suspects],
            "written": [str(suspect) for suspect in files],
        },
        *lines,
    )


def _apply_patch(file: Path, dataset: "lw.data.Dataset", patch: Path) -> None:
    """Write a table of all images with the corrected labels."""
    from labelwise.images.corrections import correct, read_corrections

    data, changed_rows, added_rows = correct(dataset, read_corrections(patch))
    _write_corrected(file, data, [])
    words = f" written: {changed_rows} labels changed, {added_rows} images added"
    show({"written": [str(file)], "changed": changed_rows, "added": added_rows}, styled((str(file), "bold"), words))


def _line(suspect: "Suspect") -> str:
    """Return the line that describes a suspect."""
    likely = "" if suspect.certainty is None else f" ({percent(suspect.certainty)})"
    return f"{suspect.file}: labelled {suspect.label or 'nothing'}, {suspect.words}{likely}"


def _write(file: Path, columns: tuple[str, ...], rows: Iterable[list[str]]) -> Path:
    """Write a table and return its path."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([to_cell(cell) for cell in row] for row in rows)
    write_file(file, text.getvalue().encode("utf-8", "surrogateescape"))
    return file


def _write_corrected(file: Path, dataset: "lw.data.Dataset", suspects: "list[Suspect]") -> Path:
    """Write a table of all images with the most probable suggested labels."""
    from labelwise.images.dataset import SPLITS
    from labelwise.images.split.divide import pool

    if not dataset.own_images:
        raise UsageError("--apply needs image files.")
    images, suggestions = (
        pool(dataset),
        {
            suspect.row: suspect.suggested
            for suspect in suspects
            if suspect.reason == "label" and suspect.probability >= APPLIED
        },
    )
    labels = images.words(dataset.labels.names)
    splits = [name for name in SPLITS if name in dataset.splits for _ in range(len(dataset.splits[name]))]
    paths = [os.path.relpath(name, file.absolute().parent) for name in images.files]
    rows = [[path, suggestions.get(row, labels[row])] for row, path in enumerate(paths)]
    if dataset.own_splits:
        return _write(
            file, ("path", "label", "split"), ([*row, split] for row, split in zip(rows, splits, strict=True))
        )
    return _write(file, ("path", "label"), rows)


def _write_page(file: Path, dataset: "lw.data.Dataset", suspects: "list[Suspect]") -> Path:
    """Write a page of the images to check."""
    from labelwise.images.split.divide import pool
    from labelwise.reporting.answer_sheet import suspects_page

    images = pool(dataset)
    page = suspects_page(dataset.name, suspects, images.images, dataset.labels.names)
    write_file(file, page.encode("utf-8", "replace"))
    return file
