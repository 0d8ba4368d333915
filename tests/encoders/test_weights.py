"""Weights are read from a pickle that can build tensors and do nothing else."""

import pickle
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.encoders.efficientnet import MAGIC, VERSION, read_weights
from labelwise.support.errors import StoreError
from labelwise.support.files import at_most

TENSORS = {
    "float": torch.arange(24.0).view(2, 3, 4),
    "turned": torch.arange(6.0).view(2, 3).T,
    "part": torch.arange(10.0)[4:7],
    "half": torch.tensor([1.5, -2.0], dtype=torch.float16),
    "count": torch.tensor(7),
    "none": torch.empty(0, 3),
}


def saved(value: Any) -> bytes:
    stream = BytesIO()
    torch.save(value, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


def fake(tensors: bytes, keys: bytes | None = None, storages: bytes = b"") -> bytes:
    """A file whose tensors are any pickle."""
    head = b"".join(pickle.dumps(each, protocol=2) for each in list[object]((MAGIC, VERSION, {})))
    return head + tensors + (pickle.dumps([], protocol=2) if keys is None else keys) + storages


def read(content: bytes, folder: Path) -> Any:
    (folder / "weights.pth").write_bytes(content)
    return read_weights(folder / "weights.pth")


def test_tensors_come_back_as_torch_reads_them(tmp_path: Path) -> None:
    arrays = read(saved(TENSORS), tmp_path)
    assert list(arrays) == list(TENSORS)
    for name, tensor in TENSORS.items():
        assert np.array_equal(arrays[name], tensor.numpy())
        assert arrays[name].dtype == tensor.numpy().dtype


class Harm:
    """Makes a folder when it is unpickled in the ordinary way."""

    def __init__(self, where: Path) -> None:
        self.where = str(where)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        import os

        return os.mkdir, (self.where,)


def test_nothing_in_a_pickle_is_run(tmp_path: Path) -> None:
    harm = pickle.dumps({"weight": Harm(tmp_path / "harm")}, protocol=2)
    for content in (fake(harm), harm, fake(pickle.dumps({}, protocol=2), harm)):
        with pytest.raises(StoreError, match=r"posix\.mkdir"):
            read(content, tmp_path)
    assert not (tmp_path / "harm").exists()
    pickle.loads(harm)  # it would have been
    assert (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    "name",
    [
        "os system",
        "builtins eval",
        "builtins getattr",
        "torch load",
        "torch._utils _rebuild_parameter",
        "collections deque",
    ],
)
def test_every_other_name_is_refused(name: str, tmp_path: Path) -> None:
    module, word = name.split()
    with pytest.raises(StoreError, match=rf"{module}\.{word}"):
        read(fake(f"c{module}\n{word}\n.".encode()), tmp_path)


def tensor_pickle(size: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    def numbers(values: tuple[int, ...]) -> bytes:
        return b"(" + b"".join(b"L%dL\n" % value for value in values) + b"t"

    storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00kX\x03\x00\x00\x00cpuL%dL\nNtQ" % size
    return (
        b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n("
        + storage + b"L%dL\n" % offset + numbers(shape) + numbers(strides) + b"\x89)tRs."
    )  # fmt: skip


KEYS = pickle.dumps(["k"], protocol=2)


def storage(size: int) -> bytes:
    return struct.pack("<q", size) + np.arange(size, dtype=np.float32).tobytes()


def test_a_tensor_written_by_hand_is_read(tmp_path: Path) -> None:
    content = fake(tensor_pickle(4, (3,), (1,), 1), KEYS, storage(4))
    assert read(content, tmp_path)["w"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((5,), (1,), 0),
        ((3,), (1,), 2),
        ((2,), (9,), 0),
        ((2,), (-1,), 1),
        ((1000, 1000), (0, 0), 0),
        ((2,), (1, 1), 0),
        ((2,), (1,), -4),
    ],
)
def test_a_tensor_outside_its_storage_is_an_error(
    shape: tuple[int, ...], strides: tuple[int, ...], offset: int, tmp_path: Path
) -> None:
    with pytest.raises(StoreError, match="tensor"):
        read(fake(tensor_pickle(4, shape, strides, offset), KEYS, storage(4)), tmp_path)


def test_sizes_that_lie_take_no_memory(tmp_path: Path) -> None:
    huge = fake(tensor_pickle(2**40, (1,), (1,)), KEYS, struct.pack("<q", 2**40))
    with pytest.raises(StoreError, match="GB"):
        read(huge, tmp_path)
    with at_most(1e9), pytest.raises(StoreError, match="cannot be read"):
        read(huge, tmp_path)
    with pytest.raises(StoreError, match="another size"):
        read(fake(tensor_pickle(4, (1,), (1,)), KEYS, storage(5)), tmp_path)


def test_places_and_depths_that_would_take_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="places"):
        read(fake(b"\x80\x02Nr\xff\xff\xff\x7f."), tmp_path)
    with pytest.raises(StoreError, match="more than tensors"):
        read(fake(b"\x80\x02)" + b"\x85" * 10**6 + b"."), tmp_path)
    deep = b"\x80\x02})" + b"\x85" * 40_000 + b"Ns."  # a tuple as a key is hashed to its depth
    assert read(fake(deep), tmp_path) == {}


def test_what_is_cut_off_or_something_else_is_an_error(tmp_path: Path) -> None:
    whole = saved(TENSORS)
    for end in (0, 1, 20, 200, len(whole) // 2, len(whole) - 1):
        with pytest.raises(StoreError, match="cannot be read"):
            read(whole[:end], tmp_path)
    stream = BytesIO()
    torch.save(TENSORS, stream)
    for content in (stream.getvalue(), b"text" * 100, b"\x00" * 1000):
        with pytest.raises(StoreError, match="cannot be read"):
            read(content, tmp_path)
    with pytest.raises(StoreError, match="cannot be read"):
        read_weights(tmp_path)
