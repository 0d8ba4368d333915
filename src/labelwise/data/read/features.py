"""A data set from precomputed features, whatever tool wrote them: one ``.npz`` file, or a ``.npy`` file beside a CSV."""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from labelwise.data.dataset import Dataset
from labelwise.data.labels.knowledge import with_files_beside
from labelwise.data.read.csv_files import read_csv
from labelwise.data.read.npz_files import readable
from labelwise.data.read.sources import Rows, as_dataset, same_length, split_name
from labelwise.data.read.tables import feature_rows
from labelwise.data.read.targets import as_labels, as_targets
from labelwise.errors import DataError, UsageError, listing

# What other tools call the same thing; one of each at most.
FEATURE_KEYS = ("features", "feature", "embeddings", "x", "X", "f")
LABEL_KEYS = ("labels", "label", "targets", "y", "Y")
NAME_KEYS = ("classes", "class_names", "names")
SPLIT_KEYS = ("split", "splits")

_BYTES_AT_ONCE = 1 << 20


def features(path: str | Path, *, seed: int = 0) -> Dataset:
    """Return features ``[n, a]`` (float32) with their labels.

    An ``.npz`` file holds the features (``features``, ``embeddings``, ``x`` or ``f``; any kind of number), ``labels [n]``
    (or ``targets``, ``y``; names, or positions in ``classes [k]``), and perhaps ``split [n]`` (names, or 0 train and
    1 test, or 0 train, 1 val and 2 test). A ``.npy`` file holds the features, and the CSV file of the same name beside
    it says in row i what row i of them is: ``label``, and perhaps ``path``, ``split``, ``domain``, ``group``, ``text``,
    as in ``data.table``. Without labels all targets are -1.

    The features are held once, however large. Those of a ``.npy`` file of float32 are mapped from the file, and stay
    there as long as its rows are in the order of the splits.

    Args:
        path: the ``.npz`` or ``.npy`` file.
        seed: of the division into splits.
    """
    file = Path(path)
    try:
        rows = _beside_csv(file) if file.suffix.lower() == ".npy" else _packed(file)
        found = as_dataset(file.stem, rows, seed)
    except UsageError as error:
        raise DataError(f'"{file}": {error}') from None
    return with_files_beside(found, file.parent)


def _beside_csv(file: Path) -> Rows:
    """Return the rows of a ``.npy`` file and the CSV file beside it."""
    columns = read_csv(file.with_suffix(".csv"), beside=True)
    with readable(file), file.open("rb") as stream:
        shape, fortran, dtype = _array_header(stream)
        if dtype == np.float32 and dtype.isnative and not fortran and len(shape) == 2 and all(shape):
            found = torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))  # a private copy, page by page
        else:
            found = _read_matrix(stream, shape, fortran, dtype)
    if len(found) != len(columns):
        raise DataError(
            f'"{file}" has {len(found)} rows of features but "{columns.file}" has {len(columns)} rows below its header. '
            "Row i of one must belong to row i of the other."
        )
    return feature_rows(columns, found)


def _packed(file: Path) -> Rows:
    """Return the rows of an ``.npz`` file."""
    with readable(file), file.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise DataError(f'"{file}" is not an .npz file, or it is damaged. Write it with numpy.savez.')
        with zipfile.ZipFile(stream) as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist()]
            key = _one(FEATURE_KEYS, keys)
            if key is None:
                raise UsageError(
                    f"it has no features ({listing(FEATURE_KEYS)}). It holds: {listing(keys) or 'nothing'}."
                )
            with archive.open(f"{key}.npy") as member:
                found = _read_matrix(member, *_array_header(member))
            asked = {what: _one(what, keys) for what in (LABEL_KEYS, NAME_KEYS, SPLIT_KEYS)}
            held = {what[0]: _read_small(archive, name) for what, name in asked.items() if name is not None}
    rows = _targets(found, held)
    if "split" not in held:
        return rows
    same_length(len(found), len(held["split"]), " and their splits")
    return replace(rows, splits=split_names(as_labels(held["split"])))


def _targets(found: Tensor, held: Mapping[str, Any]) -> Rows:
    """Return the features with their targets."""
    if "labels" not in held:
        return Rows(images=found, targets=torch.full((len(found),), -1), names=(), owned=True)
    labels = held["labels"]
    if labels.ndim == 2 and 1 in labels.shape and labels.dtype.kind != "b":
        labels = labels.reshape(-1)
    if labels.dtype.kind == "f" and (labels == np.round(labels)).all():
        labels = labels.astype(np.int64)
    names = as_labels(held["classes"]).tolist() if "classes" in held else None
    same_length(len(found), len(labels))
    return Rows(images=found, owned=True, **as_targets(as_labels(labels), names)._asdict())


def split_names(given: np.ndarray[Any, Any]) -> list[str]:
    """Return the split of each row from names or numbers."""
    values = given.tolist()
    if given.dtype.kind == "U":
        return [split_name(value, f'Row {i} of "split": ') for i, value in enumerate(values)]
    order = ("train", "val", "test") if 2 in values else ("train", "test")
    if not set(values) <= set(range(len(order))):
        raise UsageError(
            f'"split" must be 0 train and 1 test, or 0 train, 1 val, 2 test; given {sorted(set(values))[:9]}.'
        )
    return [order[value] for value in values]


def _one(wanted: Sequence[str], keys: Sequence[str]) -> str | None:
    """Return which of some keys is there, or raise an error where more than one is."""
    found = [key for key in wanted if key in keys]
    if len(found) > 1:
        raise UsageError(f"it holds {listing(found)}, which mean the same. Keep one of them.")
    return found[0] if found else None


def _read_small(archive: zipfile.ZipFile, key: str) -> Any:
    with archive.open(f"{key}.npy") as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _array_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape, the order and the type of a ``.npy`` stream, which then stands at the data."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    return shape, fortran, dtype


def _read_matrix(stream: IO[bytes], shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]) -> Tensor:
    """Return ``[n, a]`` as float32 from a stream of any kind of number, a piece at a time."""
    if len(shape) != 2 or not all(shape) or dtype.kind not in "iuf":
        raise UsageError(f"features must be numbers [n, size]; given {dtype} {list(shape)}.")
    found = np.empty(shape, np.float32)
    target = found.T if fortran else found
    step = max(1, _BYTES_AT_ONCE // (target.shape[1] * dtype.itemsize))
    for start in range(0, len(target), step):
        part = target[start : start + step]
        content = stream.read(part.size * dtype.itemsize)
        if len(content) != part.size * dtype.itemsize:
            raise ValueError("it ends too early")
        with np.errstate(over="ignore"):
            part[...] = np.frombuffer(content, dtype).reshape(part.shape)
    return torch.from_numpy(found)
