"""CSV files read row by row: names stay text, features go straight into one array."""

import csv
import io
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TextIO

import numpy as np

from labelwise.images.sources.columns import Columns, Floats, Header, read_header
from labelwise.support.errors import DataError, listing, suggest
from labelwise.support.limits import check_size, max_bytes
from labelwise.support.regular import open_regular

_SEPARATORS = ",;\t"
_POINTER = 8  # bytes that a cell takes at least: it may be empty


def read_csv(file: Path, *, beside: bool = False) -> Columns:
    """Return the rows of a CSV file: UTF-8, fields separated by commas, semicolons or tabs, the first row names them."""
    with closing(headed_rows(file)) as rows:
        _, first = next(rows, (0, None))
        if first is None:
            raise DataError(f'The table "{file}" is empty. Its first row must name the columns: path, label.')
        header = read_header(first, str(file), beside=beside)
        numbers: list[int] = []
        values = bytearray()
        cells: dict[str, list[str]] = {name: [] for name in header.cells}
        most, size = max_bytes(), 0
        for number, fields in rows:
            size += _POINTER * len(header.cells) + 4 * len(header.features)
            if size > most:
                check_size(file, size)
            for name, position in header.cells.items():
                cells[name].append(fields[position].strip())
            if header.features:
                values += _features(fields, header, f'Row {number} of "{file}"').tobytes()
            numbers.append(number)
    matrix = np.frombuffer(values, np.float32).reshape(len(numbers), len(header.features))
    return Columns(file=str(file), numbers=numbers, cells=cells, features=matrix if header.features else None)


def read_fields(
    file: Path, *needed: str, what: str = "table", errors: str = "strict"
) -> list[tuple[int, dict[str, str]]]:
    """Return the number of each row and its fields by column, in small letters; each column that is ``needed`` is there once."""
    (_, first), *rows = list(headed_rows(file, what=what, errors=errors)) or [(0, [])]
    columns = [field.strip().casefold() for field in first]
    for column in needed:
        if columns.count(column) != 1:
            raise DataError(
                f'The {what} "{file}" needs one column "{column}"; its columns: {listing(columns) or "none"}.'
                + suggest(column, columns)
            )
    return [(number, dict(zip(columns, fields, strict=True))) for number, fields in rows]


def headed_rows(file: Path, *, what: str = "table", errors: str = "strict") -> Generator[tuple[int, list[str]]]:
    """Yield what ``records`` does, where the first row names the columns: all rows have as many fields as it."""
    width = 0
    for number, fields in records(file, what=what, errors=errors):
        width = width or len(fields)
        if any(field.strip() for field in fields[width:]):
            raise DataError(
                f'Row {number} of "{file}" has {len(fields)} fields, the header {width}. Put fields that hold a separator '
                "into quotes."
            )
        yield number, fields[:width] + [""] * (width - len(fields))


def records(file: Path, *, what: str = "table", errors: str = "strict") -> Generator[tuple[int, list[str]]]:
    """Yield the fields of each row that has any content, with its number; the first is 1. Errors call the file ``what``."""
    try:
        check_size(file, file.stat().st_size)
        with io.TextIOWrapper(open_regular(file, None), "utf-8-sig", errors, newline="") as stream:
            separator = max(_SEPARATORS, key=stream.readline(1 << 20).count)
            stream.seek(0)
            reader = csv.reader(_lines(stream, file, what), delimiter=separator, strict=True)
            for number, fields in enumerate(reader, 1):
                if any(field.strip() for field in fields):
                    yield number, fields
    except OSError as error:
        raise DataError(f'Cannot read the {what} "{file}": {error.strerror}. Check the path and its rights.') from None
    except UnicodeDecodeError:
        raise DataError(
            f'The {what} "{file}" is not UTF-8 text (line {_first_wrong_line(file)}). Save it as "CSV UTF-8".'
        ) from None
    except csv.Error as error:
        raise DataError(f'The {what} "{file}" is not well-formed: line {reader.line_num}: {error}.') from None


def _lines(stream: TextIO, file: Path, what: str) -> Iterator[str]:
    """Yield the lines of a file; none may hold a NUL character."""
    for number, line in enumerate(stream, 1):
        if "\0" in line:
            raise DataError(f'The {what} "{file}" holds a NUL character (line {number}). Save it as "CSV UTF-8" again.')
        yield line


def _first_wrong_line(file: Path) -> int:
    """Return the number of the first line that is not UTF-8."""
    with io.TextIOWrapper(open_regular(file, None), "utf-8", "surrogateescape") as stream:
        return next(number for number, line in enumerate(stream, 1) if re.search("[\udc80-\udcff]", line))


def _features(fields: Sequence[str], header: Header, where: str) -> Floats:
    """Return the features of one row ``[a]``."""
    values = _finite_numbers([fields[position] for position in header.features])
    if values is not None:
        return values
    wrong = next(position for position in header.features if _finite_numbers([fields[position]]) is None)
    field = fields[wrong].strip()
    why = f'"{field:.40}" is not a finite number.' if field else "it is empty. Fill it or remove the row."
    raise DataError(f'{where}, column "{header.names[wrong]}": {why}')


def _finite_numbers(fields: Sequence[str]) -> Floats | None:
    """Return what fields hold ``[a]``, or None where one of them is no finite number."""
    try:
        with np.errstate(over="ignore"):
            values = np.array([float(field) for field in fields], np.float32)
    except ValueError:
        return None
    return values if np.isfinite(values).all() and "_" not in "".join(fields) else None  # Python reads 1_0 as ten
