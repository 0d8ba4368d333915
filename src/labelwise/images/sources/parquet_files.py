"""Parquet files read a few columns at a time, with pyarrow where it is installed."""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.images.sources.columns import Columns, Floats, Header, read_header
from labelwise.support.errors import DataError, UnsupportedError
from labelwise.support.limits import check_size
from labelwise.support.regular import open_regular

_COLUMNS_AT_ONCE, _ROWS_AT_ONCE = 16, 1 << 16
_POINTER = 8  # bytes that a cell takes at least


def read_parquet(file: Path) -> Columns:
    """Return the rows of a Parquet file, counted from 1; rows whose cells are all empty are left out, as in a CSV file."""
    pyarrow, parquet = libraries(file)
    try:
        with open_regular(file, None) as stream, parquet.ParquetFile(stream) as table:
            header = read_header(table.schema_arrow.names, str(file))
            fields = [table.schema_arrow.field(position) for position in header.cells.values()]
            texts = [field.name for field in fields if pyarrow.types.is_string(field.type)]
        with open_regular(file, None) as stream, parquet.ParquetFile(stream, read_dictionary=texts) as table:
            return _columns(file, table, header)
    except FileNotFoundError:
        raise DataError(f'Cannot read the table "{file}": no such file. Check the path.') from None
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        first = str(error).partition("\n")[0]
        raise DataError(f'The table "{file}" is no Parquet file, or it is damaged ({first}). Write it again.') from None


def libraries(file: str | Path) -> tuple[Any, Any]:
    """Return pyarrow and its reader of Parquet files, or raise an error that names what to install."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise UnsupportedError(
            f'Reading "{file}" needs pyarrow, which is not installed: pip install "labelwise[parquet]". '
            "Or save the table as CSV."
        ) from None


def _columns(file: Path, table: Any, header: Header) -> Columns:
    names, n = table.schema_arrow.names, table.metadata.num_rows
    check_size(file, n * (4 * len(header.features) + _POINTER * len(header.cells)))
    cells = {name: texts(table, names[position], file) for name, position in header.cells.items()}
    features = _features(table, header, file) if header.features else None
    filled = [features is not None or any(column[i] for column in cells.values()) for i in range(n)]
    numbers = [i for i, some in enumerate(filled, 1) if some]
    cells = {name: [column[i - 1] for i in numbers] for name, column in cells.items()}
    return Columns(file=str(file), numbers=numbers, cells=cells, features=features)


def texts(table: Any, name: str, file: str | Path) -> list[str]:
    """Return a column as text; only text and whole numbers can be."""
    values = _values(table, name, file)
    for number, value in enumerate(values, 1):
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise DataError(
                f'Row {number} of "{file}", column "{name}": {value!r:.60} is neither text nor a whole number.'
            )
        if isinstance(value, str) and "\0" in value:
            raise DataError(f'Row {number} of "{file}", column "{name}": it holds a NUL character. Remove it.')
    return ["" if value is None else str(value).strip() for value in values]


def _values(table: Any, name: str, file: str | Path) -> list[object]:
    """Return the cells of a column; a text that is in many rows is held once."""
    values: list[object] = []
    texts: dict[object, object] = {}
    words, size, last = [], 0, None
    for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=[name]):
        column = batch.column(0)
        if not hasattr(column, "dictionary"):
            values += column.to_pylist()
            continue
        if last is None or not column.dictionary.equals(last):
            last = column.dictionary
            check_size(file, size := size + last.nbytes)
            words = [texts.setdefault(word, word) for word in last.to_pylist()]
        values += [None if i is None else words[i] for i in column.indices.to_pylist()]
    if len(values) != table.metadata.num_rows:
        raise DataError(f'The table "{file}" is damaged: column "{name}" is not whole.')
    return values


def _features(table: Any, header: Header, file: Path) -> Floats:
    """Return the features ``[n, a]``, read a few columns at a time so that they are held once."""
    features = np.empty((table.metadata.num_rows, len(header.features)), np.float32)
    names = [table.schema_arrow.names[position] for position in header.features]
    for start in range(0, len(names), _COLUMNS_AT_ONCE):
        some = names[start : start + _COLUMNS_AT_ONCE]
        for j, column in enumerate(_read_columns(table, some, file), start):
            values = column.to_numpy()
            if values.dtype.kind not in "iuf":
                raise DataError(f'The table "{file}", column "{names[j]}" holds {column.type}. Features are numbers.')
            with np.errstate(over="ignore"):
                features[:, j] = values
            if not np.isfinite(features[:, j]).all():
                bad = int(np.argmin(np.isfinite(features[:, j]))) + 1
                raise DataError(f'Row {bad} of "{file}", column "{names[j]}" is empty or is not a finite number.')
    return features


def _read_columns(table: Any, names: list[str], file: Path) -> list[Any]:
    """Return some columns in the order asked for."""
    columns = table.read(columns=names)
    if columns.num_columns != len(names) or columns.num_rows != table.metadata.num_rows:
        raise DataError(f'The table "{file}" is damaged: column "{names[0]}" or one after it is not whole.')
    return [columns.column(name) for name in names]
