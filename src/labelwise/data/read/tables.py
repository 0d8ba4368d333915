"""A data set from a table: a CSV or Parquet file that lists picture files, or features, and their labels.

Columns, in any order and spelled in small or capital letters:

- ``path``: a picture file. A relative path starts at the folder of the table, and no path may leave that folder
  (by ``..``, or as an absolute path to elsewhere) unless ``outside`` says so. Links are followed.
- ``f0``, ``f1``, ... or ``feature_...``, where there is no ``path``: the features of one picture, finite numbers.
- ``label``: in every row. Only a table without this column, and without columns of another meaning, is unlabelled:
  all targets are -1, and the only label is called "unlabelled".
- ``labels``, in place of ``label``, where several may be true of a picture: their names with semicolons between them, in
  quotes where the fields of the file are separated by semicolons, too. Empty says that none of them is true.
- ``split``: train, val (valid, validation) or test, in every row or in none.
- ``domain`` and ``group``: where a picture was taken and what it belongs to. A group is never divided; a blank is no group.
- ``text``, ``text_1``, ``text_2``, ...: sentences that describe the picture; empty ones are left out.

CSV files are UTF-8, with commas, semicolons or tabs between the fields. Their rows are counted as a spreadsheet does:
the header is row 1. Rows of a Parquet file are counted from 1. Rows without any content are left out, and so are
rows that repeat another row of the same picture.
"""

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from labelwise.data.dataset import Dataset
from labelwise.data.labels.knowledge import described_labels, with_files_beside
from labelwise.data.read.columns import Columns
from labelwise.data.read.csv_files import read_csv
from labelwise.data.read.parquet_files import read_parquet
from labelwise.data.read.reading import Listed
from labelwise.data.read.sources import Rows, as_dataset, from_files, split_name
from labelwise.data.read.targets import named_targets
from labelwise.errors import DataError
from labelwise.labels import unfit_name

PARQUET_SUFFIXES = frozenset((".parquet", ".pq"))


def table(
    path: str | Path, *, size: int | None = None, seed: int = 0, strict: bool = False, outside: bool = False
) -> Dataset:
    """Return the pictures or the features that a table lists, a CSV file or (with pyarrow) a Parquet file.

    What the columns mean is said at the top of this file. What another file beside it says about the labels is read, too,
    see ``data.knowledge``.

    Args:
        path: the table.
        size: the side of the square that each picture is made to fit; None as for ``folder``.
        seed: of the division into splits.
        strict: raise an error where a picture cannot be read; else it is left out and listed in ``skipped``.
        outside: allow pictures outside the table's folder.
    """
    file = Path(path)
    columns = read_parquet(file) if file.suffix.lower() in PARQUET_SUFFIXES else read_csv(file)
    if not len(columns):
        raise DataError(f'"{file}" has no rows below its header. Add one for each picture.')
    if columns.features is not None:
        rows = feature_rows(columns, torch.from_numpy(columns.features))
        found = as_dataset(file.stem, replace(rows, described=described_labels(file.parent)), seed)
        return with_files_beside(found, file.parent)
    listed = _pictures(columns, file.parent, outside=outside)
    homes = {label: f'label "{label}"' for each in listed for label in each.all_labels}
    return from_files(file, listed, homes, size=size, seed=seed, strict=strict)


def feature_rows(columns: Columns, features: torch.Tensor) -> Rows:
    """Return features ``[n, a]`` with what a table says about each."""
    named = named_targets(_labels(columns) or [None] * len(columns), _label_sets(columns))
    return Rows(
        images=features,
        targets=named.targets,
        truths=named.truths,
        names=named.names,
        splits=_splits(columns),
        files=tuple(columns.cells.get("path", ())),
        texts=_texts(columns),
        domains=_names(columns, "domain"),
        groups=_names(columns, "group"),
        owned=True,
    )


