"""Parquet files with a column of images, as the library datasets writes them: bytes, or a struct of ``bytes`` and ``path``.

Other columns mean what those of a table mean (``tables``). Labels that are numbers have the names that the file says of them (``ClassLabel``). A row
group is fetched as a whole into a file without a name, so that its images are found by row as in a tar file.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.images.sources.addresses import PARQUET, is_shard, open_stream
from labelwise.images.sources.blocks import Block, Content
from labelwise.images.sources.columns import Columns, read_header
from labelwise.images.sources.parquet_files import libraries, texts
from labelwise.support.errors import DataError, LabelwiseError
from labelwise.support.limits import check_size
from labelwise.support.regular import MAX_BYTES

ROWS = 32  # images that are taken out of a row group at a time


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
    """Return the rows of a Parquet file with images, which are not read."""
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
        raise DataError(f'"{address}" is no Parquet file, or it is damaged ({first:.200}). Write it again.') from None


def _image_column(schema: Any) -> tuple[str, str] | None:
    """Return the name of the first column that holds bytes, and which part of it does; None where there is none."""
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
    """Return the names that a file gives to its numbers of labels."""
    try:
        about = json.loads((schema.metadata or {})[b"huggingface"])
        names = about["info"]["features"]["label"]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return ()
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else ()


def _label_name(cell: str, names: tuple[str, ...]) -> str:
    return names[int(cell)] if cell.isascii() and cell.isdigit() and int(cell) < len(names) else cell


@dataclass(frozen=True)
class _Fetch:
    """Fetches the images of a row group."""

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
        return Content(file=file, starts=ends - lengths.clip(0), sizes=lengths, copied=int(ends[-1]) if sizes else 0)

    def _copy(self, table: Any, file: Any) -> list[int]:
        about = table.metadata.row_group(self.group)
        chunks = (about.column(i) for i in range(about.num_columns))
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
