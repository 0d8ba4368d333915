"""The vector of one label, from a word of the shell: numbers between commas, or a file that holds them."""

from pathlib import Path

from labelwise.data.labels.knowledge import read_knowledge
from labelwise.data.labels.knowledge_files import label_name
from labelwise.data.read.csv_files import records
from labelwise.errors import DataError, UsageError, listing, suggest


def read_vector(given: str, name: str) -> list[float]:
    """Return the numbers that a word of the shell gives: a file that holds them, or numbers between commas.

    Args:
        given: ``0,1,0.5``; or a .csv or .txt file with one row or one column of numbers, or with a row for each label
            under a header that begins with "label", as labels.csv has it.
        name: the label whose row is looked for in such a file.
    """
    if Path(given).suffix.lower() not in (".csv", ".txt") and not Path(given).is_file():
        return [_number(field.strip(), f'"{given}"') for field in given.split(",")]
    rows = [(number, [field.strip() for field in row]) for number, row in records(Path(given), what="file")]
    if not rows:
        raise DataError(f'"{given}" is empty. Write the numbers of the vector into it, in one row or one column.')
    if rows[0][1][0].casefold() in ("label", "name"):
        return _row_of_label(given, name)
    if len(rows) > 1 and any(len(row) > 1 for _, row in rows):
        raise DataError(
            f'"{given}" has {len(rows)} rows of up to {max(len(row) for _, row in rows)} fields. A vector is one row or '
            'one column of numbers; a table of many labels has a header that begins with "label".'
        )
    return [_number(field, f'Row {number} of "{given}"') for number, row in rows for field in row]


def _row_of_label(file: str, name: str) -> list[float]:
    """Return the vector of a label from a table with a row for each label."""
    labels = read_knowledge(file).labels
    if label_name(name) not in labels.names:
        raise DataError(
            f'"{file}" has no row for "{name}".{suggest(name, labels.names)} Rows: {listing(labels.names)}.'
        )
    if labels.vectors is None:
        raise DataError(f'"{file}" has no attribute columns, so it gives no vector of "{name}".')
    found: list[float] = labels.vectors[labels.index(label_name(name))].tolist()
    return found


def _number(field: str, where: str) -> float:
    try:
        return float(field)
    except ValueError:
        raise UsageError(
            f'{where}: "{field}" is no number. A vector is given as numbers between commas, or as a .csv or .txt file.'
        ) from None
