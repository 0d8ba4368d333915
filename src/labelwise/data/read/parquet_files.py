"""Parquet files read a few columns at a time, with pyarrow where it is installed."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.data.read.columns import Columns, Floats, Header, read_header
from labelwise.errors import DataError, UnsupportedError

_COLUMNS_AT_ONCE = 16


def read_parquet(file: Path) -> Columns:
    """Return the rows of a Parquet file, counted from 1; rows whose cells are all empty are left out, as in a CSV file."""
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise UnsupportedError(
            f'Reading "{file}" needs pyarrow, which is not installed: pip install "labelwise[parquet]". '
            "Or save the table as CSV."
        ) from None
    try:
        with parquet.ParquetFile(file) as table:
            return _columns(file, table)
    except FileNotFoundError:
        raise DataError(f'Cannot read the table "{file}": no such file. Check the path.') from None
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        first = str(error).partition("\n")[0]
        raise DataError(f'The table "{file}" is no Parquet file, or it is damaged ({first}). Write it again.') from None


def _columns(file: Path, table: Any) -> Columns:
    names, n = table.schema_arrow.names, table.metadata.num_rows
    header = read_header(names, str(file))
    cells = {name: _texts(table, names[position], file) for name, position in header.cells.items()}
    features = _features(table, header, file) if header.features else None
    filled = [features is not None or any(column[i] for column in cells.values()) for i in range(n)]
    numbers = [i for i, some in enumerate(filled, 1) if some]
    cells = {name: [column[i - 1] for i in numbers] for name, column in cells.items()}
    return Columns(file=str(file), numbers=numbers, cells=cells, features=features)


def _texts(table: Any, name: str, file: Path) -> list[str]:
    """Return a column as text; only text and whole numbers can be."""
    values = _read(table, [name], file)[0].to_pylist()
    for number, value in enumerate(values, 1):
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise DataError(
                f'Row {number} of "{file}", column "{name}": {value!r:.60} is neither text nor a whole number.'
            )
        if isinstance(value, str) and "\0" in value:
            raise DataError(f'Row {number} of "{file}", column "{name}": it holds a NUL character. Remove it.')
    return ["" if value is None else str(value).strip() for value in values]


def _features(table: Any, header: Header, file: Path) -> Floats:
    """Return the features ``[n, a]``, read a few columns at a time so that they are held once."""
    features = np.empty((table.metadata.num_rows, len(header.features)), np.float32)
    names = [table.schema_arrow.names[position] for position in header.features]
    for start in range(0, len(names), _COLUMNS_AT_ONCE):
        some = names[start : start + _COLUMNS_AT_ONCE]
        for j, column in enumerate(_read(table, some, file), start):
            values = column.to_numpy()
            if values.dtype.kind not in "iuf":
                raise DataError(f'The table "{file}", column "{names[j]}" holds {column.type}. Features are numbers.')
            with np.errstate(over="ignore"):
                features[:, j] = values
            if not np.isfinite(features[:, j]).all():
                bad = int(np.argmin(np.isfinite(features[:, j]))) + 1
                raise DataError(f'Row {bad} of "{file}", column "{names[j]}" is empty or is not a finite number.')
    return features


def _read(table: Any, names: list[str], file: Path) -> list[Any]:
    """Return some columns in the order asked for."""
    columns = table.read(columns=names)
    if columns.num_columns != len(names) or columns.num_rows != table.metadata.num_rows:
        raise DataError(f'The table "{file}" is damaged: column "{names[0]}" or one after it is not whole.')
    return [columns.column(name) for name in names]