def _pictures(columns: Columns, here: Path, *, outside: bool) -> list[Listed]:
    """Return each picture of a table once, or raise an error where two rows say different things about it."""
    labels, several = _labels(columns), _label_sets(columns)
    splits, texts = _splits(columns), _texts(columns)
    domains, groups = _names(columns, "domain"), _names(columns, "group")
    listed: dict[Path, tuple[int, Listed]] = {}
    for row, given in enumerate(columns.cells["path"]):
        each = Listed(
            path=_located(given, here, columns.cell(row, "path"), outside=outside),
            label=labels[row] if labels else None,
            labels=several[row] if several else None,
            split=splits[row] if splits else "",
            texts=texts[row] if texts else None,
            domain=domains[row] if domains else None,
            group=groups[row] if groups else None,
        )
        first, other = listed.setdefault(each.path, (row, each))
        if other != each:
            what = next(
                w
                for w in ("label", "labels", "split", "domain", "group", "texts")
                if getattr(other, w) != getattr(each, w)
            )
            raise DataError(
                f'Rows {columns.numbers[first]} and {columns.numbers[row]} of "{columns.file}" name the same picture, '
                f'"{given:.200}", with different {what.removesuffix("s")}s: "{_said(other, what)}" and "{_said(each, what)}". '
                "Keep one of them."
            )
    return [each for _, each in listed.values()]


def _said(each: Listed, what: str) -> str:
    """Return what is said about a picture, in words."""
    value = getattr(each, what)
    return "; ".join(value) if isinstance(value, tuple) else str(value)


def _located(given: str, here: Path, where: str, *, outside: bool) -> Path:
    """Return where a picture is, or raise an error where that is outside the table's folder."""
    if not given:
        raise DataError(f"{where}it is empty. Fill it or remove the row.")
    home = os.path.abspath(here)
    full = os.path.normpath(os.path.join(home, given))
    if not outside and full != home and not full.startswith(home.rstrip(os.sep) + os.sep):
        raise DataError(
            f'{where}"{given:.200}" lies outside the folder of the table. Move the table above its pictures, or read it '
            "with data.table(..., outside=True) where you trust it."
        )
    return Path(os.path.normpath(here / given))


def _labels(columns: Columns) -> list[str]:
    """Return the label of each row, or nothing where the table has no such column."""
    labels = [unicodedata.normalize("NFC", label) for label in columns.cells.get("label", ())]
    for row, label in enumerate(labels):
        if not label:
            raise DataError(
                f"{columns.cell(row, 'label')}it is empty. Fill it or remove the row. Only a table of pictures without any "
                "label has no such column."
            )
        _check_name(columns, row, "label", label)
    return labels


def _check_name(columns: Columns, row: int, column: str, label: str) -> None:
    """Raise an error for what cannot be the name of a label."""
    if unfit := unfit_name(label):
        raise DataError(f"{columns.cell(row, column)}it cannot be a label: {unfit}. Write it in one line of UTF-8.")


def _label_sets(columns: Columns) -> list[tuple[str, ...]]:
    """Return the labels of each row, sorted, or nothing where the table has no such column."""
    found = []
    for row, given in enumerate(columns.cells.get("labels", ())):
        names = [unicodedata.normalize("NFC", name.strip()) for name in given.split(";")] if given else []
        if not all(names) or len(set(names)) < len(names):
            wrong = "a name is empty" if not all(names) else "a name stands there twice"
            raise DataError(
                f'{columns.cell(row, "labels")}"{given:.200}": {wrong}. Write names with one semicolon between two of '
                "them, and nothing where no label is true."
            )
        for name in names:
            _check_name(columns, row, "labels", name)
        found.append(tuple(sorted(names)))
    if found and not any(found):
        raise DataError(
            f'The table "{columns.file}", column "labels" is empty in every row. Name what is true of some.'
        )
    return found


def _splits(columns: Columns) -> Sequence[str]:
    """Return the split of each row, or nothing where none has any."""
    given = columns.cells.get("split", ())
    if not any(given):
        return ()
    return [split_name(split, columns.cell(row, "split")) for row, split in enumerate(given)]


def _names(columns: Columns, column: str) -> tuple[str, ...]:
    """Return the domain or group of each row, or nothing where none has any."""
    given = columns.cells.get(column, ())
    return tuple(unicodedata.normalize("NFC", name) for name in given) if any(given) else ()


def _texts(columns: Columns) -> tuple[tuple[str, ...], ...]:
    """Return the sentences of each row, or nothing where none has any."""
    found = [column for name, column in columns.cells.items() if name.startswith("text")]
    texts = tuple(tuple(text for text in row if text) for row in zip(*found, strict=True))
    return texts if any(texts) else ()
