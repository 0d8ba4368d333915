"""Export labels: folders, tables, COCO, YOLO, Label Studio. Photos are linked or copied, never moved."""

import csv
import io
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from labelwise.images.decode.crops import file_of
from labelwise.images.formats.annotations import GUESS
from labelwise.jobs.parts import arrow
from labelwise.label.session import Labelled
from labelwise.support.errors import DataError, UsageError, is_of_machine, listing
from labelwise.support.file_names import RECORD, folder_names, numbered
from labelwise.support.files import MAX_BYTES, regular_path
from labelwise.support.text import json_text, to_cell
from labelwise.support.writable import writing_folder

Row = tuple[Path, Labelled]
LISTS = ("csv", "parquet")  # forms that name images and hold none
TASKS = "labelstudio.json"


def export(files: Sequence[str], labels: Sequence[Labelled], folder: Path, form: str) -> Path:
    """Write the labelled images in a format and return the path. An earlier export is replaced; a failed one leaves nothing.

    Args:
        files: paths of all images.
        labels: one per image; images without a label are left out.
        folder: where to write.
        form: one of ``FORMS``.
    """
    if form not in FORMS:
        raise UsageError(f'Labels are written as {listing(FORMS)}; given "{form}".')
    rows = [(Path(file), one) for file, one in zip(files, labels, strict=True) if one.label]
    if not rows:
        raise UsageError("No image has a label yet.")
    places = [file_of(str(file)) for file, _ in rows]
    if form not in LISTS and any(place != str(file) for place, (file, _) in zip(places, rows, strict=True)):
        raise UsageError(f'Boxes are written as {listing(LISTS)}, which name them; given "{form}".')
    gone = [place for place in dict.fromkeys(places) if not _is_file(place)]
    if gone:
        raise DataError(
            f"{listing(gone)} cannot be read: moved or removed since. Bring the photos back, or label without them."
        )
    if folder.is_symlink():
        raise UsageError(f'"{folder}" is a link, and labels are written to real folders. Remove it first.')
    target = folder / form
    for left in folder.glob(".*.part"):  # of a process that was killed: nobody else has the project open
        shutil.rmtree(left, ignore_errors=True)
    with writing_folder(target) as part:
        FORMS[form](part, rows)
    return target


def _folders(part: Path, rows: Sequence[Row], place: Callable[[Path, Path], None]) -> None:
    folders, guesses = folder_names(one.label for _, one in rows), list[str]()
    for (file, one), name in zip(rows, _names(rows), strict=True):
        folder = part / folders[one.label]
        folder.mkdir(exist_ok=True)
        place(file, folder / name)
        if one.source == GUESS:
            guesses.append(f"{folder.name}/{name}")
    if guesses:
        _write_json(part / RECORD, {"guesses": guesses})


def _table(part: Path, rows: Sequence[Row]) -> None:
    lines = [(str(file), one.label, f"{one.probability:.4f}", one.source) for file, one in rows]
    _write_csv(part / "images.csv", ("path", "label", "probability", "source"), lines)


def _parquet(part: Path, rows: Sequence[Row]) -> None:
    pyarrow = arrow()
    columns = {
        "path": [os.fsencode(file).decode("utf-8", "backslashreplace") for file, _ in rows],
        "label": [one.label for _, one in rows],
        "probability": [one.probability for _, one in rows],
        "source": [one.source for _, one in rows],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), part / "images.parquet")


def _imagefolder(part: Path, rows: Sequence[Row]) -> None:
    names = _names(rows)
    for (file, _), name in zip(rows, names, strict=True):
        _link(file, part / name)
    lines = [(name, one.label, one.source) for (_, one), name in zip(rows, names, strict=True)]
    _write_csv(part / "metadata.csv", ("file_name", "label", "source"), lines)


def _coco(part: Path, rows: Sequence[Row]) -> None:
    labels, names = _labels(rows), _names(rows)
    (part / "images").mkdir()
    images, notes = list[dict[str, Any]](), list[dict[str, Any]]()
    for id, ((file, one), name) in enumerate(zip(rows, names, strict=True), 1):
        _link(file, part / "images" / name)
        width, height = _size(file)
        images.append({"id": id, "file_name": f"images/{name}", "width": width, "height": height})
        box = {"bbox": [0, 0, width, height], "area": width * height, "iscrowd": 0, "segmentation": []}
        about = {"score": one.probability, "source": one.source}
        notes.append({"id": id, "image_id": id, "category_id": labels[one.label], **box, **about})
    categories = [{"id": place, "name": name} for name, place in labels.items()]
    _write_json(part / "annotations.json", {"images": images, "annotations": notes, "categories": categories})


def _yolo(part: Path, rows: Sequence[Row]) -> None:
    """Write train/LABEL/IMAGE, the classification layout of ultralytics."""
    (part / "train").mkdir()
    _folders(part / "train", rows, _link)


def _label_studio(part: Path, rows: Sequence[Row]) -> None:
    tasks = []
    for file, one in rows:
        result = [{"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": [one.label]}}]
        answer = {"result": result} if one.source == "person" else {"result": result, "score": one.probability}
        tasks.append(
            {"data": {"image": str(file)}, "annotations" if one.source == "person" else "predictions": [answer]}
        )
    _write_json(part / TASKS, tasks)


FORMS: Mapping[str, Callable[[Path, Sequence[Row]], None]] = {
    "folders": lambda part, rows: _folders(part, rows, _link),
    "copies": lambda part, rows: _folders(part, rows, _copy),
    "csv": _table,
    "parquet": _parquet,
    "imagefolder": _imagefolder,
    "coco": _coco,
    "yolo": _yolo,
    "labelstudio": _label_studio,
}


def _labels(rows: Sequence[Row]) -> dict[str, int]:
    return {name: place for place, name in enumerate(sorted({one.label for _, one in rows}), 1)}


def _names(rows: Sequence[Row]) -> list[str]:
    """Return names of files that differ, and that a table can hold unchanged: of two that are called the same, the second gets a number."""
    taken, names = set[str](), list[str]()
    for file, _ in rows:
        plain = file.name if to_cell(file.name) == file.name else f"_{file.name}"
        name = next(each for each in numbered(plain) if each.casefold() not in taken)
        taken.add(name.casefold())
        names.append(name)
    return names


def _link(file: Path, target: Path) -> None:
    os.symlink(os.path.realpath(file), target)


def _copy(file: Path, target: Path) -> None:
    shutil.copy2(regular_path(file, MAX_BYTES), target)


def _is_file(place: str) -> bool:
    """Return whether there is a file; raise the error of a disk that does not say."""
    try:
        return stat.S_ISREG(os.stat(place).st_mode)
    except OSError as error:
        if is_of_machine(error):
            raise
        return False


def _size(file: Path) -> tuple[int, int]:
    try:
        with Image.open(regular_path(file, MAX_BYTES)) as image:
            return image.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if is_of_machine(error):
            raise
        raise DataError(
            f'The size of "{file}" cannot be read ({error}). Label without it, or export another form.'
        ) from None


def _write_csv(file: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([to_cell(cell) for cell in row] for row in rows)
    file.write_bytes(text.getvalue().encode("utf-8", "surrogateescape"))


def _write_json(file: Path, document: Any) -> None:
    file.write_text(json_text(document, 1, ascii_only=True))
