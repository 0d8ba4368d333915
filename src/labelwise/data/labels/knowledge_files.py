"""The files that describe labels, read into rows: tables with a row for each label, and TOML or JSON with a table for each.

``knowledge`` says what such files look like, and makes labels of the rows.
"""

import json
import math
import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labelwise.data.read.csv_files import headed
from labelwise.errors import DataError, listing, suggest

Fields = Sequence[tuple[int, Mapping[str, str]]]  # the number and the cells of each row of a table
_KEYS = ("text", "texts", "vector", "order", "share")
_TEXT = re.compile(r"text(_\d+)?")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a row or table says about a label, not yet checked; ``where`` begins an error about it."""

    where: str
    texts: Sequence[object]
    vector: Sequence[object]
    order: object = None
    share: object = None


def rows_of_table(file: Path, columns: Sequence[str], table: Fields) -> tuple[dict[str, Row], tuple[str, ...]]:
    """Return what each row of a CSV file says about its label, and the names of the attributes."""
    low = {column: column.casefold() for column in columns}
    key = [column for column in columns if low[column] in ("label", "name")]
    if len(key) != 1:
        raise DataError(f'"{file}" needs one column "label" (or "name"); its columns: {listing(columns)}.')
    twice = [column for column, count in Counter(low.values()).items() if count > 1]
    if twice:
        raise DataError(f'"{file}" has the column "{twice[0]}" in small and in capital letters. Keep one.')
    texts = [column for column in columns if _TEXT.fullmatch(low[column])]
    single = {low[column]: column for column in columns if low[column] in ("order", "share")}
    attributes = [column for column in columns if column not in (*key, *texts, *single.values())]
    known: dict[str, Row] = {}
    for number, row in table:
        where, name = f'Row {number} of "{file}"', label_name(row[key[0]])
        if not name:
            raise DataError(f'{where}, column "{key[0]}": it is empty. Fill it or remove the row.')
        if name in known:
            raise DataError(f'{where}: label "{name}" comes twice, first in {known[name].where}. Keep one.')
        known[name] = Row(
            where=where,
            texts=[row[column] for column in texts if row[column]],
            vector=[row[column] for column in attributes],
            **{piece: row[column] for piece, column in single.items() if row[column]},
        )
    return known, tuple(attributes)


def read_tables(file: Path) -> tuple[dict[str, Row], tuple[str, ...]]:
    """Return what each table of a TOML or JSON file says about its label, and the names of the attributes."""
    text = read_text(file)
    try:
        content = tomllib.loads(text) if file.suffix.lower() == ".toml" else json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise DataError(f'"{file}" is not well-formed: {error}.') from None
    if not isinstance(content, dict) or not isinstance(content.get("labels"), dict):
        raise DataError(f'"{file}" needs a table "labels" with one table for each label: [labels."barn owl"].')
    _check_keys(content, ("labels", "attributes"), f'"{file}"')
    known: dict[str, Row] = {}
    for name, entry in content["labels"].items():
        where = f'Label "{name}" of "{file}"'
        if not isinstance(entry, dict):
            raise DataError(f"{where} must be a table with some of: {listing(_KEYS)}. Given: {entry!r}.")
        _check_keys(entry, _KEYS, where)
        if label_name(name) in known:
            raise DataError(f"{where} comes twice, in different Unicode spellings. Keep one.")
        known[label_name(name)] = Row(
            where=where,
            texts=[*([entry["text"]] if "text" in entry else []), *entry.get("texts", [])],
            vector=entry.get("vector", []),
            order=entry.get("order"),
            share=entry.get("share"),
        )
    return known, tuple(map(str, content.get("attributes", [])))


def read_table(file: Path) -> tuple[list[str], Fields]:
    """Return the columns of a CSV file, and the number and the fields of each row."""
    (_, first), *rest = list(headed(file)) or [(0, [])]
    columns = [field.strip() for field in first]
    while columns and not columns[-1]:
        columns.pop()
    for number, fields in rest:
        if any(field.strip() for field in fields[len(columns) :]):
            raise DataError(
                f'Row {number} of "{file}" has {len(fields)} fields, the header {len(columns)}. Name each column.'
            )
    twice = [column for column, count in Counter(columns).items() if count > 1]
    if twice or not columns:
        wrong = f'more than one column "{twice[0]}"' if twice else "no columns"
        raise DataError(f'The table "{file}" has {wrong}. Its first row must name each column once.')
    rows = [(number, [field.strip() for field in fields]) for number, fields in rest]
    return columns, [(number, dict(zip(columns, fields, strict=False))) for number, fields in rows]


def read_text(file: Path) -> str:
    """Return the text of a file, without a byte-order mark."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror}. Check the path and its rights.') from None
    except UnicodeDecodeError:
        raise DataError(f'"{file}" is not UTF-8 text. Save it as UTF-8.') from None


def finite_number(cell: object, where: str, column: str) -> float:
    """Return a finite number, or raise an error that names row and column."""
    value = math.nan
    if isinstance(cell, str | int | float) and not isinstance(cell, bool):
        with suppress(ValueError, OverflowError):
            value = float(cell)
    if not math.isfinite(value):
        near = suggest(column.casefold(), ("label", "text", "order", "share"))
        raise DataError(f'{where}, column "{column}": a finite number was expected, as 0.5; given "{cell}".{near}')
    return value


def _check_keys(table: Mapping[str, object], keys: Sequence[str], where: str) -> None:
    """Raise an error for a key that means nothing, and for a list that is none."""
    for key, value in table.items():
        if key not in keys:
            raise DataError(f'{where}: unknown key "{key}".{suggest(key, keys)} Keys: {listing(keys)}.')
        if key in ("texts", "vector", "attributes") and not isinstance(value, list):
            raise DataError(f'{where}, "{key}": a list was expected; given {value!r}.')


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the table of these pairs; a key given twice is an error."""
    twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    if twice:
        raise ValueError(f'"{twice[0]}" is given twice')
    return dict(pairs)


def label_name(name: str) -> str:
    """Return the name of a label without spaces around it, in one Unicode spelling."""
    return unicodedata.normalize("NFC", name.strip())
