"""Objects of the package ``datasets``: the real ones where it is installed, and objects that offer the same."""

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image as Picture

from labelwise.calls import as_dataset
from labelwise.images.as_images import as_images
from labelwise.images.images import Unreadable
from labelwise.support.errors import DataError

NAMES = ["wren", "owl"]


def photo(seed: int) -> bytes:
    stream = io.BytesIO()
    Picture.fromarray(np.random.default_rng(seed).integers(0, 256, (20, 24, 3), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


class Image:
    """A feature called as in ``datasets``."""


@dataclass
class ClassLabel:
    names: list[str]


@dataclass
class List:
    feature: object


class Rows:
    """What is asked of a ``datasets.Dataset``, over a table of Arrow."""

    def __init__(self, table: Any, features: dict[str, object], arrow: bool = False) -> None:
        self.table, self.features, self.arrow = table, features, arrow
        self.column_names = table.column_names

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def with_format(self, kind: str) -> "Rows":
        return Rows(self.table, self.features, kind == "arrow")

    def __getitem__(self, key: Any) -> Any:
        return self.table.column(key).to_pylist() if isinstance(key, str) else self.table.take(key)


def pretended(labels: list[Any], feature: object | None = None, start: int = 0) -> Rows:
    images = [{"bytes": photo(start + i), "path": None} for i in range(len(labels))]
    table = pyarrow.table({"photo": images, "species": labels})
    return Rows(table, {"photo": Image(), "species": feature or ClassLabel(NAMES)})


def real(labels: list[Any], feature: object | None = None, start: int = 0) -> Any:
    datasets = pytest.importorskip("datasets")
    images = [{"bytes": photo(start + i), "path": None} for i in range(len(labels))]
    kind = datasets.ClassLabel(names=NAMES)
    features = datasets.Features({"photo": datasets.Image(), "species": datasets.List(kind) if feature else kind})
    return datasets.Dataset.from_dict({"photo": images, "species": labels}, features=features)


@pytest.mark.parametrize("make", [pretended, real])
def test_a_dataset_comes_back_as_it_is(make: Any) -> None:
    labels = [0, 1, 1, 0, 1, 0, 0, 1]
    data = as_dataset(make(labels))
    assert data.labels.names == ("owl", "wren")
    there = {}
    for split in data.splits.values():
        for file, word, image in zip(
            split.files, split.words(data.labels.names), split.images.read(range(len(split)), (3, 20, 24)), strict=True
        ):
            assert not isinstance(image, Unreadable)
            there[file] = word, image.tobytes()
    for i, label in enumerate(labels):
        pixels = np.moveaxis(np.asarray(Picture.open(io.BytesIO(photo(i)))), 2, 0)
        assert there[f"image {i}"] == (NAMES[label], pixels.tobytes())


@pytest.mark.parametrize("make", [pretended, real])
def test_splits_keep_their_names_and_secret_labels_are_left_out(make: Any) -> None:
    data = as_dataset({"train": make([0, 1, 0, 1]), "validation": make([0, 1, -1], start=9)})
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 4, "val": 2}
    with pytest.raises(DataError, match='unknown split "extra"'):
        as_dataset({"extra": make([0, 1])})


@pytest.mark.parametrize("make", [pretended, real])
def test_lists_of_labels_are_data_of_several_labels(make: Any) -> None:
    data = as_dataset({"train": make([[0], [0, 1], [], [1]], List(ClassLabel(NAMES)))})
    assert data.multilabel
    words = data.splits["train"].words(data.labels.names) + data.splits["val"].words(data.labels.names)
    assert sorted(words) == ["", "owl", "owl;wren", "wren"]


@pytest.mark.parametrize("make", [pretended, real])
def test_the_images_of_a_dataset_are_images(make: Any) -> None:
    data = make([0, 1] * 6)
    images = as_images(data)
    assert len(images) == 12
    assert images.read([3], (3, 20, 24))[0].shape == (3, 20, 24)  # type: ignore[union-attr]
    assert len(set(images.digests())) == 12


def test_a_column_of_numbers_is_no_column_of_labels() -> None:
    data = pretended([0, 1])
    data.features["species"] = object()
    with pytest.raises(DataError, match=r"no column of ClassLabel.*photo, species"):
        as_dataset(data)
