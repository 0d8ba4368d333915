"""Rows of a gallery's table on disk: its columns, a checksum of each row, and in words what the table's engine cannot do."""

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
COLUMNS = ("file", "label", "date", "folder")  # that a filter may name
READ_BACK = (VECTORS, "file", "label", "date", "crc")  # what a row is checked by
Kind = Literal["cosine", "whitened"]
Vectors = npt.NDArray[np.float32]


def table_schema(probe: list[list[float]], by: Kind, made_by: str) -> Any:
    """Return the columns of a table, and what it says about itself."""
    import pyarrow as pa

    about = {"format": FORMAT, "by": by, "made_by": made_by, "probe": probe}
    columns = [
        pa.field(VECTORS, pa.list_(pa.float32(), len(probe[0]))),
        *(pa.field(name, pa.string()) for name in COLUMNS),
        pa.field("crc", pa.uint32()),
    ]
    return pa.schema(columns, metadata={"labelwise": json.dumps(about)})


def table_about(path: Path, table: Any) -> dict[str, Any]:
    """Return what a table says about itself."""
    try:
        about: dict[str, Any] = json.loads((table.schema.metadata or {})[b"labelwise"])
        if about["format"] == FORMAT and about["by"] in ("cosine", "whitened"):
            return about
    except (KeyError, TypeError, ValueError):
        pass
    raise StoreError(f"{path} is not a gallery of this version. Build it again under another name.")


def table_rows(vectors: Vectors, files: list[str], labels: list[str | None], dates: list[str]) -> Any:
    """Return rows of a table."""
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
    """Return the embeddings ``[c, d]`` of rows of a table with the columns ``READ_BACK``; one that was changed is an error."""
    column, size = rows[VECTORS], rows.schema.field(VECTORS).type.list_size
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    vectors: Vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, size).copy()
    *texts, stated = (rows[name].to_pylist() for name in READ_BACK[1:])
    sums = _checksums(vectors, *texts)
    if sums != stated:
        wrong = next(i for i, (here, there) in enumerate(zip(sums, stated, strict=True)) if here != there)
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
    """Say in words of ours what LanceDB cannot do."""
    try:
        yield
    except (RuntimeError, ValueError, OSError, LookupError) as error:
        why = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        if where is not None:
            raise UsageError(
                f"Cannot filter {path} by {where!r} ({why}). Give a condition on {', '.join(COLUMNS)}, such as "
                "\"label = 'wren' and date >= '2026-05-01'\"."
            ) from None
        raise StoreError(
            f"{path} cannot be read or written: {why}. If a file of it is missing or damaged, build the gallery again."
        ) from None


def quoted(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
