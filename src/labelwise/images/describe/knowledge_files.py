"""Read files that describe labels into ``Labels``; ``knowledge`` documents the formats."""

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from labelwise.images.describe.labels import Array, Labels, normal_name, tree_of, unfit_name
from labelwise.images.sources.delimited import all_rows
from labelwise.support.errors import DataError, UsageError, listing, suggest
from labelwise.support.files import check_size, read_regular

Fields = Sequence[tuple[int, Mapping[str, str]]]  # the row number and the cells
_KEYS = ("text", "texts", "vector", "order", "share", "parent", "parents")
RANKS = ("group", "subgenus", "genus", "tribe", "subfamily", "family", "superfamily", "suborder", "order", "class", "phylum", "kingdom")  # fmt: skip
ROUNDING = 0.01  # tolerance for the sum of shares
_TEXT = re.compile(r"text(_\d+)?")
_NUMBER = re.compile(r"[-+.\d]+(e[-+]?\d+)?|nan|[-+]?inf", re.IGNORECASE)
_PARENT = re.compile(r"parent(_\d+)?")
# A key with a hundred parts, such as a.a.a: the time of tomllib is quadratic in them.
_LONG_KEY = re.compile(r"""(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){100}""")


class _Row(NamedTuple):
    """The unchecked description of a label in a row or table; ``place`` starts an error message."""

    place: str
    texts: Sequence[object]
    vector: Sequence[object]
    order: object = None
    share: object = None
    parents: Sequence[object] = ()


def read_labels(file: Path) -> tuple[Labels, tuple[str, ...]]:
    """Read label descriptions and the names of the attributes in their vectors."""
    kind = file.suffix.lower()
    if kind == ".csv":
        columns, table = read_table(file)
        matrix = len(columns) > 1 and {row[columns[0]] for _, row in table} == {*columns[1:]}
        if matrix or file.name.casefold() == "similarity.csv":
            return _similarity(file, columns, table), ()
        return _assemble(file, *_rows_of_table(file, columns, table))
    if kind in (".toml", ".json"):
        return _assemble(file, *_rows_of_tables(file))
    if kind == ".txt":
        return _read_order(file), ()
    raise DataError(f'Cannot read "{file}": label knowledge is a .csv, .toml, .json or .txt file.')


def _rows_of_table(file: Path, columns: Sequence[str], table: Fields) -> tuple[dict[str, _Row], tuple[str, ...]]:
    """Read label descriptions from the rows of a CSV file, and the names of the attributes."""
    low = {column: column.casefold() for column in columns}
    key = [column for column in columns if low[column] in ("label", "name")]
    if len(key) != 1:
        raise DataError(f'"{file}" needs one column "label" (or "name"); its columns: {listing(columns)}.')
    repeated = [column for column, count in Counter(low.values()).items() if count > 1]
    if repeated:
        raise DataError(f'"{file}" has the column "{repeated[0]}" in small and in capital letters. Keep one.')
    texts = [column for column in columns if _TEXT.fullmatch(low[column])]
    parents = _parent_columns(columns, table)
    single = {low[each]: each for each in columns if low[each] in ("order", "share") and each not in parents}
    attributes = [column for column in columns if column not in (*key, *texts, *parents, *single.values())]
    rows_by_name: dict[str, _Row] = {}
    for number, row in table:
        place, name = f'Row {number} of "{file}"', normal_name(row[key[0]])
        if not name:
            raise DataError(f'{place}, column "{key[0]}": it is empty. Fill it or remove the row.')
        if name in rows_by_name:
            raise DataError(f'{place}: label "{name}" comes twice, first in {rows_by_name[name].place}. Keep one.')
        rows_by_name[name] = _Row(
            place=place,
            texts=[row[column] for column in texts if row[column]],
            vector=[row[column] for column in attributes],
            parents=[row[column] for column in parents if row[column]],
            **{piece: row[column] for piece, column in single.items() if row[column]},
        )
    return rows_by_name, tuple(attributes)


def _parent_columns(columns: Sequence[str], table: Fields) -> list[str]:
    """Return the parent columns, nearest first: parent, parent_2, and ranks such as genus that hold no number."""
    places: dict[str, tuple[int, int]] = {}
    for column in columns:
        rank, _, number = column.casefold().partition("_")
        cells = [row[column] for _, row in table if row[column]]
        if _PARENT.fullmatch(column.casefold()):
            places[column] = (-1, int(number or 1))
        elif column.casefold() in RANKS and cells and not any(map(_NUMBER.fullmatch, cells)):
            places[column] = (RANKS.index(rank), 0)
    return sorted(places, key=places.__getitem__)


