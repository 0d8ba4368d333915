"""The data of recipes: at hand or not, divided, features in place of pictures."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from labelwise.fitting.encoding import write_features
from labelwise.support.errors import DataError
from labelwise_papers.recipe import Source, find_recipes
from labelwise_papers.reproduce.quick import quick
from labelwise_papers.reproduce.sources import is_at_hand, missing, read_source, sets_at_hand
from labelwise_papers.reproduce.tiny import SHAPES, tiny
from tests.papers.benchmarks import made
from tests.pixels_of import px


def cifar10(root: Path, images: int = 40) -> None:
    """A pack in the form of cifar10.npz."""
    made = np.random.default_rng(0)
    np.savez(
        root / "cifar10.npz",
        images=made.integers(0, 255, (images, 32, 32, 3), dtype=np.uint8),
        labels=np.arange(images) % 10,
        split=(np.arange(images) >= images // 2).astype(np.uint8),
        classes=np.array([f"class {i}" for i in range(10)]),
    )


def test_what_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    source = Source(source="cifar10", title="CIFAR-10", note="Ask around.")
    told = missing(source, tmp_path)
    assert "labelwise data get cifar10" in told
    assert "Ask around." in told
    cifar10(tmp_path)
    assert missing(source, tmp_path) == ""
    assert "packed form will not do" in missing(replace(source, official=True), tmp_path)
    assert "r50.npz" in missing(replace(source, features="r50.npz"), tmp_path)
    assert missing(Source(source="", title="made"), tmp_path) == ""
    assert missing(Source(source="imagenet10", title="x"), tmp_path) == 'No data at "imagenet10".'
    assert is_at_hand("digits", tmp_path)
    assert not is_at_hand("cub/captions", tmp_path)


def test_a_stand_in_runs_only_where_it_is_needed_or_asked_for(tmp_path: Path) -> None:
    (recipe,) = find_recipes("indicator/table10")
    here, gone = sets_at_hand(recipe, (), tmp_path)
    assert (here, sorted(gone)) == ([], ["stl10", "stl10_from_cifar10"])
    cifar10(tmp_path)
    here, gone = sets_at_hand(recipe, (), tmp_path)
    assert (here, sorted(gone)) == (["stl10_from_cifar10"], ["stl10"])
    (tmp_path / "stl10").mkdir()
    (tmp_path / "stl10" / "train_X.bin").touch()
    assert sets_at_hand(recipe, (), tmp_path) == (["stl10"], {})
    assert sets_at_hand(recipe, ("stl10_from_cifar10",), tmp_path) == (["stl10_from_cifar10"], {})


def test_images_are_held_out_and_few_are_kept(tmp_path: Path) -> None:
    cifar10(tmp_path, 400)
    data = read_source(Source(source="cifar10", title="x", held=20, images=50), tmp_path, 0)
    assert data is not None
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 50, "val": 20, "test": 200}
    rows = [tuple(image.flatten()[:64].tolist()) for name in ("train", "val") for image in px(data.split(name))]
    assert len(set(rows)) == 70
    again = read_source(Source(source="cifar10", title="y", held=20), tmp_path, 3)
    assert again is not None
    assert torch.equal(px(again.split("val")), px(data.split("val"))), "the same for every seed"


def test_windows_of_a_picture_are_held_out_together(tmp_path: Path) -> None:
    made.cub(tmp_path / "cub200", classes=12)
    made.text(tmp_path / "cub200/image_class_labels.txt", *[f"{i + 1} {i % 2 + 1}" for i in range(24)])
    made.text(tmp_path / "cub200/train_test_split.txt", *[f"{i + 1} {int(i < 20)}" for i in range(24)])
    data = read_source(Source(source="cub20/wide", title="x", held=2), tmp_path, 0)
    assert data is not None
    train, val = (Counter(data.split(name).groups) for name in ("train", "val"))
    assert (len(train), len(val)) == (18, 2)
    assert not set(train) & set(val)
    assert {*train.values(), *val.values()} == {3}


def test_features_take_the_place_of_pictures(tmp_path: Path) -> None:
    cifar10(tmp_path)
    f, ft = np.random.default_rng(1).random((2, 20, 6)).astype(np.float16)
    np.savez(tmp_path / "r18.npz", f=f, ft=ft)
    source = Source(source="cifar10", title="x", features="r18.npz")
    data = read_source(source, tmp_path, 0)
    assert data is not None
    assert torch.equal(px(data.split("test")), torch.from_numpy(ft.astype(np.float32)))
    assert data.split("test").targets.tolist() == [(20 + i) % 10 for i in range(20)]
    np.savez(tmp_path / "short.npz", f=f[:-1], ft=ft)
    with pytest.raises(DataError, match="has 39 rows"):
        read_source(replace(source, features="short.npz"), tmp_path, 0)
    np.savez(tmp_path / "other.npz", x=f)
    with pytest.raises(DataError, match="holds neither"):
        read_source(replace(source, features="other.npz"), tmp_path, 0)


def test_features_are_what_encoding_wrote(tmp_path: Path) -> None:
    cifar10(tmp_path)
    data = read_source(Source(source="cifar10", title="x"), tmp_path, 0)
    assert data is not None
    splits = {name: replace(part, images=px(part).flatten(1)[:, :5].float()) for name, part in data.splits.items()}
    write_features(replace(data, splits=splits), tmp_path / "own.npz")
    source = Source(source="cifar10", title="x", features="own.npz")
    found = read_source(source, tmp_path, 0)
    assert found is not None
    for name in ("train", "test"):
        assert torch.equal(px(found.split(name)), px(splits[name]))
    wrong = {**splits, "train": replace(splits["train"], targets=torch.as_tensor(splits["train"].targets).flip(0))}
    write_features(replace(data, splits=wrong), tmp_path / "wrong.npz")
    with pytest.raises(DataError, match="are not those of"):
        read_source(replace(source, features="wrong.npz"), tmp_path, 0)


@pytest.mark.parametrize("kind", SHAPES)
def test_tiny_data_is_always_the_same(kind: str) -> None:
    one, two = tiny(f"tiny/{kind}"), tiny(f"tiny/{kind}")
    assert one.shape == SHAPES[kind]
    for name, split in one.splits.items():
        assert torch.equal(px(split), px(two.splits[name]))
    trained = set(one.split("train").targets.tolist())
    tested = set(one.split("test").targets.tolist())
    assert (tested - trained == set()) == (kind not in ("described", "unseen"))
    assert (tested & trained == set()) == (kind == "unseen")


def test_a_quick_recipe_needs_no_data(tmp_path: Path) -> None:
    for name in ("indicator/table2", "clarel/table1", "zero_label/table1", "prototype/table3"):
        recipe = quick(find_recipes(name)[0])
        assert sets_at_hand(recipe, (), tmp_path)[1] == {}
