"""The attributes of one label, as a word of the shell gives them."""

from pathlib import Path

from labelwise.images.describe.knowledge_files import read_labels
from labelwise.images.describe.labels import normal_name
from labelwise.images.sources.csv_files import records
from labelwise.support.errors import DataError, UsageError, listing, suggest


def read_vector(word: str, name: str) -> list[float]:
    """Return the numbers that a word of the shell gives: ``0,1,0.5``, or a .csv or .txt file.

    The file has one row or one column of numbers, or, as labels.csv, a row for each label under a header that begins with
    "label"; the row is that of ``name``.
    """
    if Path(word).suffix.lower() not in (".csv", ".txt") and not Path(word).is_file():
        return [_number(field.strip(), f'"{word}"') for field in word.split(",")]
    rows = [(number, [field.strip() for field in row]) for number, row in records(Path(word), what="file")]
    if not rows:
        raise DataError(f'"{word}" is empty. Write the numbers of the vector into it, in one row or one column.')
    if rows[0][1][0].casefold() in ("label", "name"):
        return _row_of_label(word, name)
    if len(rows) > 1 and any(len(row) > 1 for _, row in rows):
        raise DataError(
            f'"{word}" has {len(rows)} rows of up to {max(len(row) for _, row in rows)} fields. A vector is one row or '
            'one column of numbers; a table of many labels has a header that begins with "label".'
        )
    return [_number(field, f'Row {number} of "{word}"') for number, row in rows for field in row]


def _row_of_label(file: str, name: str) -> list[float]:
    labels, _ = read_labels(Path(file))
    if normal_name(name) not in labels.names:
        raise DataError(
            f'"{file}" has no row for "{name}".{suggest(name, labels.names)} Rows: {listing(labels.names)}.'
        )
    if labels.vectors is None:
        raise DataError(f'"{file}" has no attribute columns, so it gives no vector of "{name}".')
    return [float(x) for x in labels.vectors[labels.index(normal_name(name))]]


def _number(field: str, where: str) -> float:
    try:
        return float(field)
    except ValueError:
        raise UsageError(
            f'{where}: "{field}" is no number. A vector is given as numbers between commas, or as a .csv or .txt file.'
        ) from None
