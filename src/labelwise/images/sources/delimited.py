"""Delimited text read row by row: CSV files, and tab-separated tables, also compressed (``.gz``)."""

import csv
import io
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

from labelwise.support.errors import DataError, listing, suggest
from labelwise.support.files import check_size, max_bytes, open_gzip, open_regular

_SEPARATORS = ",;\t"
_CELL = 100  # approximate bytes of a cell with its column name
C = TypeVar("C", dict[str, str], list[str])


def read_fields(
    file: Path, *required: str, noun: str = "table", errors: str = "strict"
) -> list[tuple[int, dict[str, str]]]:
    """Return all rows of ``fields``, within the memory limit."""
    return _bounded(fields(file, *required, noun=noun, errors=errors), file)


def fields(
    file: Path,
    *required: str,
    noun: str = "table",
    errors: str = "strict",
    separator: str = "",
    quoted: bool = True,
) -> Generator[tuple[int, dict[str, str]]]:
    """Yield the number and the fields of each row by lower-case column; each ``required`` column exists once."""
    rows = headed_rows(file, noun=noun, errors=errors, separator=separator, quoted=quoted)
    _, first = next(rows, (0, list[str]()))
    columns = [field.strip().casefold() for field in first]
    for column in required:
        if columns.count(column) != 1:
            raise DataError(
                f'The {noun} "{file}" needs one column "{column}"; its columns: {listing(columns) or "none"}.'
                + suggest(column, columns)
            )
    yield from ((number, dict(zip(columns, cells, strict=True))) for number, cells in rows)


def all_rows(file: Path, *, noun: str = "table", errors: str = "strict") -> list[tuple[int, list[str]]]:
    """Return all rows of ``headed_rows``, within the memory limit."""
    return _bounded(headed_rows(file, noun=noun, errors=errors), file)


def _bounded(lines: Generator[tuple[int, C]], file: Path) -> list[tuple[int, C]]:
    """Return all rows, within the memory limit; short rows of a wide table count in full."""
    rows, cells, most = list[tuple[int, C]](), 0, max_bytes() / _CELL
    with closing(lines):
        for number, row in lines:
            cells += len(row)
            if cells > most:
                check_size(file, cells * _CELL)
            rows.append((number, row))
    return rows


def first_columns(file: Path) -> set[str]:
    """Return the columns of the header in lower case; none if the file is unreadable."""
    try:
        with open_regular(file, None) as stream:
            line = stream.readline(1 << 16).decode("utf-8-sig", "replace").casefold()
    except OSError:
        return set()
    return {cell.strip().strip('"') for cell in re.split(f"[{_SEPARATORS}]", line)}


def headed_rows(
    file: Path, *, noun: str = "table", errors: str = "strict", separator: str = "", quoted: bool = True
) -> Generator[tuple[int, list[str]]]:
    """Yield rows as ``records`` does, after a header; all rows have its number of fields."""
    width = 0
    for number, fields in records(file, noun=noun, errors=errors, separator=separator, quoted=quoted):
        width = width or len(fields)
        if any(field.strip() for field in fields[width:]):
            raise DataError(
                f'Row {number} of "{file}" has {len(fields)} fields, the header {width}. Put fields that hold a separator '
                "into quotes."
            )
        yield number, fields[:width] + [""] * (width - len(fields))


def records(
    file: Path, *, noun: str = "table", errors: str = "strict", separator: str = "", quoted: bool = True
) -> Generator[tuple[int, list[str]]]:
    """Yield the number, from 1, and the fields of each nonempty row. Errors call the file ``noun``.

    Without a ``separator``, it is a comma, a semicolon or a tab. Where fields are not ``quoted``, quotes are characters as any other.
    """
    reader = None
    try:
        check_size(file, file.stat().st_size)
        with io.TextIOWrapper(_open(file), "utf-8-sig", errors, newline="") as stream:
            if not separator:
                separator = max(_SEPARATORS, key=stream.readline(1 << 20).count)
                stream.seek(0)
            lines = _lines(stream, file, noun)
            if quoted:
                reader = csv.reader(lines, delimiter=separator, strict=True)
            else:
                reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE, strict=True)
            for number, fields in enumerate(reader, 1):
                if any(field.strip() for field in fields):
                    yield number, fields
    except OSError as error:
        raise DataError(f'Cannot read the {noun} "{file}": {error.strerror}. Check the path and its rights.') from None
    except UnicodeDecodeError:
        raise DataError(
            f'The {noun} "{file}" is not UTF-8 text (line {_first_wrong_line(file)}). Save it as "CSV UTF-8".'
        ) from None
    except (csv.Error, TypeError) as error:  # TypeError: an invalid separator
        line = reader.line_num if reader else 1
        raise DataError(f'The {noun} "{file}" is not well-formed: line {line}: {error}.') from None


def _lines(stream: TextIO, file: Path, noun: str) -> Iterator[str]:
    """Yield the lines of a file; NUL characters are errors."""
    for number, line in enumerate(stream, 1):
        if "\0" in line:
            raise DataError(f'The {noun} "{file}" holds a NUL character (line {number}). Save it as "CSV UTF-8" again.')
        yield line


def _first_wrong_line(file: Path) -> int:
    """Return the number of the first line that is not valid UTF-8."""
    with io.TextIOWrapper(_open(file), "utf-8", "surrogateescape") as stream:
        return next(number for number, line in enumerate(stream, 1) if re.search("[\udc80-\udcff]", line))


def _open(file: Path) -> BinaryIO:
    stream = open_regular(file, None)
    return open_gzip(stream, file) if file.suffix.lower() == ".gz" else stream
