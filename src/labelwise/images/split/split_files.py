"""Splits as plain CSV files that people can read and edit."""

import csv
import io
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path, PurePath

from labelwise.images.dataset import SPLITS, Dataset
from labelwise.images.sources.delimited import read_fields
from labelwise.images.split.divide import pool, resplit
from labelwise.images.split.make import split_name
from labelwise.support.errors import DataError, listing, suggest
from labelwise.support.text import from_cell, to_cell
from labelwise.support.writable import write_file

_KEPT = (("domain", "domains"), ("group", "groups"), ("moment", "moments"))


def write_split(dataset: Dataset, path: str | Path) -> None:
    """Write the split of each image: a CSV file with the columns file, label (or labels), split (domain, group, moment).

    File names are relative to their common folder, so that the table remains valid if the data move. See ``pool`` for images
    without a file. Unlabelled images have a blank label. An existing file is replaced atomically.
    """
    pooled = pool(dataset)
    files = _short_names(pooled.files, dataset.name)
    columns: dict[str, Sequence[str]] = {
        "file": files,
        _column(dataset): pooled.words(dataset.labels.names),
        "split": [name for name in SPLITS if name in dataset.splits for _ in range(len(dataset.splits[name]))],
    }
    columns |= {head: cells for head, column in _KEPT if (cells := getattr(pooled, column))}
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([to_cell(cell) for cell in row] for row in zip(*columns.values(), strict=True))
    write_file(path, text.getvalue().encode("utf-8", "surrogateescape"))


def apply_split(dataset: Dataset, path: str | Path) -> Dataset:
    """Divide a data set by a CSV file that ``write_split`` wrote; the order of images stays.

    The columns ``file`` and ``split`` decide. A ``label`` is compared with the data, to detect a file of other data. Other
    columns are ignored. The header is row 1, as in a spreadsheet. Raise an error if the file omits an image.
    """
    pooled = pool(dataset)
    names = _short_names(pooled.files, dataset.name)
    position = {name: i for i, name in enumerate(names)}
    labels, column = pooled.words(dataset.labels.names), _column(dataset)
    first: dict[str, int] = {}
    parts: dict[str, list[int]] = {name: [] for name in SPLITS}
    for number, fields in read_fields(Path(path), "file", "split", noun="split", errors="surrogateescape"):
        row = {name: from_cell(field) for name, field in fields.items()}
        place, name = f'Row {number} of "{path}": ', row["file"]
        if name not in position:
            raise DataError(f'{place}"{dataset.name}" has no image "{name}".{suggest(name, names)}')
        if first.setdefault(name, number) != number:
            raise DataError(f'{place}"{name}" is in row {first[name]} already. Keep one of them.')
        label = labels[position[name]]
        if row.get(column, label) != label:
            raise DataError(
                f'{place}"{name}" is labelled "{row[column]}" but in "{dataset.name}" it is "{label}". '
                "A split file cannot change labels. Correct labels in the data."
            )
        parts[split_name(row["split"], place)].append(position[name])
    missing = [name for name in names if name not in first]
    if missing:
        raise DataError(
            f'"{path}" does not name {len(missing)} of the {len(names)} images of "{dataset.name}": {listing(missing)}. '
            "Add a row for each."
        )
    return resplit(dataset, {name: sorted(part) for name, part in parts.items() if part})


def _short_names(files: Sequence[str], data: str) -> list[str]:
    """Return file names relative to their common folder, with forward slashes; they must differ."""
    paths = [PurePath(file).parts for file in files]
    folders = {path[:-1] for path in paths} or {()}
    shared_length = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(min(folders), max(folders), strict=False))
    )
    names = [PurePath(*path[shared_length:]).as_posix() for path in paths]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DataError(f'"{data}" has files more than once, so a split cannot name them: {listing(repeated)}.')
    return names


def _column(dataset: Dataset) -> str:
    return "labels" if dataset.multilabel else "label"
