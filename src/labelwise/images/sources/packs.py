"""A data set from arrays in files: an ``.npz`` pack of images or features, or a ``.npy`` file of features with a CSV.

A pack holds one entry for each image in

- one of ``features [n, a]``, any kind of number; ``images``, bytes ``[n, h, w, c]``, ``[n, c, h, w]`` or ``[n, h, w]``; or
  encoded images, the bytes of all files one after another in ``data`` and where they begin and end in ``offsets [n + 1]``;
- ``labels [n]``, names, or positions in ``classes [k]``; where several may be true of an image, yes or no to each class
  ``[n, k]`` (bool). Features alone may go without: all targets are then -1;
- optional: ``split [n]``, names, or 0 train and 1 test, or 0 train, 1 val and 2 test; ``files [n]``, where the images came
  from; ``groups [n]``, what each belongs to, blank for nothing.

So ``labelwise data encode`` writes it. What other tools call the same thing is read, too, see ``KEYS``. Nothing is unpickled.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from labelwise.images.as_images import Uploads
from labelwise.images.dataset import Dataset
from labelwise.images.describe.knowledge import find_knowledge
from labelwise.images.images import Array, FeatureRows, at_side
from labelwise.images.sources.array_data import array_images
from labelwise.images.sources.build import build, readable_rows
from labelwise.images.sources.csv_files import read_csv
from labelwise.images.sources.image_tables import table_rows
from labelwise.images.sources.npz_files import (
    check_arrays,
    npz_keys,
    open_npz,
    read_array,
    read_npy_matrix,
    read_npz_matrix,
)
from labelwise.images.sources.rows import Rows, as_labels, label_rows
from labelwise.images.split.make import split_name
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.support.files import check_size

# The key of each column: first the written one, then those of other tools.
KEYS = {
    "features": ("features", "feature", "embeddings", "x", "X", "f"),
    "images": ("images",),
    "data": ("data",),
    "offsets": ("offsets",),
    "labels": ("labels", "label", "targets", "y", "Y"),
    "classes": ("classes", "class_names", "names"),
    "split": ("split", "splits"),
    "files": ("files",),
    "groups": ("groups",),
}


KINDS = ("images", "features", "data")  # one of these image arrays


def pack(path: str | Path, *, size: int | None = None, seed: int = 0) -> Dataset:
    """Load an ``.npz`` file in the format described at the top of this file.

    Each image is made to fit a square of the side ``size``; without, they keep their size (encoded ones: the
    short side of the first).
    """
    file = Path(path)
    with in_words(file):
        return _build(file, _read_pack(file, size), seed)


def features(path: str | Path, *, seed: int = 0) -> Dataset:
    """Load features ``[n, a]`` (float32) with labels.

    An ``.npz`` file is a pack of features, see ``pack``. A ``.npy`` file holds the features, and the CSV file of the same name
    next to it says in row i what row i of them is: ``label``, and perhaps ``path``, ``split``, ``domain``, ``group``, ``text``, as in ``data.table``. Without labels
    all targets are -1.

    The features are held once, however large. Those of a ``.npy`` file of float32 are mapped from the file, and stay
    there as long as its rows are in the order of the splits.
    """
    file = Path(path)
    with in_words(file):
        rows = _beside_csv(file) if file.suffix.lower() == ".npy" else _read_pack(file, None, ("features",))
        return _build(file, rows, seed)


@contextmanager
def in_words(file: Path) -> Iterator[None]:
    """Add the file name to errors about arrays."""
    try:
        yield
    except UsageError as error:
        raise DataError(f'"{file}": {error}') from None


def _build(file: Path, rows: Rows, seed: int) -> Dataset:
    return build(file.stem, rows, find_knowledge(file.parent), seed=seed)


def _beside_csv(file: Path) -> Rows:
    columns = read_csv(file.with_suffix(".csv"), beside=True)
    matrix = read_npy_matrix(file)
    if len(matrix) != len(columns):
        raise DataError(
            f'"{file}" has {len(matrix)} rows of features but "{columns.file}" has {len(columns)} rows below its header. '
            "Row i of one must belong to row i of the other."
        )
    return replace(table_rows(columns), images=FeatureRows(matrix))


def _read_pack(file: Path, size: int | None, kinds: Sequence[str] = KINDS) -> Rows:
    """Return the rows of a pack of some kind of images."""
    with open_npz(file) as archive:
        keys = _column_keys(npz_keys(archive))
        kind = _kind(keys, kinds, npz_keys(archive))
        columns_read = [column for column in keys if column == kind or column not in KINDS]
        check_arrays(archive, [keys[column] for column in columns_read])
        matrix = read_npz_matrix(archive, keys[kind]) if kind == "features" else None
        columns = {column: read_array(archive, keys[column]) for column in columns_read if column != "features"}
    if "labels" in columns:
        names = as_labels(columns["classes"]).tolist() if "classes" in columns else None
        rows = label_rows(as_labels(_flat_labels(columns["labels"])), names)
    else:
        rows = Rows(names=(), targets=np.full(0 if matrix is None else len(matrix), -1))
    if "split" in columns:
        rows = replace(rows, splits=split_names(as_labels(columns["split"])))
    if "files" in columns:
        rows = replace(rows, files=_file_names(columns["files"], len(rows)))
    if "groups" in columns:
        rows = replace(rows, groups=tuple(map(str, as_labels(columns["groups"]).tolist())))
    if matrix is not None:
        return replace(rows, images=FeatureRows(matrix))
    if kind == "data":
        file_bytes = encoded_files(columns["data"], columns["offsets"], len(rows))
        side = size or _side(file_bytes)
        check_size(file, 3 * side**2)
        return readable_rows(replace(rows, images=Uploads(file_bytes, rows.files, (3, side, side))))
    pixels = array_images(columns["images"])
    check_size(file, len(pixels) * (pixels.shape or (3,))[0] * (size or 0) ** 2)
    return replace(rows, images=at_side(pixels, size))


def _column_keys(keys: Sequence[str]) -> dict[str, str]:
    """Return the key of each column in a file; raise an error if two keys mean the same column."""
    columns: dict[str, str] = {}
    for column, (own, *spellings) in KEYS.items():
        is_named = own in keys or (column == "features" and any(kind in keys for kind in KINDS))
        same = [key for key in ((own,) if is_named else spellings) if key in keys]
        if len(same) > 1:
            raise UsageError(f"it holds {listing(same)}, which mean the same. Keep one of them.")
        if same:
            columns[column] = same[0]
    return columns


def _kind(columns: Mapping[str, str], kinds: Sequence[str], keys: Sequence[str]) -> str:
    """Return the kind of images in a file, or raise an error that says what is missing."""
    present = [kind for kind in kinds if kind in columns]
    if list(kinds) == ["features"] and not present:
        raise UsageError(f"it has no features ({listing(KEYS['features'])}). It holds: {listing(keys) or 'nothing'}.")
    required = [] if present == ["features"] else ["labels", "offsets"] if "data" in present else ["labels"]
    missing = [column for column in required if column not in columns]
    if len(present) != 1 or missing:
        wrong = f"lacks {listing(missing)}" if missing else f"has {listing(present) or 'no images'}"
        raise UsageError(
            f'it {wrong}; it needs "labels" and one of "images", "features", or "data" with "offsets". '
            f"It holds: {listing(keys) or 'nothing'}."
        )
    return present[0]


def _flat_labels(labels: Any) -> Any:
    """Return labels as one row, with integral floats as integers, since some tools write floats."""
    if labels.ndim == 2 and 1 in labels.shape and labels.dtype.kind != "b":
        labels = labels.reshape(-1)
    return labels.astype(np.int64) if labels.dtype.kind == "f" and (labels == np.round(labels)).all() else labels


def split_names(values: Array) -> list[str]:
    """Return the split of each row from names or numbers."""
    splits = values.tolist()
    if values.dtype.kind == "U":
        return [split_name(split, f'Row {i} of "split": ') for i, split in enumerate(splits)]
    order = ("train", "val", "test") if 2 in splits else ("train", "test")
    if not set(splits) <= set(range(len(order))):
        raise UsageError(
            f'"split" must be 0 train and 1 test, or 0 train, 1 val, 2 test; given {sorted(set(splits))[:9]}.'
        )
    return [order[split] for split in splits]


def _file_names(names: Array, n: int) -> tuple[str, ...]:
    if names.dtype.kind != "U" or names.shape != (n,):
        raise UsageError(f'"files" must be {n} names, one for each label; given {names.dtype} {list(names.shape)}.')
    return tuple(names.tolist())


def encoded_files(data: Array, offsets: Array, n: int) -> list[bytes]:
    """Return the content of each of n consecutive files in ``data``."""
    if data.dtype != np.uint8 or data.ndim != 1 or offsets.dtype.kind not in "iu" or offsets.shape != (n + 1,):
        raise UsageError(
            f'"data" must be bytes (uint8) in one row and "offsets" {n + 1} whole numbers, one more than labels; given '
            f"{data.dtype} {list(data.shape)} and {offsets.dtype} {list(offsets.shape)}."
        )
    ends = offsets.tolist()
    if ends != sorted(ends) or ends[0] < 0 or ends[-1] > len(data):
        raise UsageError(f'"offsets" must rise from 0 to at most {len(data)}, the size of "data".')
    return [data[start:end].tobytes() for start, end in pairwise(ends)]


def _side(files: Sequence[bytes]) -> int:
    """Return the shorter side of the first readable image."""
    for file in files:
        with suppress(Exception), Image.open(io.BytesIO(file)) as image:
            return min(image.size)
    raise UsageError("none of its images can be read.")
