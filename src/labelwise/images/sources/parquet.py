"""Read Parquet files a few columns at a time, with pyarrow if installed."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.images.sources.csv_files import Columns, Floats, TableHeader, read_header
from labelwise.images.sources.paths import PARQUET, is_shard, open_stream
from labelwise.images.sources.rows import Block, Content
from labelwise.support.errors import DataError, LabelwiseError, UnsupportedError
from labelwise.support.files import MAX_BYTES, check_size, open_regular

_COLUMNS_AT_ONCE, _ROWS_AT_ONCE = 16, 1 << 16
_POINTER = 8  # least bytes of a cell


def read_parquet(file: Path) -> Columns:
    """Return the nonempty rows of a Parquet file, counted from 1."""
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
        raise DataError(
            f'The table "{file}" is not a Parquet file, or it is damaged ({first}). Write it again.'
        ) from None


def libraries(file: str | Path) -> tuple[Any, Any]:
    """Import pyarrow and its Parquet reader, or raise an error that names the package to install."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise UnsupportedError(
            f'Reading "{file}" needs pyarrow, which is not installed: pip install "labelwise[parquet]". '
            "Or save the table as CSV."
        ) from None


def _columns(file: Path, table: Any, header: TableHeader) -> Columns:
    names, n = table.schema_arrow.names, table.metadata.num_rows
    check_size(file, n * (4 * len(header.features) + _POINTER * len(header.cells)))
    cells = {name: texts(table, names[position], file) for name, position in header.cells.items()}
    features = _features(table, header, file) if header.features else None
    has_value = [features is not None or any(column[i] for column in cells.values()) for i in range(n)]
    numbers = [i for i, some in enumerate(has_value, 1) if some]
    cells = {name: [column[i - 1] for i in numbers] for name, column in cells.items()}
    return Columns(file=str(file), numbers=numbers, cells=cells, features=features)


def texts(table: Any, name: str, file: str | Path) -> list[str]:
    """Return a column as text, from text or integers."""
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
    """Return the cells of a column; equal texts share memory."""
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


def _features(table: Any, header: TableHeader, file: Path) -> Floats:
    """Return the features ``[n, a]``, read a few columns at a time, so that they are in memory once."""
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
    """Return columns in the requested order."""
    columns = table.read(columns=names)
    if columns.num_columns != len(names) or columns.num_rows != table.metadata.num_rows:
        raise DataError(f'The table "{file}" is damaged: column "{names[0]}" or one after it is not whole.')
    return [columns.column(name) for name in names]


ROWS = 32  # images read from a row group at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class ParquetShard:
    """The rows of a Parquet file with images."""

    columns: Columns  # without the images
    blocks: tuple[Block, ...]  # its row groups


def has_images(file: Path) -> bool:
    """Return whether a file is a Parquet file with a column of images."""
    with suppress(LabelwiseError):
        if is_shard(file.name, PARQUET) and file.is_file():
            with _open(str(file)) as table:
                return _image_column(table.schema_arrow) is not None
    return False


def read_parquet_shard(address: str) -> ParquetShard:
    """Return the rows of a Parquet file with images, without reading the images."""
    with _open(address) as table:
        schema, groups = table.schema_arrow, table.metadata.num_row_groups
        column = _image_column(schema)
        if column is None:
            raise DataError(f'"{address}" has no column of images. Its columns: {", ".join(schema.names)}.')
        sizes = [table.metadata.row_group(group).num_rows for group in range(groups)]
        header = read_header(["path" if name == column[0] else name for name in schema.names], address)
        check_size(address, table.metadata.num_rows * 8 * len(header.cells))
        cells = {name: texts(table, schema.names[at], address) for name, at in header.cells.items() if name != "path"}
        names = _label_names(schema) if "label" in cells else ()
        cells |= {"label": [_label_name(cell, names) for cell in cells["label"]]} if names else {}
    columns = Columns(file=address, numbers=range(1, sum(sizes) + 1), cells=cells)
    blocks = tuple(
        Block(rows=rows, fetch=_Fetch(address, group, column[1])) for group, rows in enumerate(sizes) if rows
    )
    return ParquetShard(columns=columns, blocks=blocks)


@contextmanager
def _open(address: str) -> Iterator[Any]:
    pyarrow, parquet = libraries(address)
    try:
        with open_stream(address) as stream, parquet.ParquetFile(stream) as table:
            yield table
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        first = str(error).partition("\n")[0]
        raise DataError(
            f'"{address}" is not a Parquet file, or it is damaged ({first:.200}). Write it again.'
        ) from None


def _image_column(schema: Any) -> tuple[str, str] | None:
    """Return the name of the first column with bytes, and its field; None if there is none."""
    pyarrow, _ = libraries("")

    def is_bytes(kind: Any) -> bool:
        return bool(pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind))

    for column in schema:
        if is_bytes(column.type):
            return column.name, column.name
        if pyarrow.types.is_struct(column.type) and any(
            part.name == "bytes" and is_bytes(part.type) for part in column.type
        ):
            return column.name, f"{column.name}.bytes"
    return None


def _label_names(schema: Any) -> tuple[str, ...]:
    """Return the label names stored in a file's metadata."""
    try:
        metadata = json.loads((schema.metadata or {})[b"huggingface"])
        names = metadata["info"]["features"]["label"]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return ()
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _label_name(cell: str, names: tuple[str, ...]) -> str:
    return names[int(cell)] if cell.isascii() and cell.isdigit() and int(cell) < len(names) else cell


@dataclass(frozen=True)
class _Fetch:
    """Read the images of a row group."""

    address: str
    group: int
    column: str

    def __call__(self) -> Content:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - ``Blocks`` closes it
        try:
            with _open(self.address) as table:
                sizes = self._copy(table, file)
        except BaseException:
            file.close()
            raise
        lengths = np.array(sizes, np.int64)
        ends = np.cumsum(lengths.clip(0))
        return Content(
            file=file, starts=ends - lengths.clip(0), sizes=lengths, disk_bytes=int(ends[-1]) if sizes else 0
        )

    def _copy(self, table: Any, file: Any) -> list[int]:
        row_group = table.metadata.row_group(self.group)
        chunks = (row_group.column(i) for i in range(row_group.num_columns))
        size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == self.column)
        check_size(self.address, size)
        sizes: list[int] = []
        for batch in table.iter_batches(batch_size=ROWS, row_groups=[self.group], columns=[self.column]):
            column = batch.column(0)
            column = column.field("bytes") if hasattr(column, "field") else column
            for cell in column:
                content = cell.as_py()
                sizes.append(-1 if content is None or len(content) > MAX_BYTES else len(content))
                if sizes[-1] > 0:
                    file.write(content)
        file.flush()
        return sizes
