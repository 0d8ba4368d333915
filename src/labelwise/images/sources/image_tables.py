"""A data set from a table: a CSV or Parquet file that lists image files, or features, and their labels.

Columns, in any order and spelled in small or capital letters:

- ``path``: an image file. A relative path starts at the folder of the table, and no path may leave that folder
  (by ``..``, or as an absolute path to elsewhere) unless ``outside`` says so. Where a ``root`` is named, that is the
  folder that paths start at and stay in; those that lead into it from the folder of the table do, too. Links are followed.
- ``f0``, ``f1``, ... or ``feature_...``, where there is no ``path``: the features of one image, finite numbers.
- ``label``: in every row. Only a table without this column, and without columns of another meaning, is unlabelled:
  all targets are -1, and the only label is called "unlabelled".
- ``labels`` instead of ``label``, if several may be true of an image: their names with semicolons between them, in
  quotes where the fields of the file are separated by semicolons, too. Empty says that none of them is true.
- ``split``: train, val (valid, validation) or test, in every row or in none.
- ``domain`` and ``group``: where an image was taken and what it belongs to. A group is never divided; a blank is no group.
- ``sample_weight``: how many images this one counts as in a closed form; 0 leaves it out, blank is 1.
- ``text``, ``text_1``, ``text_2``, ...: sentences that describe the image; empty ones are left out.

CSV files are UTF-8, with commas, semicolons or tabs between the fields. Their rows are counted as a spreadsheet does:
the header is row 1. Rows of a Parquet file are counted from 1. Rows without any content are left out, and so are
rows that repeat another row of the same image.
"""

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from labelwise.images.dataset import Dataset, label_words
from labelwise.images.decode.decoding import Frame
from labelwise.images.describe.knowledge import find_knowledge
from labelwise.images.describe.labels import normal_name, unfit_name
from labelwise.images.images import FeatureRows
from labelwise.images.sources.build import build, from_files
from labelwise.images.sources.csv_files import Columns, read_csv
from labelwise.images.sources.parquet import read_parquet
from labelwise.images.sources.paths import locate
from labelwise.images.sources.rows import Rows, named_rows
from labelwise.images.split.divide import Grouping
from labelwise.images.split.make import split_name
from labelwise.support.errors import DataError

PARQUET_SUFFIXES = frozenset((".parquet", ".pq"))


def table(  # noqa: PLR0913 - what a source may be told
    path: str | Path,
    *,
    size: int | None = None,
    seed: int = 0,
    strict: bool = False,
    outside: bool = False,
    root: str | Path | None = None,
    group: Grouping | None = None,
    next_frame: Frame | None = None,
) -> Dataset:
    """Load the images or features listed in a CSV or Parquet file.

    What the columns mean is said at the top of this file. What another file next to it says about the labels is read,
    too, see ``data.knowledge``. ``size``, ``seed``, ``strict`` and ``group`` are as for ``folder``, but that a column ``group``
    comes first; ``outside`` allows images outside the table's folder, and ``root`` names another folder that they are in.
    """
    file = Path(path)
    columns = read_table(file)
    rows = replace(table_rows(columns), by=group)
    if columns.features is not None:
        rows = replace(rows, images=FeatureRows(columns.features))
        return build(file.stem, rows, find_knowledge(file.parent), seed=seed)
    starts = [file.parent] if root is None else [Path(root), file.parent]
    bounds = None if outside else starts[0]
    paths = [locate(cell, starts, bounds, columns.cell(row, "path")) for row, cell in enumerate(columns.cells["path"])]
    rows = _distinct(replace(rows, files=tuple(paths)), columns)
    homes = {label: f'label "{label}"' for label in rows.names}
    return from_files(file, rows, homes, size=size, seed=seed, strict=strict, next_frame=next_frame)


def read_table(file: Path, *, errors: str = "strict") -> Columns:
    """Read the nonempty cells of a table; ``errors`` handles bytes that are not UTF-8."""
    columns = read_parquet(file) if file.suffix.lower() in PARQUET_SUFFIXES else read_csv(file, errors=errors)
    if not len(columns):
        raise DataError(f'"{file}" has no rows below its header. Add one for each image.')
    return columns


