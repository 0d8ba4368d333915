"""Readers of official layouts that hold many pictures in one file: CIFAR, STL-10, MNIST and its relatives."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from labelwise.errors import DataError
from labelwise_papers.benchmarks.records import Ints, Records, text_lines, tidy
from labelwise_papers.benchmarks.unpickle import read_arrays

Bytes = npt.NDArray[np.uint8]

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
STL10_NAMES = ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck")
DIGITS = tuple("0123456789")
CLOTHES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
CLOTHES_NAMES = tuple(CLOTHES.split(","))
_PIXELS = 3 * 32 * 32


def read_cifar10_binary(home: Path) -> Records:
    """Return CIFAR-10 from its binary version: one byte of label and 3,072 of pixels for each picture."""
    train = np.concatenate([_table(home / f"data_batch_{i}.bin", 1 + _PIXELS) for i in range(1, 6)])
    test = _table(home / "test_batch.bin", 1 + _PIXELS)
    return _cifar(CIFAR10_NAMES, (train[:, 1:], test[:, 1:]), (train[:, 0], test[:, 0]))


def read_cifar100_binary(home: Path) -> Records:
    """Return CIFAR-100 from its binary version, with the superclasses as second labels."""
    train, test = (_table(home / file, 2 + _PIXELS) for file in ("train.bin", "test.bin"))
    fine = tuple(tidy(line) for line in text_lines(home / "fine_label_names.txt"))
    coarse = tuple(tidy(line) for line in text_lines(home / "coarse_label_names.txt"))
    return _cifar(
        fine,
        (train[:, 2:], test[:, 2:]),
        (train[:, 1], test[:, 1]),
        (coarse, np.concatenate([train[:, 0], test[:, 0]])),
    )


def read_cifar10_python(home: Path) -> Records:
    """Return CIFAR-10 from its python version; the pickles are read without running anything in them."""
    batches = [read_arrays(home / f"data_batch_{i}") for i in range(1, 6)]
    test = read_arrays(home / "test_batch")
    train = np.concatenate([_rows(batch, home) for batch in batches])
    labels = np.concatenate([_numbers(batch, "labels", home) for batch in batches])
    return _cifar(CIFAR10_NAMES, (train, _rows(test, home)), (labels, _numbers(test, "labels", home)))


def read_cifar100_python(home: Path) -> Records:
    """Return CIFAR-100 from its python version, with the superclasses as second labels."""
    train, test, meta = (read_arrays(home / file) for file in ("train", "test", "meta"))
    fine, coarse = (_words(meta, key, home) for key in ("fine_label_names", "coarse_label_names"))
    second = np.concatenate([_numbers(part, "coarse_labels", home) for part in (train, test)])
    labels = (_numbers(train, "fine_labels", home), _numbers(test, "fine_labels", home))
    return _cifar(fine, (_rows(train, home), _rows(test, home)), labels, (coarse, second))


def read_stl10(home: Path) -> Records:
    """Return STL-10 with its unlabelled pictures, where they are there, as train without a label."""
    parts, targets, splits = [], [], []
    for split in ("train", "test"):
        parts.append(_stl10_pictures(home / f"{split}_X.bin"))
        labels = _bytes(home / f"{split}_y.bin").astype(np.int64) - 1
        _same(home, len(parts[-1]), len(labels))
        targets.append(labels)
        splits += [split] * len(labels)
    if (home / "unlabeled_X.bin").exists():
        parts.append(_stl10_pictures(home / "unlabeled_X.bin"))
        targets.append(np.full(len(parts[-1]), -1))
        splits += ["train"] * len(parts[-1])
    pictures = torch.from_numpy(np.concatenate(parts))
    return Records(names=STL10_NAMES, pictures=pictures, targets=np.concatenate(targets), splits=splits)


def read_mnist(home: Path) -> Records:
    """Return MNIST from its four idx files, compressed or not."""
    return _idx_records(home, DIGITS)


def read_fashion_mnist(home: Path) -> Records:
    """Return Fashion-MNIST from its four idx files, compressed or not."""
    return _idx_records(home, CLOTHES_NAMES)


def read_idx(file: Path) -> Bytes:
    """Return the bytes of an idx file ``[n]`` or ``[n, h, w]``; ``file`` may exist with ``.gz`` at its end only."""
    raw = _content(file)
    axes = raw[3] if len(raw) >= 4 and raw[:3] == b"\0\0\x08" else 0
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
    start = 4 + 4 * axes
    if not axes or len(raw) - start != int(np.prod(shape, dtype=np.int64)):
        raise DataError(f'"{file}" is not a whole idx file of bytes. Download it again.')
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def _idx_records(home: Path, names: tuple[str, ...]) -> Records:
    images, labels, splits = [], [], []
    for split, prefix in (("train", "train"), ("test", "t10k")):
        images.append(read_idx(home / f"{prefix}-images-idx3-ubyte"))
        labels.append(read_idx(home / f"{prefix}-labels-idx1-ubyte"))
        _same(home, len(images[-1]), len(labels[-1]))
        splits += [split] * len(labels[-1])
    pictures = torch.from_numpy(np.concatenate(images))[:, None]
    return Records(names=names, pictures=pictures, targets=np.concatenate(labels).astype(np.int64), splits=splits)


def _cifar(
    names: tuple[str, ...],
    pixels: tuple[Bytes, Bytes],
    labels: tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]],
    second: tuple[tuple[str, ...], npt.NDArray[np.integer]] | None = None,
) -> Records:
    """Return the records of train and test rows of pixels and their labels."""
    pictures = torch.from_numpy(np.concatenate(pixels).reshape(-1, 3, 32, 32))
    return Records(
        names=names,
        pictures=pictures,
        targets=np.concatenate(labels).astype(np.int64),
        splits=["train"] * len(labels[0]) + ["test"] * len(labels[1]),
        other_names=second[0] if second else (),
        other_targets=second[1].astype(np.int64) if second else (),
    )


def _content(file: Path) -> bytes:
    packed = file.with_name(file.name + ".gz")
    try:
        return file.read_bytes() if file.exists() or not packed.exists() else gzip.decompress(packed.read_bytes())
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


def _stl10_pictures(file: Path) -> Bytes:
    """Return pictures ``[n, 3, 96, 96]``; the file holds each channel column by column."""
    return _table(file, 3 * 96 * 96).reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2)


def _rows(batch: dict[str, object], home: Path) -> Bytes:
    data = batch.get("data")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != _PIXELS:
        raise DataError(f'A batch in "{home}" has no pixels [n, {_PIXELS}]. Download it again.')
    return data


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


def _same(home: Path, pictures: int, labels: int) -> None:
    if pictures != labels:
        raise DataError(f'"{home}" has {pictures} pictures but {labels} labels in a split. Download it again.')
