"""The verb imagine as a user meets it."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import labelwise as lw
from labelwise.cli import imagine as verb
from labelwise.core.classifier import Classifier
from labelwise.core.store import save
from labelwise.data import load
from labelwise.evaluation.evaluation import align_targets
from labelwise.evaluation.imagined import evaluate_imagined
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Eszsl
from labelwise.methods.izf.method import Izf
from labelwise.tasks.imagine import image_features, imagine
from tests.cli.folders import write_folders
from tests.conftest import blobs
from tests.described import by_vector
from tests.generating import generating
from tests.pixels_of import px

CPU = lw.Run(device="cpu")
VECTORS = torch.cat([torch.as_tensor(blobs().labels.vectors), torch.tensor([[1.0, 1.0, 1.0]])])
LABELS = Labels(names=("blob 0", "blob 1", "blob 2", "blob 3", "white/blob"), vectors=VECTORS)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Classifier:
    """A classifier in place of one that was saved: blob 3 and a label without any image are described alone."""
    made = generating(LABELS, (3, 8, 8), frozenset({"blob 3", "white/blob"}))
    monkeypatch.setattr(verb, "open_model", lambda *_: made)
    return made


def test_figures_and_files(run: Any, model: Classifier, pictures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "seen"
    code, out, err = run("imagine", "model", pictures, "--count", 20, "--seed", 2, "--out", folder, "--json")
    assert code == 0, err
    found = json.loads(out)
    test, labels = load(str(pictures), size=8).split("test"), load(str(pictures), size=8).labels
    blob, white = found["labels"]
    assert (blob["label"], white["label"]) == ("blob 3", "white/blob"), "labels without training images by themselves"
    (right,) = (
        one
        for one in evaluate_imagined(
            model, image_features(model, px(test)), align_targets(model, test, labels), count=20, seed=2
        )
        if one["label"] == "blob 3"
    )
    for key in ("images", "described", "precision", "real_precision"):
        assert blob[key] == right[key]
    assert (blob["offset"], blob["spread"]) == (pytest.approx(right["offset"]), pytest.approx(right["spread"]))
    places = torch.tensor([LABELS.index(name) for name in labels.names])[torch.as_tensor(test.targets)]
    straight = imagine(model, ["blob 3", "white/blob"], px(test), targets=places, count=20, seed=2)
    assert blob["typical"] == pytest.approx(float(straight.typical[0].mean()))
    assert [(one["row"], one["distance"]) for one in blob["nearest"]] == straight.closest("blob 3")
    assert blob["nearest"][0]["image"] == test.files[blob["nearest"][0]["row"]]
    assert blob["nearest"][0]["label"] == "blob 3"
    assert (white["images"], white["offset"], white["typical"]) == (0, None, None)
    names = ["imagined.csv", "plane.png", "01-blob 3.png", "02-white_blob.png"]
    assert found["files"] == [str(folder / name) for name in names]
    for name in names[1:]:
        with Image.open(folder / name) as picture:
            assert min(picture.size) > 150
            assert len(picture.convert("RGB").getcolors(2**24) or ()) > 50
    rows = list(csv.DictReader((folder / "imagined.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["label"] for row in rows] == ["blob 3", "white/blob"]
    assert rows[0]["nearest"].split("; ")[0] == blob["nearest"][0]["image"]


def test_the_table(run: Any, model: Classifier, pictures: Path) -> None:
    code, out, err = run(
        "imagine", "model", pictures, "--label", "blob 1", "--label", "white/blob", "--label", "blob 1"
    )
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert "50 generated features of each label" in " ".join(out.split())
    (first,) = (line for line in lines if line[:2] == ["blob", "1"])
    assert first[2] == "10", "the test images of it"
    (second,) = (line for line in lines if line[:1] == ["white/blob"])
    assert second[1:7] == ["0", "-", "-", "-", "-", "-"]
    assert "written" not in out


def test_a_folder_without_splits_is_all_looked_at(run: Any, model: Classifier, tmp_path: Path) -> None:
    test, new = blobs().split("test"), write_folders(tmp_path, blobs()) / "test"
    found = json.loads(run("imagine", "model", new, "--count", 3, "--json")[1])
    assert (found["split"], found["measured"]["images"]) == ("all", len(test))
    code, out, err = run("imagine", "model", new, "--count", 3)
    assert code == 0, err
    assert f"{len(test)} images of test, without splits" in " ".join(out.split())


def test_features_have_no_pictures(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = torch.Generator().manual_seed(0)
    targets = torch.arange(4).repeat(10)
    vectors = torch.eye(4)
    lines = [",".join(["label", "split", *(f"f{i}" for i in range(4))])]
    for row, target in enumerate(targets.tolist()):
        numbers = vectors[target] + 0.1 * torch.randn(4, generator=made)
        lines.append(
            ",".join([f"kind {target}", "test" if row > 7 else "train", *(f"{x:.4f}" for x in numbers.tolist())])
        )
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    classifier = generating(Labels(names=tuple(f"kind {i}" for i in range(4)), vectors=vectors), (4,))
    monkeypatch.setattr(verb, "open_model", lambda *_: classifier)
    code, out, err = run("imagine", "model", tmp_path / "rows.csv", "--out", tmp_path / "seen")
    assert code == 0, err
    assert "The data are features, so there are no images to draw" in " ".join(err.split())
    assert sorted(path.name for path in (tmp_path / "seen").iterdir()) == ["imagined.csv", "plane.png"]
    (first, *_) = csv.DictReader((tmp_path / "seen" / "imagined.csv").read_text().splitlines())
    assert first["nearest"].startswith("row ")
    assert "kind 3 100 %" in out


def test_a_label_just_taught_by_its_vector(run: Any, tmp_path: Path) -> None:
    data = by_vector(noise=0.2)
    known = tuple(name for name in data.labels.names if name != "label 5")
    places = torch.tensor([known.index(name) if name in known else -1 for name in data.labels.names])
    splits = {
        name: Split(images=px(split), targets=places[torch.as_tensor(split.targets)]).select(
            (places[torch.as_tensor(split.targets)] >= 0).nonzero()[:, 0]
        )
        for name, split in data.splits.items()
    }
    fitted = lw.fit(Dataset(name="most", labels=data.labels.select(known), splits=splits), Izf(epochs=0), CPU)
    save(fitted, tmp_path / "most.lw")
    vector = ",".join(f"{x:.6f}" for x in data.labels.select(["label 5"]).vectors[0].tolist())
    code, _, err = run("teach", tmp_path / "most.lw", "label 5", f"--vector={vector}", "--out", tmp_path / "all.lw")
    assert code == 0, err
    test = data.split("test")
    header = ",".join(["label", "split", *(f"f{i}" for i in range(20))])
    rows = [
        f"label {target},{'train' if row < 12 else 'test'},{','.join(map(str, image))}"
        for row, (target, image) in enumerate(zip(test.targets.tolist(), px(test).tolist(), strict=True))
    ]
    (tmp_path / "rows.csv").write_text("\n".join([header, *rows]))
    words = (tmp_path / "all.lw", tmp_path / "rows.csv", "--label", "label 5", "--json", "--device", "cpu")
    code, out, err = run("imagine", *words)
    assert code == 0, err
    (found,) = json.loads(out)["labels"]
    assert (found["described"], found["images"]) == (True, 15)
    assert found["precision"] > 0.8, "no image of it was ever seen, only its vector"
    assert found["offset"] < 1, "nearer to its own images than labels are to each other"


def test_wrong_use(run: Any, model: Classifier, pictures: Path) -> None:
    for words, wanted, message in (
        ((pictures, "--label", "blob 33"), 2, 'No label "blob 33"'),
        ((pictures, "--count", 1), 2, "Invalid value for '--count'"),
        ((pictures, "--split", "val2"), 2, "Invalid value for '--split'"),
    ):
        code, _, err = run("imagine", "model", *words)
        assert code == wanted, err
        assert message in " ".join(err.split())


def test_a_model_that_cannot_generate(run: Any, pictures: Path, tmp_path: Path) -> None:
    data = load(str(pictures), size=8)
    labels = Labels(names=data.labels.names, vectors=VECTORS[:4])
    fitted = lw.fit(Dataset(name="blobs", labels=labels, splits=data.splits), Eszsl(epochs=1), CPU)
    save(fitted, tmp_path / "model.lw")
    code, out, err = run("imagine", tmp_path / "model.lw", pictures, "--out", tmp_path / "seen", "--device", "cpu")
    assert (code, out) == (1, "")
    assert "cannot generate features of a label from its description" in " ".join(err.split())
    assert not (tmp_path / "seen").exists()