def table_rows(columns: Columns) -> Rows:
    """Return the columns that describe images."""
    column = next((name for name in ("label", "labels") if name in columns.cells), None)
    labels = [_labels(columns, row, column) for row in range(len(columns))] if column else []
    if labels and not any(labels):
        raise DataError(
            f'The table "{columns.file}", column "labels" is empty in every row. At least some images need labels.'
        )
    row_labels = [names[0] for names in labels] if column == "label" else [None] * len(columns)
    return replace(
        named_rows(row_labels, labels if column == "labels" else ()),
        splits=_splits(columns),
        files=tuple(columns.cells.get("path", ())),
        texts=_texts(columns),
        domains=_names(columns, "domain"),
        groups=_names(columns, "group"),
        weights=_weights(columns),
    )


def _distinct(rows: Rows, columns: Columns) -> Rows:
    """Remove repeated images; raise an error if two rows contradict each other."""
    first: dict[str, int] = {}
    repeated = [(first[file], row) for row, file in enumerate(rows.files) if first.setdefault(file, row) != row]
    statements = _statements(rows) if repeated else {}
    for first_row, second_row in repeated:
        for statement, column in statements.items():
            if column[first_row] != column[second_row]:
                words = " and ".join(
                    f'"{value if isinstance(value, str) else "; ".join(value)}"'
                    for value in (column[first_row], column[second_row])
                )
                raise DataError(
                    f'Rows {columns.numbers[first_row]} and {columns.numbers[second_row]} of "{columns.file}" name the same image, '
                    f'"{columns.cells["path"][second_row]:.200}", with different {statement}: {words}. Keep one of them.'
                )
    return rows.select(list(first.values())) if repeated else rows


def _statements(rows: Rows) -> dict[str, Sequence[str | tuple[str, ...]]]:
    columns: dict[str, Sequence[str | tuple[str, ...]]] = {
        "labels": label_words(rows.names, rows.targets),
        "splits": rows.splits,
        "domains": rows.domains,
        "groups": rows.groups,
        "texts": rows.texts,
    }
    return {statement: column for statement, column in columns.items() if column}


def _labels(columns: Columns, row: int, column: str) -> tuple[str, ...]:
    """Return the sorted labels of a row: one in the column "label", any number in "labels"."""
    cell, place = columns.cells[column][row], columns.cell(row, column)
    if column == "label" and not cell:
        raise DataError(
            f"{place}it is empty. Fill it or remove the row. Only a table of images without any label has no such column."
        )
    parts = cell.split(";") if column == "labels" else [cell]
    names = [normal_name(name) for name in parts] if cell else []
    if not all(names) or len(set(names)) < len(names):
        wrong = "a name is empty" if not all(names) else "a name is there twice"
        raise DataError(
            f'{place}"{cell:.200}": {wrong}. Write names with one semicolon between two of them, and nothing where no '
            "label is true."
        )
    for name in names:
        if unfit := unfit_name(name):
            raise DataError(f"{place}it cannot be a label: {unfit}. Write it in one line of UTF-8.")
    return tuple(sorted(names))


def _splits(columns: Columns) -> Sequence[str]:
    """Return the split of each row, or nothing if no row has one."""
    cells = columns.cells.get("split", ())
    if not any(cells):
        return ()
    return [split_name(cell, columns.cell(row, "split")) for row, cell in enumerate(cells)]


def _names(columns: Columns, column: str) -> tuple[str, ...]:
    """Return the domain or group of each row, or nothing if no row has one."""
    cells = columns.cells.get(column, ())
    return tuple(unicodedata.normalize("NFC", cell) for cell in cells) if any(cells) else ()


def _weights(columns: Columns) -> tuple[float, ...]:
    """Return the weight of each row, or None if no cell has one."""
    cells = columns.cells.get("sample_weight", ())
    weights = []
    for row, cell in enumerate(cells if any(cells) else ()):
        try:
            weights.append(float(cell or 1))
        except ValueError:
            weights.append(math.nan)
        if not 0 <= weights[-1] < math.inf:
            raise DataError(f'{columns.cell(row, "sample_weight")}a weight is a number of at least 0; given "{cell}".')
    return tuple(weights)


def _texts(columns: Columns) -> tuple[tuple[str, ...], ...]:
    """Return the sentences of each row, or nothing if no row has any."""
    cells = [column for name, column in columns.cells.items() if name.startswith("text")]
    texts = tuple(tuple(text for text in row if text) for row in zip(*cells, strict=True))
    return texts if any(texts) else ()