def _rows_of_tables(file: Path) -> tuple[dict[str, _Row], tuple[str, ...]]:
    """Read label descriptions from the tables of a TOML or JSON file, and the names of the attributes."""
    text = _read_text(file)
    toml = file.suffix.lower() == ".toml"
    try:
        if toml and _LONG_KEY.search(text):
            raise RecursionError
        content = tomllib.loads(text) if toml else json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    except ValueError as error:
        raise DataError(f'"{file}" is not well-formed: {error}.') from None
    except RecursionError:
        raise DataError(
            f'"{file}" is nested too deep: it may hold labels and a table of each, nothing deeper.'
        ) from None
    if not isinstance(content, dict) or not isinstance(content.get("labels"), dict):
        raise DataError(f'"{file}" needs a table "labels" with one table for each label: [labels."barn owl"].')
    _check_keys(content, ("labels", "attributes"), f'"{file}"')
    rows_by_name: dict[str, _Row] = {}
    for name, entry in content["labels"].items():
        place = f'Label "{name}" of "{file}"'
        if not isinstance(entry, dict):
            raise DataError(f"{place} must be a table with some of: {listing(_KEYS)}. Given: {_short(entry)}.")
        _check_keys(entry, _KEYS, place)
        if normal_name(name) in rows_by_name:
            raise DataError(f"{place} comes twice, in different Unicode spellings. Keep one.")
        rows_by_name[normal_name(name)] = _Row(
            place=place,
            texts=[*([entry["text"]] if "text" in entry else []), *entry.get("texts", [])],
            vector=entry.get("vector", []),
            order=entry.get("order"),
            share=entry.get("share"),
            parents=[*([entry["parent"]] if "parent" in entry else []), *entry.get("parents", [])],
        )
    return rows_by_name, tuple(map(str, content.get("attributes", [])))


def read_table(file: Path) -> tuple[list[str], Fields]:
    """Return the columns of a CSV file, and its numbered rows."""
    (_, first), *body = all_rows(file) or [(0, [])]
    columns = [field.strip() for field in first]
    while columns and not columns[-1]:
        columns.pop()
    for number, fields in body:
        if any(field.strip() for field in fields[len(columns) :]):
            raise DataError(
                f'Row {number} of "{file}" has {len(fields)} fields, the header {len(columns)}. Name each column.'
            )
    repeated = [column for column, count in Counter(columns).items() if count > 1]
    if repeated or not columns:
        wrong = f'more than one column "{repeated[0]}"' if repeated else "no columns"
        raise DataError(f'The table "{file}" has {wrong}. Its first row must name each column once.')
    rows = [(number, [field.strip() for field in fields]) for number, fields in body]
    return columns, [(number, dict(zip(columns, fields, strict=False))) for number, fields in rows]


def _check_keys(table: Mapping[str, object], keys: Sequence[str], place: str) -> None:
    """Raise an error for an unknown key, and for a value that is not a list."""
    for key, value in table.items():
        if key not in keys:
            raise DataError(f'{place}: unknown key "{key}".{suggest(key, keys)} Keys: {listing(keys)}.')
        if key in ("texts", "vector", "attributes", "parents") and not isinstance(value, list):
            raise DataError(f'{place}, "{key}": a list was expected; given {_short(value)}.')


def _short(value: object) -> str:
    """Return the start of a value, for an error message."""
    try:
        return f"{value!r:.60}"
    except RecursionError:  # TOML tables can nest without limit by dots: a.a.a
        return "tables inside tables"


