"""Data divided anew, and splits as plain CSV files that people can read and edit."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path, PurePath

import torch
from torch import Tensor

from labelwise.data.dataset import PER_IMAGE, SPLITS, Dataset, Split
from labelwise.data.read.csv_files import records
from labelwise.data.read.sources import split_name
from labelwise.data.split.divide import joined_images
from labelwise.errors import DataError, UsageError, listing, suggest
from labelwise.files import write_atomically


def pool(dataset: Dataset) -> Split:
    """Return all images of a data set in one split, those of train first, then val, then test.

    Images without a file name are called "image 0", "image 1" and so on by their place, so that they can be told
    apart after they are divided anew. What only some splits know (texts, domains, groups) is blank for the others.
    """
    parts = [dataset.splits[name] for name in SPLITS if name in dataset.splits]
    filled = [part for part in parts if len(part)] or parts[:1]
    pieces: dict[str, tuple[object, ...]] = {}
    for what in PER_IMAGE:
        if what == "files" or any(getattr(part, what) for part in filled):
            blank = () if what == "texts" else ""
            pieces[what] = tuple(each for part in filled for each in getattr(part, what) or [blank] * len(part))
    pieces["files"] = tuple(file or f"image {i}" for i, file in enumerate(pieces["files"]))
    truths = [part.truths for part in filled if part.truths is not None]
    whole = Split(
        images=joined_images([part.images for part in filled]),
        targets=torch.cat([part.targets for part in filled]),
        truths=torch.cat(truths) if truths else None,
    )
    return replace(whole, **pieces)  # type: ignore[arg-type]


def resplit(dataset: Dataset, rows: Mapping[str, Tensor | Sequence[int]]) -> Dataset:
    """Return the data set divided anew; images that no split names are left out.

    Args:
        dataset: labels and images; its own splits are forgotten.
        rows: for each of train, val and test, or some of them, positions in ``pool(dataset)``.
    """
    whole = pool(dataset)
    parts = {name: torch.as_tensor(part, dtype=torch.int64) for name, part in rows.items()}
    every = torch.cat([*parts.values(), torch.empty(0, dtype=torch.int64)])
    if len(every) and not 0 <= int(every.min()) <= int(every.max()) < len(whole):
        raise UsageError(f"Rows must lie in 0..{len(whole) - 1}; given {int(every.min())} to {int(every.max())}.")
    found, times = torch.unique(every, return_counts=True)
    if len(found) < len(every):
        raise UsageError(
            f"A row may be in one split only and once; given more than once: {listing(map(str, found[times > 1].tolist()))}."
        )
    ordered = [name for name in SPLITS if name in parts] + [name for name in parts if name not in SPLITS]
    return replace(dataset, splits={name: whole.select(parts[name]) for name in ordered}, own_splits=True)


def write_split(dataset: Dataset, path: str | Path) -> None:
    """Write which split each image is in: a CSV file with the columns file, label (or labels), split (domain, group).

    Files are named from the folder that all of them share, so that the file still fits when the data move. See
    ``pool`` for images that come from no file. The label is blank where there is none.

    Args:
        dataset: labels and splits.
        path: the CSV file; one that is there is replaced as a whole.
    """
    whole = pool(dataset)
    files = _short_names(whole.files, dataset.name)
    columns: dict[str, Sequence[str]] = {
        "file": files,
        _column(dataset): whole.words(dataset.labels.names),
        "split": [name for name in SPLITS if name in dataset.splits for _ in range(len(dataset.splits[name]))],
    }
    columns |= {head: kept for head, kept in (("domain", whole.domains), ("group", whole.groups)) if kept}
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    try:
        write_atomically(Path(path), text.getvalue().encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise DataError(f'Cannot write "{path}": {error.strerror}. Check the folder and its rights.') from None


def apply_split(dataset: Dataset, path: str | Path, *, leave_out: bool = False) -> Dataset:
    """Return the data set divided as a CSV file says; the order of its images stays.

    Of the columns, ``file`` and ``split`` decide; a ``label`` is compared with the data, so that a file that belongs
    to other data is noticed. Others are not read. Rows are counted as a spreadsheet does: the header is 1.

    Args:
        dataset: labels and images; its own splits are forgotten.
        path: a file that ``write_split`` wrote, perhaps edited since.
        leave_out: leave out the images that the file does not name; else they are an error.
    """
    whole = pool(dataset)
    names = _short_names(whole.files, dataset.name)
    position = {name: i for i, name in enumerate(names)}
    labels, column = whole.words(dataset.labels.names), _column(dataset)
    first: dict[str, int] = {}
    parts: dict[str, list[int]] = {name: [] for name in SPLITS}
    for number, row in _read(Path(path)):
        where, name = f'Row {number} of "{path}": ', row["file"]
        if name not in position:
            raise DataError(f'{where}"{dataset.name}" has no image "{name}".{suggest(name, names)}')
        if first.setdefault(name, number) != number:
            raise DataError(f'{where}"{name}" is in row {first[name]} already. Keep one of them.')
        known = labels[position[name]]
        if row.get(column, known) != known:
            raise DataError(
                f'{where}"{name}" is labelled "{row[column]}" but in "{dataset.name}" it is "{known}". '
                "This file only divides the data; correct labels in the data themselves."
            )
        parts[split_name(row["split"], where)].append(position[name])
    lost = [name for name in names if name not in first]
    if lost and not leave_out:
        raise DataError(
            f'"{path}" does not name {len(lost)} of the {len(names)} images of "{dataset.name}": {listing(lost)}. '
            "Add a row for each, or choose to leave them out."
        )
    return resplit(dataset, {name: sorted(part) for name, part in parts.items() if part})


def _short_names(files: Sequence[str], data: str) -> list[str]:
    """Return file names from the folder that all share, with forward slashes; they must differ."""
    paths = [PurePath(file).parts for file in files]
    folders = {path[:-1] for path in paths} or {()}
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(min(folders), max(folders), strict=False)))
    names = [PurePath(*path[shared:]).as_posix() for path in paths]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f'"{data}" has files more than once, so a split cannot name them: {listing(twice)}.')
    return names


def _column(dataset: Dataset) -> str:
    """Return what the column of labels is called."""
    return "labels" if dataset.multilabel else "label"


def _read(file: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the number and the fields of each row; columns are separated by commas, semicolons or tabs."""
    (_, first), *rest = list(records(file, what="split", errors="surrogateescape")) or [(0, [])]
    columns = [field.strip().casefold() for field in first]
    for column in ("file", "split"):
        if columns.count(column) != 1:
            raise DataError(
                f'The split "{file}" needs one column "{column}"; its columns: {listing(columns) or "none"}.'
                + suggest(column, columns)
            )
    found = []
    for number, fields in rest:
        if len(fields) != len(columns):
            raise DataError(f'Row {number} of "{file}" has {len(fields)} fields, the header {len(columns)}.')
        found.append((number, dict(zip(columns, fields, strict=True))))
    return found
