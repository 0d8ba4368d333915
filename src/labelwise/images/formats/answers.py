"""The label of each image that a person or a tool wrote down, by its path: annotations of any format, tables, label folders."""

import os
from collections.abc import Iterator
from pathlib import Path

from labelwise.images.formats.annotations import GUESS
from labelwise.images.formats.find import find_annotations
from labelwise.images.sources.folders import class_folders, list_tops
from labelwise.images.sources.image_tables import read_table
from labelwise.images.sources.paths import PARQUET, list_images
from labelwise.support.errors import DataError, UsageError
from labelwise.support.file_names import read_record

TABLES = ("images.csv", "images.parquet")  # in a folder
Answer = tuple[str, str, bool]  # path, label, and whether it is a guess


def read_answers(source: Path, *, guesses: bool = False) -> dict[str, str]:
    """Return the label of each path in a file or a folder, such as an export of the label page.

    Args:
        source: the file or the folder.
        guesses: whether guesses count, too; by default only what a person answered does. Rows of another origin are answers.
    """
    try:
        answers = list(_annotated(source)) or list(_of_folder(source) if source.is_dir() else _of_table(source))
    except DataError as error:
        words = str(error).rstrip(".")
        raise UsageError(f'"{source}" holds no labels that can be read ({words}). Give what --export wrote.') from None
    return {os.path.realpath(path): label for path, label, guess in answers if guesses or not guess}


def _annotated(source: Path) -> Iterator[Answer]:
    for part in find_annotations(source):
        for address, one in part.located(outside=True):
            if one.box is None and (one.labels or one.guess):
                yield address, (one.labels or one.guess)[0], bool(one.guess)


def _of_folder(folder: Path) -> Iterator[Answer]:
    """Yield the answers of a table in a folder, or of its label folders."""
    table = next((folder / name for name in TABLES if (folder / name).is_file()), None)
    if table:
        yield from _of_table(table)
        return
    for top in list_tops(folder).values():
        listed = read_record(top.home).get("guesses")
        guesses = {one for one in listed if isinstance(one, str)} if isinstance(listed, list) else set[str]()
        for label, home in class_folders(top).items():
            for file in list_images(home):
                yield str(file), label, f"{home.name}/{file.name}" in guesses


def _of_table(file: Path) -> Iterator[Answer]:
    if file.suffix.lower() not in (".csv", *PARQUET):
        raise DataError("it is neither a table nor a file of annotations")
    cells = read_table(file, errors="surrogateescape").cells
    if not {"path", "label"} <= set(cells):
        raise DataError('it needs the columns "path" and "label"')
    for row, (path, label) in enumerate(zip(cells["path"], cells["label"], strict=True)):
        if label:
            yield str(file.parent / path), label, "source" in cells and cells["source"][row] == GUESS
