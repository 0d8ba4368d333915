import gzip
from pathlib import Path

import numpy as np
import pytest

from labelwise.images.dataset import Dataset
from labelwise.support.errors import DataError
from labelwise_papers.benchmarks import load_benchmark
from labelwise_papers.benchmarks.binary_layouts import read_idx
from tests.papers.benchmarks.made import cifar_rows, pairs, python2, text
from tests.pixels_of import px


def cifar10_binary(home: Path) -> None:
    home.mkdir(parents=True)
    for i in range(6):
        name = f"data_batch_{i + 1}.bin" if i < 5 else "test_batch.bin"
        rows = cifar_rows(10 * i, 2)
        labels = np.array([[i], [9 - i]], np.uint8)
        (home / name).write_bytes(np.hstack([labels, rows]).tobytes())


def cifar10_python(home: Path) -> None:
    home.mkdir(parents=True)
    for i in range(6):
        name = f"data_batch_{i + 1}" if i < 5 else "test_batch"
        held = {b"data": cifar_rows(10 * i, 2), b"labels": [i, 9 - i], b"filenames": [b"a", b"b"]}
        (home / name).write_bytes(python2(held))


def cifar100_binary(home: Path) -> None:
    home.mkdir(parents=True)
    for start, name in ((0, "train.bin"), (10, "test.bin")):
        labels = np.array([[1, 0], [0, 2], [1, 1]], np.uint8)  # superclass, class
        (home / name).write_bytes(np.hstack([labels, cifar_rows(start, 3)]).tobytes())
    text(home / "fine_label_names.txt", "apple", "aquarium_fish", "bear")
    text(home / "coarse_label_names.txt", "large_carnivores", "food")


def cifar100_python(home: Path) -> None:
    home.mkdir(parents=True)
    for start, name in ((0, "train"), (10, "test")):
        held = {b"data": cifar_rows(start, 3), b"fine_labels": [0, 2, 1], b"coarse_labels": [1, 0, 1]}
        (home / name).write_bytes(python2(held))
    meta = {
        b"fine_label_names": [b"apple", b"aquarium_fish", b"bear"],
        b"coarse_label_names": [b"large_carnivores", b"food"],
    }
    (home / "meta").write_bytes(python2(meta))


def check_cifar10(data: Dataset) -> None:
    assert data.labels.names[:2] == ("airplane", "automobile")
    assert pairs(data.split("train")) == [(10 * i + j, i if j == 0 else 9 - i) for i in range(5) for j in range(2)]
    assert pairs(data.split("test")) == [(50, 5), (51, 4)]
    assert int(px(data.split("test"))[1, 2, 31, 31]) == 1
    assert int(px(data.split("test"))[1, 0, 1, 0]) == 0


def test_both_versions_of_cifar10_give_the_same(tmp_path: Path) -> None:
    cifar10_binary(tmp_path / "a/cifar10/cifar-10-batches-bin")
    cifar10_python(tmp_path / "b/cifar10/cifar-10-batches-py")
    check_cifar10(load_benchmark("cifar10", root=tmp_path / "a"))
    check_cifar10(load_benchmark("cifar10", root=tmp_path / "b"))


def test_the_binary_version_is_preferred(tmp_path: Path) -> None:
    cifar10_binary(tmp_path / "cifar10/cifar-10-batches-bin")
    text(tmp_path / "cifar10/cifar-10-batches-py/data_batch_1", "not a pickle")
    check_cifar10(load_benchmark("cifar10", root=tmp_path))


@pytest.mark.parametrize("write", [cifar100_binary, cifar100_python], ids=["binary", "python"])
def test_cifar100_and_its_superclasses(write: object, tmp_path: Path) -> None:
    assert callable(write)
    write(tmp_path / "cifar100/unpacked")
    fine = load_benchmark("cifar100", root=tmp_path)
    assert fine.labels.names == ("apple", "aquarium fish", "bear")
    assert pairs(fine.split("train")) == [(0, 0), (1, 2), (2, 1)]
    coarse = load_benchmark("cifar100-20", root=tmp_path)
    assert coarse.labels.names == ("large carnivores", "food")
    assert pairs(coarse.split("test")) == [(10, 1), (11, 0), (12, 1)]


def test_a_cut_off_file_is_named(tmp_path: Path) -> None:
    cifar100_binary(tmp_path / "cifar100")
    whole = (tmp_path / "cifar100/test.bin").read_bytes()
    (tmp_path / "cifar100/test.bin").write_bytes(whole[:-1])
    with pytest.raises(DataError, match=r"test\.bin.*Download it again"):
        load_benchmark("cifar100", root=tmp_path)


def test_stl10_with_and_without_its_unlabelled_pictures(tmp_path: Path) -> None:
    home = tmp_path / "stl10/stl10_binary"
    home.mkdir(parents=True)
    for value, split in ((1, "train"), (2, "test"), (3, "unlabeled")):
        pixels = np.zeros((2, 3, 96, 96), np.uint8)  # in the file: channel, column, row
        pixels[:, 0, 0, 0] = value
        pixels[:, 0, 95, 0] = [7, 8]  # the last column of the first row
        (home / f"{split}_X.bin").write_bytes(pixels.tobytes())
        if split != "unlabeled":
            (home / f"{split}_y.bin").write_bytes(bytes([10, 1]))
    data = load_benchmark("stl10", root=tmp_path)
    assert pairs(data.split("train")) == [(1, 9), (1, 0)]
    assert pairs(data.split("test")) == [(2, 9), (2, 0)]
    assert px(data.split("train"))[:, 0, 0, 95].tolist() == [7, 8]
    more = load_benchmark("stl10", root=tmp_path, protocol="unlabelled")
    assert pairs(more.split("train")) == [(1, 9), (1, 0), (3, -1), (3, -1)]
    assert len(px(load_benchmark("stl10", root=tmp_path, size=32).split("test"))[0, 0]) == 32


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_mnist_and_fashion_mnist(name: str, packed: bool, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    for start, prefix in ((0, "train"), (10, "t10k")):
        images = np.broadcast_to(np.arange(start, start + 3, dtype=np.uint8)[:, None, None], (3, 28, 28))
        for kind, content in (("images-idx3", idx(images)), ("labels-idx1", idx(np.array([3, 0, 9], np.uint8)))):
            file = tmp_path / name / f"{prefix}-{kind}-ubyte{'.gz' if packed else ''}"
            file.write_bytes(gzip.compress(content) if packed else content)
    data = load_benchmark(name, root=tmp_path)
    assert data.shape == (1, 28, 28)
    assert pairs(data.split("train")) == [(0, 3), (1, 0), (2, 9)]
    assert pairs(data.split("test")) == [(10, 3), (11, 0), (12, 9)]
    assert data.labels.names[9] == ("9" if name == "mnist" else "Ankle boot")


def test_a_file_that_is_no_idx_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(idx(np.zeros((2, 3), np.uint8))[:-1])
    with pytest.raises(DataError, match="not a whole idx file"):
        read_idx(tmp_path / "x")
