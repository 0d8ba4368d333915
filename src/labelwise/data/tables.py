"""A data set from a table: a CSV file that lists picture files and their labels."""

import csv
import io
import unicodedata
from pathlib import Path

from labelwise.data.dataset import Dataset
from labelwise.data.sources import Listed, from_files, split_name
from labelwise.errors import DataError, listing, suggest


def table(path: str | Path, *, size: int = 64, seed: int = 0, strict: bool = False) -> Dataset:
    """Return the pictures that a CSV file lists in its columns ``path`` and ``label``, and ``split`` if there is one.

    Fields are separated by commas, semicolons or tabs; the text is UTF-8. Relative paths start at the folder of the
    file. A split is train, val (valid, validation) or test. Rows are counted as a spreadsheet does: the header is 1.

    Args:
        path: the CSV file.
        size: the side of the square that each picture is made to fit.
        seed: of the division into splits.
        strict: raise an error where a picture cannot be read; else it is left out and listed in ``skipped``.
    """
    file = Path(path)
    rows = _csv_rows(file)
    divided = any(row.get("split") for _, row in rows)
    listed: dict[Path, tuple[int, Listed]] = {}
    for number, row in rows:
        for column in ("path", "label"):
            if not row[column]:
                raise DataError(f'Row {number} of "{file}": the column "{column}" is empty. Fill it or remove the row.')
        where = f'Row {number} of "{file}", column "split": '
        split = split_name(row["split"], where) if divided else ""
        each = Listed(path=file.parent / row["path"], label=unicodedata.normalize("NFC", row["label"]), split=split)
        first, other = listed.setdefault(each.path, (number, each))
        if other != each:
            what = "label" if other.label != each.label else "split"
            raise DataError(
                f'Rows {first} and {number} of "{file}" name the same picture, "{row["path"]}", with different {what}s: '
                f'"{getattr(other, what)}" and "{getattr(each, what)}". Keep one of them.'
            )
    if not listed:
        raise DataError(f'"{file}" has no rows below its header. Add one for each picture.')
    homes = {each.label: f'label "{each.label}"' for _, each in listed.values()}
    return from_files(file.stem, [each for _, each in listed.values()], homes, size=size, seed=seed, strict=strict)


def _csv_rows(file: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the number and the fields ``path``, ``label`` and perhaps ``split`` of each row of a table."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
        separator = max(",;\t", key=text.partition("\n")[0].count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        rows = [(number, fields) for number, fields in enumerate(reader, 1) if any(field.strip() for field in fields)]
    except OSError as error:
        raise DataError(f'Cannot read the table "{file}": {error.strerror}. Check the path and its rights.') from None
    except UnicodeDecodeError:
        raise DataError(f'The table "{file}" is not UTF-8 text. Save it as "CSV UTF-8".') from None
    except csv.Error as error:
        raise DataError(f'The table "{file}" is not well-formed: line {reader.line_num}: {error}.') from None
    if not rows:
        raise DataError(f'The table "{file}" is empty. Its first row must name the columns: path, label.')
    columns = [field.strip().casefold() for field in rows[0][1]]
    for column in ("path", "label", "split"):
        if columns.count(column) != 1 and (column != "split" or column in columns):
            what = "more than one column" if column in columns else "no column"
            near = suggest(column, columns) if column not in columns else ""
            raise DataError(f'The table "{file}" has {what} "{column}".{near} Its columns: {listing(columns)}.')
    return [(number, _csv_row(fields, columns, f'Row {number} of "{file}"')) for number, fields in rows[1:]]


def _csv_row(fields: list[str], columns: list[str], where: str) -> dict[str, str]:
    """Return the fields of one row under the names of their columns; those at the end may be left out."""
    if any(field.strip() for field in fields[len(columns) :]):
        raise DataError(
            f"{where} has {len(fields)} fields, the header {len(columns)}. Put fields that hold a separator into quotes."
        )
    return dict(zip(columns, [field.strip() for field in fields] + [""] * len(columns), strict=False))
