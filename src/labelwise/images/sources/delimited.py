"""Text in rows and fields, read row by row: CSV files, and tables separated by tabs, also packed (``.gz``)."""

import csv
import io
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

from labelwise.support.errors import DataError, listing, suggest
from labelwise.support.files import check_size, max_bytes, open_regular, unpacked

_SEPARATORS = ",;\t"
_CELL = 100  # bytes that a cell takes by the name of its column, about
C = TypeVar("C", dict[str, str], list[str])


def read_fields(
    file: Path, *needed: str, what: str = "table", errors: str = "strict"
) -> list[tuple[int, dict[str, str]]]:
    """Return all that ``fields`` yields, as far as memory allows."""
    return _bounded(fields(file, *needed, what=what, errors=errors), file)


def fields(
    file: Path,
    *needed: str,
    what: str = "table",
    errors: str = "strict",
    separator: str = "",
    quoted: bool = True,
) -> Generator[tuple[int, dict[str, str]]]:
    """Yield the number of each row and its fields by column, in small letters; each column that is ``needed`` is there once."""
    rows = headed_rows(file, what=what, errors=errors, separator=separator, quoted=quoted)
    _, first = next(rows, (0, list[str]()))
    columns = [field.strip().casefold() for field in first]
    for column in needed:
        if columns.count(column) != 1:
            raise DataError(
                f'The {what} "{file}" needs one column "{column}"; its columns: {listing(columns) or "none"}.'
                + suggest(column, columns)
            )
    yield from ((number, dict(zip(columns, cells, strict=True))) for number, cells in rows)


def all_rows(file: Path, *, what: str = "table", errors: str = "strict") -> list[tuple[int, list[str]]]:
    """Return all that ``headed_rows`` yields, as far as memory allows."""
    return _bounded(headed_rows(file, what=what, errors=errors), file)


def _bounded(lines: Generator[tuple[int, C]], file: Path) -> list[tuple[int, C]]:
    """Return all rows; short rows of a wide table take as much memory as long ones."""
    rows, cells, most = list[tuple[int, C]](), 0, max_bytes() / _CELL
    with closing(lines):
        for number, row in lines:
            cells += len(row)
            if cells > most:
                check_size(file, cells * _CELL)
            rows.append((number, row))
    return rows


def first_columns(file: Path) -> set[str]:
    """Return the columns that the first line of a file names, in small letters; none of a file that cannot be read."""
    try:
        with open_regular(file, None) as stream:
            line = stream.readline(1 << 16).decode("utf-8-sig", "replace").casefold()
    except OSError:
        return set()
    return {cell.strip().strip('"') for cell in re.split(f"[{_SEPARATORS}]", line)}


def headed_rows(
    file: Path, *, what: str = "table", errors: str = "strict", separator: str = "", quoted: bool = True
) -> Generator[tuple[int, list[str]]]:
    """Yield what ``records`` does, where the first row names the columns: all rows have as many fields as it."""
    width = 0
    for number, fields in records(file, what=what, errors=errors, separator=separator, quoted=quoted):
        width = width or len(fields)
        if any(field.strip() for field in fields[width:]):
            raise DataError(
                f'Row {number} of "{file}" has {len(fields)} fields, the header {width}. Put fields that hold a separator '
                "into quotes."
            )
        yield number, fields[:width] + [""] * (width - len(fields))


def records(
    file: Path, *, what: str = "table", errors: str = "strict", separator: str = "", quoted: bool = True
) -> Generator[tuple[int, list[str]]]:
    """Yield the fields of each row that has any content, with its number; the first is 1. Errors call the file ``what``.

    Without a ``separator``, it is a comma, a semicolon or a tab. Where fields are not ``quoted``, quotes are characters as any other.
    """
    reader = None
    try:
        check_size(file, file.stat().st_size)
        with io.TextIOWrapper(_open(file), "utf-8-sig", errors, newline="") as stream:
            if not separator:
                separator = max(_SEPARATORS, key=stream.readline(1 << 20).count)
                stream.seek(0)
            lines = _lines(stream, file, what)
            if quoted:
                reader = csv.reader(lines, delimiter=separator, strict=True)
            else:
                reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE, strict=True)
            for number, fields in enumerate(reader, 1):
                if any(field.strip() for field in fields):
                    yield number, fields
    except OSError as error:
        raise DataError(f'Cannot read the {what} "{file}": {error.strerror}. Check the path and its rights.') from None
    except UnicodeDecodeError:
        raise DataError(
            f'The {what} "{file}" is not UTF-8 text (line {_first_wrong_line(file)}). Save it as "CSV UTF-8".'
        ) from None
    except (csv.Error, TypeError) as error:  # TypeError: of a separator that is none
        line = reader.line_num if reader else 1
        raise DataError(f'The {what} "{file}" is not well-formed: line {line}: {error}.') from None


def _lines(stream: TextIO, file: Path, what: str) -> Iterator[str]:
    """Yield the lines of a file; none may hold a NUL character."""
    for number, line in enumerate(stream, 1):
        if "\0" in line:
            raise DataError(f'The {what} "{file}" holds a NUL character (line {number}). Save it as "CSV UTF-8" again.')
        yield line


def _first_wrong_line(file: Path) -> int:
    """Return the number of the first line that is not UTF-8."""
    with io.TextIOWrapper(_open(file), "utf-8", "surrogateescape") as stream:
        return next(number for number, line in enumerate(stream, 1) if re.search("[\udc80-\udcff]", line))


def _open(file: Path) -> BinaryIO:
    stream = open_regular(file, None)
    return unpacked(stream, file) if file.suffix.lower() == ".gz" else stream
