"""Rows of a gallery's table on disk: columns, row checksums, and plain errors for the table's engine."""

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import StoreError, UsageError

FORMAT = "labelwise gallery 2"
VECTORS = "embedding"
COLUMNS = ("file", "label", "date", "folder")  # columns that filters may name
READ_BACK = (VECTORS, "file", "label", "date", "crc")  # columns needed to check a row
Kind = Literal["cosine", "whitened"]
Vectors = npt.NDArray[np.float32]


def table_schema(probe: list[list[float]], by: Kind, made_by: str) -> Any:
    """Return the columns of a table, and its metadata."""
    import pyarrow as pa

    description = {"format": FORMAT, "by": by, "made_by": made_by, "probe": probe}
    columns = [
        pa.field(VECTORS, pa.list_(pa.float32(), len(probe[0]))),
        *(pa.field(name, pa.string()) for name in COLUMNS),
        pa.field("crc", pa.uint32()),
    ]
    return pa.schema(columns, metadata={"labelwise": json.dumps(description)})


def table_description(path: Path, table: Any) -> dict[str, Any]:
    """Return the metadata of a table."""
    try:
        description: dict[str, Any] = json.loads((table.schema.metadata or {})[b"labelwise"])
        if description["format"] == FORMAT and description["by"] in ("cosine", "whitened"):
            return description
    except (KeyError, TypeError, ValueError):
        pass
    raise StoreError(f"{path} is not a gallery of this version. Build it again under another name.")


def table_rows(vectors: Vectors, files: list[str], labels: list[str | None], dates: list[str]) -> Any:
    """Return table rows."""
    import pyarrow as pa

    if not np.isfinite(vectors).all():
        raise UsageError("Some embeddings of the gallery are not finite numbers.")
    columns = {
        VECTORS: pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1]),
        "file": files,
        "label": pa.array(labels, pa.string()),
        "date": dates,
        "folder": [os.path.dirname(file) for file in files],
        "crc": pa.array(_checksums(vectors, files, labels, dates), pa.uint32()),
    }
    return pa.table(columns)


def row_vectors(path: Path, rows: Any) -> Vectors:
    """Return the embeddings ``[c, d]`` of rows with the columns ``READ_BACK``; raise an error if a row was changed."""
    column, size = rows[VECTORS], rows.schema.field(VECTORS).type.list_size
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    vectors: Vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, size).copy()
    *texts, checksums = (rows[name].to_pylist() for name in READ_BACK[1:])
    sums = _checksums(vectors, *texts)
    if sums != checksums:
        wrong = next(i for i, (computed, stored) in enumerate(zip(sums, checksums, strict=True)) if computed != stored)
        raise StoreError(f"{path} is damaged: the row of {texts[0][wrong]!r} has changed. Build the gallery again.")
    return vectors


def _checksums(vectors: Vectors, files: Sequence[str], labels: Sequence[str | None], dates: Sequence[str]) -> list[int]:
    """Return a checksum of each row."""
    texts = zip(files, labels, dates, strict=True)
    return [
        zlib.crc32("\0".join((file, label or "", date)).encode(), zlib.crc32(row.data))
        for row, (file, label, date) in zip(np.ascontiguousarray(vectors), texts, strict=True)
    ]


@contextmanager
def in_words(path: Path, where: str | None = None) -> Iterator[None]:
    """Translate errors of LanceDB into plain English."""
    try:
        yield
    except (RuntimeError, ValueError, OSError, LookupError) as error:
        reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        if where is not None:
            raise UsageError(
                f"Cannot filter {path} by {where!r} ({reason}). Give a condition on {', '.join(COLUMNS)}, such as "
                "\"label = 'wren' and date >= '2026-05-01'\"."
            ) from None
        raise StoreError(
            f"{path} cannot be read or written: {reason}. If a file of it is missing or damaged, build the gallery again."
        ) from None


def quote(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"
