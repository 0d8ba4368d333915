"""Published weights read without torch, from a pickle that can build tensors and nothing else.

The format is the one ``torch.save`` wrote before version 1.6: three small pickles (a magic number, a version, facts about the
system), a pickle of the tensors that refers to storages by key, a pickle of the list of keys, and the storages one after another.
"""

import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import StoreError
from labelwise.support.limits import check_size
from labelwise.support.regular import open_regular

MAGIC: Final = 0x1950A86A20F9469CFC6C
VERSION: Final = 1001
MOST_STEPS: Final = 50_000  # of one pickle; the published weights take 10,696
MOST_BYTES: Final = 2**30
KINDS: Final[Mapping[str, np.dtype[Any]]] = {
    "FloatStorage": np.dtype("<f4"),
    "DoubleStorage": np.dtype("<f8"),
    "HalfStorage": np.dtype("<f2"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
}

Array = npt.NDArray[Any]


def read_weights(path: Path) -> dict[str, Array]:
    """Return the tensors of a file by name; whatever is wrong with the file is a ``StoreError``."""
    try:
        with open_regular(path, MOST_BYTES) as file:
            return _read(file, path)
    except StoreError:
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        raise StoreError(f'"{path}" cannot be read as weights ({error}). Install the package again.') from error


@dataclass(eq=False)
class _Storage:
    """Numbers that tensors share, read after the tensors that refer to them."""

    kind: np.dtype[Any]
    size: int
    values: Array | None = None


@dataclass(eq=False)
class _Tensor:
    storage: _Storage
    offset: int
    shape: Sequence[int]
    strides: Sequence[int]

    def array(self) -> Array:
        """Return the tensor as an array of its own."""
        if len(self.shape) != len(self.strides) or min((self.offset, *self.shape, *self.strides)) < 0:
            raise ValueError("the shape of a tensor is damaged")
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        if prod(self.shape) and (self.storage.values is None or last >= self.storage.size):
            raise ValueError("a tensor lies outside its storage")
        if prod(self.shape) > self.storage.size:
            raise ValueError("a tensor is larger than its storage")
        strides = [step * self.storage.kind.itemsize for step in self.strides]
        values = np.empty(0, self.storage.kind) if self.storage.values is None else self.storage.values[self.offset :]
        return np.lib.stride_tricks.as_strided(values, self.shape, strides).copy()


def _tensor(storage: object, offset: int, shape: Sequence[int], strides: Sequence[int], *_: object) -> _Tensor:
    if not isinstance(storage, _Storage):
        raise pickle.UnpicklingError("a tensor without a storage")
    return _Tensor(storage, int(offset), tuple(map(int, shape)), tuple(map(int, strides)))


class _Unpickler(pickle.Unpickler):
    """Builds tensors and ordered dictionaries; every other name is an error."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what a name stands for."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in KINDS:
            return KINDS[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}, which weights do not need")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the storage that a tensor refers to."""
        word, kind, key, _, size, view = pid
        if word != "storage" or not isinstance(kind, np.dtype) or not isinstance(key, str) or view is not None:
            raise pickle.UnpicklingError("an unknown kind of storage")
        return self.storages.setdefault(key, _Storage(kind, int(size)))


def _load(file: BinaryIO) -> tuple[Any, dict[str, _Storage]]:
    """Return the next object of a file and its storages; its steps are counted before one of them is done."""
    start = file.tell()
    steps = list(islice(pickletools.genops(file), MOST_STEPS + 1))
    if len(steps) > MOST_STEPS:
        raise ValueError("it holds more than tensors")
    places = [place for step, place, _ in steps if step.name.endswith("PUT") and isinstance(place, int)]
    if max(places, default=0) > MOST_STEPS:  # unpickling would reserve memory for all places before
        raise ValueError("it refers to places that are not there")
    file.seek(start)
    reader = _Unpickler(file)
    return reader.load(), reader.storages


def _read(file: BinaryIO, path: Path) -> dict[str, Array]:
    if _load(file)[0] != MAGIC or _load(file)[0] != VERSION:
        raise ValueError("it is no file of weights of the form before torch 1.6")
    _load(file)  # facts about the system that wrote it
    tensors, storages = _load(file)
    keys, _ = _load(file)
    if min((each.size for each in storages.values()), default=0) < 0:
        raise ValueError("the size of a storage is damaged")
    check_size(path, sum(each.size * each.kind.itemsize for each in storages.values()), StoreError)
    for key in keys:
        storage, head = storages[key], file.read(8)
        content = file.read(storage.size * storage.kind.itemsize)
        if len(head) + len(content) != 8 + storage.size * storage.kind.itemsize:
            raise ValueError("it ends too early")
        if int.from_bytes(head, "little") != storage.size:
            raise ValueError("a storage has another size than its tensors say")
        storage.values = np.frombuffer(content, storage.kind)
    if not isinstance(tensors, dict):
        raise ValueError("it holds no tensors by name")
    return {str(name): each.array() for name, each in tensors.items() if isinstance(each, _Tensor)}
