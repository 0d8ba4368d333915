import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labelwise.support.errors import DataError
from labelwise_papers.benchmarks import ENTRIES, load_benchmark, records
from tests.papers.benchmarks.made import pairs, png
from tests.pixels_of import px

ROOT = Path(os.environ.get("LABELWISE_DATA", "none"))
# Splits and labels that each packed file must give, as the papers or the official pages state them.
REAL = {
    "cub20": ({"train": 600, "test": 515}, 20),
    "cars-bmw": ({"train": 529, "test": 522}, 13),
    "mnist": ({"train": 60_000, "test": 10_000}, 10),
    "fashion-mnist": ({"train": 10_000, "test": 10_000}, 10),
    "omniglot": ({"train": 2_720, "test": 2_120}, 242),
}


def pack(file: Path, arrays: Mapping[str, object], count: int = 6) -> None:
    """Encoded pictures whose value is their number."""
    files = [png(i) for i in range(count)]
    ends = np.cumsum([0, *map(len, files)])
    held = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez(file, data=np.frombuffer(b"".join(files), np.uint8), offsets=ends, **held)  # type: ignore[arg-type]


def test_cifar100_pack_has_superclasses(tmp_path: Path) -> None:
    arrays = {"labels": [0, 1, 2, 0, 1, 2], "coarse": [0, 1, 1, 0, 1, 1], "split": [0, 0, 0, 1, 1, 1]}
    names = {"classes": ["apple", "oak_tree", "willow_tree"], "superclasses": ["fruit", "tall_trees"]}
    pack(tmp_path / "cifar100.npz", {**arrays, **names})
    assert pairs(load_benchmark("cifar100", root=tmp_path).split("train")) == [(0, 0), (1, 1), (2, 2)]
    coarse = load_benchmark("cifar100-20", root=tmp_path)
    assert coarse.labels.names == ("fruit", "tall trees")
    assert pairs(coarse.split("test")) == [(3, 0), (4, 1), (5, 1)]


def test_pets_pack_has_species(tmp_path: Path) -> None:
    arrays = {"labels": [0, 1, 0, 1, 0, 1], "species": [0, 1, 0, 1, 0, 1], "split": [0, 0, 0, 1, 1, 1]}
    pack(tmp_path / "pets37_64.npz", {**arrays, "classes": ["Bengal", "pug"]})
    assert load_benchmark("pets", root=tmp_path).labels.names == ("Bengal", "pug")
    data = load_benchmark("pets", root=tmp_path, protocol="species")
    assert data.labels.names == ("cat", "dog")
    assert pairs(data.split("test")) == [(3, 1), (4, 0), (5, 1)]


def test_pacs_pack_has_domains(tmp_path: Path) -> None:
    arrays = {"labels": [0, 0, 0, 0, 0, 0], "domain": [0, 0, 0, 1, 2, 3]}
    names = {"classes": ["dog"], "domains": ["art_painting", "cartoon", "photo", "sketch"]}
    pack(tmp_path / "pacs_64.npz", {**arrays, **names})
    data = load_benchmark("pacs", root=tmp_path, protocol="cartoon")
    assert pairs(data.split("test")) == [(3, 0)]
    assert sorted(data.split("train").domains + data.split("val").domains) == ["art_painting"] * 3 + ["photo", "sketch"]


def test_flowers_pack_has_val_and_names(tmp_path: Path) -> None:
    arrays = {"labels": [0, 1, 101, 0, 1, 101], "image_id": [9, 8, 7, 6, 5, 4], "split": [0, 0, 1, 1, 2, 2]}
    pack(tmp_path / "flowers102_64.npz", arrays)
    data = load_benchmark("flowers102", root=tmp_path)
    assert pairs(data.split("val")) == [(2, 101), (3, 0)]
    assert data.split("val").files == ("image_00007.jpg", "image_00006.jpg")
    assert data.labels.names[101] == "blackberry lily"


def test_tinyimagenet_pack_is_all_test(tmp_path: Path) -> None:
    names = {"wnids": ["n1", "n2", "n3"], "classes": ["crane, bird", "crane, machine", "frog"]}
    pack(tmp_path / "tinyimagenet_val_64.npz", {"labels": [0, 1, 2, 0, 1, 2], **names})
    data = load_benchmark("tinyimagenet", root=tmp_path)
    assert list(data.splits) == ["test"]
    assert data.labels.names == ("crane (n1)", "crane (n2)", "frog")


def test_cifar10_and_mnist_packs_hold_pixels(tmp_path: Path) -> None:
    pixels = np.zeros((3, 32, 32, 3), np.uint8)
    pixels[:, 0, 0, 0] = [4, 5, 6]
    pixels[:, 1, 0, 2] = 9
    parts: dict[str, Any] = {"labels": np.array([1, 0, 1], np.uint8), "split": np.array([0, 0, 1], np.uint8)}
    np.savez(tmp_path / "cifar10.npz", images=pixels, classes=np.array(["a", "b"]), **parts)
    np.savez(tmp_path / "mnist.npz", images=pixels[:, :28, :28, 0], **parts)
    colour, grey = load_benchmark("cifar10", root=tmp_path), load_benchmark("mnist", root=tmp_path)
    assert pairs(colour.split("train")) == pairs(grey.split("train")) == [(4, 1), (5, 0)]
    assert pairs(colour.split("test")) == pairs(grey.split("test")) == [(6, 1)]
    assert (colour.shape, grey.shape) == ((3, 32, 32), (1, 28, 28))
    assert int(px(colour.split("test"))[0, 2, 1, 0]) == 9


def test_a_damaged_pack_is_named(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(b"junk")
    with pytest.raises(DataError, match=r"mnist\.npz"):
        load_benchmark("mnist", root=tmp_path)
    np.savez(tmp_path / "mnist.npz", images=np.zeros((1, 28, 28), np.uint8))
    with pytest.raises(DataError, match='lacks "labels"'):
        load_benchmark("mnist", root=tmp_path)
    np.savez(tmp_path / "mnist.npz", images=np.array([object()], dtype=object))
    with pytest.raises(DataError, match=r"mnist\.npz\" holds Python objects"):
        load_benchmark("mnist", root=tmp_path)


@pytest.mark.parametrize("name", sorted(REAL))
def test_the_real_packs_have_the_splits_of_the_papers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "readable", lambda data: data)  # which decodes every image
    missing = [file for file in ENTRIES[name].packs if not (ROOT / file).exists()]
    if missing:
        pytest.skip(f"LABELWISE_DATA does not hold {missing[0]}")
    data = load_benchmark(name, root=ROOT)
    splits, labels = REAL[name]
    assert {split: len(rows) for split, rows in data.splits.items()} == splits
    assert len(data.labels) == labels