def _refuse_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a table from pairs; raise an error for a repeated key."""
    repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if repeated:
        raise ValueError(f'"{repeated[0]}" is given twice')
    return dict(pairs)


def _assemble(
    file: Path, rows_by_name: Mapping[str, _Row], attributes: tuple[str, ...]
) -> tuple[Labels, tuple[str, ...]]:
    """Build all labels of a file; each piece must be given for all labels or for none."""
    if not rows_by_name:
        raise DataError(f'"{file}" describes no label. Add a row for each.')
    for name, row in rows_by_name.items():
        if unfit := unfit_name(name):
            raise DataError(f"{row.place} cannot be a label: {unfit}. Write it in one line of UTF-8.")
    rows = list(rows_by_name.values())
    for piece in ("texts", "vector", "order", "share"):
        incomplete = [row for row in rows if getattr(row, piece) in (None, [])]
        if incomplete and len(incomplete) < len(rows):
            raise DataError(
                f'{incomplete[0].place} has no "{piece}", and other labels do. Give it for all or for none.'
            )
    size = len(attributes) or len(rows[0].vector)
    for row in rows:
        if len(row.vector) not in (0, size):
            raise DataError(f"{row.place}: its vector has {len(row.vector)} numbers, not {size} as expected.")
        blank = [text for text in row.texts if not isinstance(text, str) or not text.strip()]
        if blank:
            raise DataError(f'{row.place}, "texts": each must be a sentence; given {_short(blank[0])}.')
        blank = [name for name in row.parents if not isinstance(name, str) or not name.strip()]
        if blank:
            raise DataError(f'{row.place}, "parents": each must be a name; given {_short(blank[0])}.')
    columns = attributes or tuple(f"vector[{i}]" for i in range(size))
    vectors = [
        [_finite_number(x, row.place, at) for at, x in zip(columns, row.vector, strict=True)]
        for row in rows
        if row.vector
    ]
    labels = Labels(
        names=tuple(rows_by_name),
        vectors=np.array(vectors, np.float32) if vectors else None,
        texts=tuple(tuple(map(str, row.texts)) for row in rows) if rows[0].texts else None,
        order=_ranks(file, rows) if rows[0].order is not None else None,
        shares=_shares(file, rows) if rows[0].share is not None else None,
        parents=_parents(file, rows_by_name),
    )
    return labels, attributes if vectors else ()


def _parents(file: Path, rows_by_name: Mapping[str, _Row]) -> tuple[tuple[str, ...], ...] | None:
    """Return the parents of each label, or None if no label has any."""
    try:
        parents = tree_of({name: [str(parent) for parent in row.parents] for name, row in rows_by_name.items()})
    except UsageError as error:
        raise DataError(f'"{file}": {error}') from None
    return parents if any(parents) else None


def _ranks(file: Path, rows: Sequence[_Row]) -> tuple[int, ...]:
    ranks = [_finite_number(row.order, row.place, "order") for row in rows]
    first = min(ranks)
    if first not in (0, 1) or sorted(ranks) != [first + i for i in range(len(ranks))]:
        raise DataError(
            f'The column "order" of "{file}" must hold the ranks 1 to {len(ranks)}, each once; given '
            f"{listing(f'{rank:g}' for rank in ranks)}."
        )
    return tuple(int(rank - first) for rank in ranks)


def _shares(file: Path, rows: Sequence[_Row]) -> Array:
    shares = [_finite_number(row.share, row.place, "share") for row in rows]
    if min(shares) < 0:
        raise DataError(f"{rows[shares.index(min(shares))].place}: a share is at least 0; given {min(shares):g}.")
    if abs(sum(shares) - 1) > ROUNDING:
        raise DataError(f'The column "share" of "{file}" must sum to 1; it sums to {sum(shares):.4f}.')
    return np.array(shares, np.float32) / np.float32(sum(shares))


def _similarity(file: Path, columns: Sequence[str], table: Fields) -> Labels:
    first, *columns_of_labels = columns
    names = [normal_name(column) for column in columns_of_labels]
    lines: dict[str, list[float]] = {}
    for number, row in table:
        name, place = normal_name(row[first]), f'Row {number} of "{file}"'
        if name not in names or name in lines:
            wrong = "comes twice. Keep one." if name in lines else f"is not in the first row.{suggest(name, names)}"
            raise DataError(f'{place}: label "{name}" {wrong}')
        lines[name] = [_finite_number(row[column], place, column) for column in columns_of_labels]
    missing = [name for name in names if name not in lines]
    if missing or not names:
        raise DataError(f'"{file}" has no row for: {listing(missing) or "any label"}. Add one for each column.')
    return Labels(names=tuple(names), similarity=np.array([lines[name] for name in names], np.float32))


def _read_order(file: Path) -> Labels:
    """Read the labels of a file with one label a line, from lowest to highest."""
    names = [normal_name(line) for line in _read_text(file).splitlines() if line.strip()]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated or not names:
        raise DataError(f'"{file}" must name each label once, one a line; named twice: {listing(repeated) or "none"}.')
    return Labels(names=tuple(names), order=tuple(range(len(names))))


def _read_text(file: Path) -> str:
    try:
        check_size(file, file.stat().st_size)
        return read_regular(file).decode("utf-8-sig")
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror}. Check the path and its rights.') from None
    except UnicodeDecodeError:
        raise DataError(f'"{file}" is not UTF-8 text. Save it as UTF-8.') from None


def _finite_number(cell: object, place: str, column: str) -> float:
    """Parse a finite number, or raise an error that names row and column."""
    value = math.nan
    if isinstance(cell, str | int | float) and not isinstance(cell, bool):
        with suppress(ValueError, OverflowError):
            value = float(cell)
    if not abs(value) < 3e38:  # larger numbers are infinite in single precision
        near = suggest(column.casefold(), ("label", "text", "order", "share"))
        raise DataError(
            f'{place}, column "{column}": a finite number was expected, as 0.5; given "{cell!s:.60}".{near}'
        )
    return value
