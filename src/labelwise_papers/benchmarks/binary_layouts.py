"""Readers of official layouts that hold many images in one file: CIFAR, STL-10, MNIST and its relatives."""

import gzip
import io
import pickle
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import DataError
from labelwise.support.files import open_regular, read_regular, unpack
from labelwise_papers.benchmarks.records import Ints, Records, text_lines, tidy

Bytes = npt.NDArray[np.uint8]
Part = tuple[str, Bytes, npt.NDArray[np.integer]]  # a split, its images, their labels

_PIXELS = 3 * 32 * 32
_CIFAR10 = (*(("train", f"data_batch_{i}") for i in range(1, 6)), ("test", "test_batch"))
_CIFAR100 = ("train", "test")


def read_cifar10_binary(home: Path) -> Records:
    """Return CIFAR-10 from its binary version: one byte of label and 3,072 of pixels for each image."""
    tables = [(split, _table(home / f"{file}.bin", 1 + _PIXELS)) for split, file in _CIFAR10]
    return _joined(home, [(split, _pictures(rows[:, 1:]), rows[:, 0]) for split, rows in tables])


def read_cifar100_binary(home: Path) -> Records:
    """Return CIFAR-100 from its binary version, with the superclasses as second labels."""
    tables = [(split, _table(home / f"{split}.bin", 2 + _PIXELS)) for split in _CIFAR100]
    fine, coarse = (
        tuple(tidy(line) for line in text_lines(home / f"{kind}_label_names.txt")) for kind in ("fine", "coarse")
    )
    parts = [(split, _pictures(rows[:, 2:]), rows[:, 1]) for split, rows in tables]
    return _joined(home, parts, fine, coarse, [rows[:, 0] for _, rows in tables])


def read_cifar10_python(home: Path) -> Records:
    """Return CIFAR-10 from its python version; the pickles are read without running anything in them."""
    batches = [(split, read_arrays(home / file)) for split, file in _CIFAR10]
    return _joined(home, [(split, _rows(batch, home), _numbers(batch, "labels", home)) for split, batch in batches])


def read_cifar100_python(home: Path) -> Records:
    """Return CIFAR-100 from its python version, with the superclasses as second labels."""
    batches = [(split, read_arrays(home / split)) for split in _CIFAR100]
    meta = read_arrays(home / "meta")
    fine, coarse = (_words(meta, key, home) for key in ("fine_label_names", "coarse_label_names"))
    parts = [(split, _rows(batch, home), _numbers(batch, "fine_labels", home)) for split, batch in batches]
    return _joined(home, parts, fine, coarse, [_numbers(batch, "coarse_labels", home) for _, batch in batches])


def read_stl10(home: Path) -> Records:
    """Return STL-10 with its unlabelled images, where they are there, as train without a label."""
    parts: list[Part] = [
        (split, _stl10_pictures(home / f"{split}_X.bin"), _bytes(home / f"{split}_y.bin").astype(np.int64) - 1)
        for split in ("train", "test")
    ]
    if (home / "unlabeled_X.bin").exists():
        pictures = _stl10_pictures(home / "unlabeled_X.bin")
        parts.append(("train", pictures, np.full(len(pictures), -1)))
    return _joined(home, parts)


def read_mnist(home: Path) -> Records:
    """Return MNIST, or one of its relatives, from four idx files, compressed or not."""
    files = (("train", "train"), ("test", "t10k"))
    parts = [
        (split, read_idx(home / f"{file}-images-idx3-ubyte")[:, None], read_idx(home / f"{file}-labels-idx1-ubyte"))
        for split, file in files
    ]
    return _joined(home, parts)


def read_idx(file: Path) -> Bytes:
    """Return the bytes of an idx file ``[n]`` or ``[n, h, w]``; ``file`` may exist with ``.gz`` at its end only."""
    raw = _content(file)
    axes = raw[3] if len(raw) >= 4 and raw[:3] == b"\0\0\x08" else 0
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
    start = 4 + 4 * axes
    if not axes or len(raw) - start != int(np.prod(shape, dtype=np.int64)):
        raise DataError(f'"{file}" is not a whole idx file of bytes. Download it again.')
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def _joined(
    home: Path,
    parts: Sequence[Part],
    names: tuple[str, ...] = (),
    other_names: tuple[str, ...] = (),
    other_targets: Sequence[npt.NDArray[np.integer]] = (),
) -> Records:
    """Return the records of several files, perhaps with second labels."""
    for _, pictures, labels in parts:
        if len(pictures) != len(labels):
            raise DataError(
                f'"{home}" has {len(pictures)} images but {len(labels)} labels in a split. Download it again.'
            )
    return Records(
        names=names,
        pictures=np.concatenate([pictures for _, pictures, _ in parts]),
        targets=np.concatenate([labels for *_, labels in parts]).astype(np.int64),
        splits=[split for split, pictures, _ in parts for _ in range(len(pictures))],
        other_names=other_names,
        other_targets=np.concatenate(other_targets).astype(np.int64) if other_targets else (),
    )


def _content(file: Path) -> bytes:
    packed = file.with_name(file.name + ".gz")
    try:
        if file.exists() or not packed.exists():
            with open_regular(file, None) as plain:
                return unpack(plain, file)
        with open_regular(packed, None) as raw, gzip.open(raw) as stream:
            return unpack(stream, file)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f'Cannot read "{file}" (or .gz): {error}. Look whether it arrived whole.') from None


def _bytes(file: Path) -> Bytes:
    return np.frombuffer(_content(file), dtype=np.uint8)


def _table(file: Path, width: int) -> Bytes:
    """Return the rows ``[n, width]`` of a file of bytes."""
    raw = _bytes(file)
    if not len(raw) or len(raw) % width:
        raise DataError(f'"{file}" has {len(raw)} bytes, not a multiple of {width}. Download it again.')
    return raw.reshape(-1, width)


def _pictures(rows: Bytes) -> Bytes:
    return rows.reshape(-1, 3, 32, 32)


def _stl10_pictures(file: Path) -> Bytes:
    """Return images ``[n, 3, 96, 96]``; the file holds each channel column by column."""
    return _table(file, 3 * 96 * 96).reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)


def _rows(batch: dict[str, object], home: Path) -> Bytes:
    data = batch.get("data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _PIXELS:
        raise DataError(f'A batch in "{home}" has no pixels [n, {_PIXELS}]. Download it again.')
    return _pictures(data)


def _numbers(batch: dict[str, object], key: str, home: Path) -> Ints:
    values = batch.get(key)
    if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
        raise DataError(f'A batch in "{home}" has no list of "{key}". Download it again.')
    return np.asarray(values, dtype=np.int64)


def _words(meta: dict[str, object], key: str, home: Path) -> tuple[str, ...]:
    values = meta.get(key)
    if not isinstance(values, list):
        raise DataError(f'"{home / "meta"}" has no list of "{key}". Download it again.')
    return tuple(tidy(value.decode() if isinstance(value, bytes) else str(value)) for value in values)


class _ArraysOnly(pickle.Unpickler):
    """Knows the three names that a pickled array needs, and refuses every other one."""

    def find_class(self, module: str, name: str) -> object:
        where = module.replace("_core", "core")
        if (where, name) == ("numpy.core.multiarray", "_reconstruct"):
            return _blank
        if (module, name) == ("numpy", "ndarray"):
            return "ndarray"  # only ever an argument of _reconstruct, so nothing that can be called
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _blank(*_: object) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return an empty array, whatever size is asked for; its state is set next."""
    return np.empty(0, dtype=np.uint8)


def read_arrays(file: Path) -> dict[str, object]:
    """Return the dict in a pickle file, with keys as text; anything but plain data in it is an error."""
    try:
        content = _ArraysOnly(io.BytesIO(read_regular(file)), encoding="bytes").load()
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror}. Look whether it arrived whole.') from None
    except Exception as error:
        raise DataError(f'"{file}" is damaged or holds more than plain arrays ({error}). Download it again.') from None
    if not isinstance(content, dict):
        raise DataError(f'"{file}" holds a {type(content).__name__}, not a dict of arrays. Download it again.')
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
