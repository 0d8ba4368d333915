"""Training an encoder without labels from the shell, and fitting on it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from labelwise.data import load
from labelwise.fitting.choice import with_stored_encoder
from labelwise.support.errors import UsageError
from labelwise.support.files import read_tensors
from labelwise.train.pretraining import read_encoder
from tests.cli.folders import write_folders
from tests.conftest import blobs
from tests.pixels_of import px
from tests.stopping import stopped_at

FEW = ["--size", 8, "--device", "cpu", "--set", "epochs=2", "--set", "encoder.width=8"]
FEW += ["--set", "hidden=16", "--set", "queue=40"]
QUICK = [*FEW, "--set", "batch=16"]


@pytest.fixture(scope="module")
def sorted_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in label folders, divided into train and test."""
    root, data = tmp_path_factory.mktemp("sorted"), blobs(per_label=30)
    write_folders(root, data)
    return root


@pytest.fixture(scope="module")
def plain_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in one folder, and one file that is none."""
    root = tmp_path_factory.mktemp("plain")
    for i, image in enumerate(px(blobs(per_label=10).split("train"))):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(root / f"{i}.png")
    (root / "broken.jpg").write_text("not a picture")
    return root


@pytest.mark.parametrize("kind", ["simclr", "moco"])
def test_pictures_without_labels_make_an_encoder(run: Any, kind: str, plain_pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    code, out, err = run("pretrain", plain_pictures, "--out", file, "--kind", kind, *QUICK)
    assert code == 0, err
    assert "Skipped" in err
    assert "labels are not read" in err
    for words in ("13 images", "loss", "alignment", "uniformity"):
        assert words in out
    tensors, about = read_tensors(file)
    assert about["encoder"]["backbone"] == "convnet"
    assert about["encoder"]["width"] == 8
    assert about["encoder"]["shape"] == [3, 8, 8]
    assert about["kind"] == kind
    assert all(name.startswith("features.") for name in tensors)
    assert not file.with_name(file.name + ".run").exists()
    code, _, err = run("pretrain", plain_pictures, "--out", file, *QUICK)
    assert code == 2
    assert "--overwrite" in err
    code, _, err = run("pretrain", plain_pictures, "--out", tmp_path / "b.safetensors", "--probe", *QUICK)
    assert code == 2
    assert "no labels to compare with" in err


def test_a_classifier_is_fitted_on_it(run: Any, sorted_pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    code, out, _ = run("pretrain", sorted_pictures, "--out", file, "--probe", "--json", *QUICK)
    assert code == 0
    found = json.loads(out)
    assert found["images"] == 40
    assert 0 <= found["neighbours"]["accuracy"] <= 1
    assert found["neighbours"]["test_images"] == 40
    code, _, err = run("pretrain", sorted_pictures, "--out", file, "--overwrite", *QUICK)
    told = " ".join(err.split()).split("Use it: labelwise fit DATA ")[1].split(" ")
    words = ["fit", sorted_pictures, "--device", "cpu", "--method", "softmax", "--set", "epochs=5"]
    told[1] = f"encoder.weights={file}"  # which the console may have broken
    code, out, err = run(*words, "--out", tmp_path / "m.lw", *told)
    assert code == 0, err
    assert "validation images" in out
    other = [word.replace("encoder.width=8", "encoder.width=4") for word in told]
    code, _, err = run(*words, "--out", tmp_path / "n.lw", *other)
    assert code != 0
    assert file.name in "".join(err.split())


def test_a_stopped_run_continues(run: Any, plain_pictures: Path, tmp_path: Path) -> None:
    whole, file = tmp_path / "whole.safetensors", tmp_path / "part.safetensors"
    words = ["pretrain", plain_pictures, *FEW, "--set", "batch=6", "--kind", "moco"]
    run(*words, "--out", whole)
    with stopped_at(3):
        code, _, err = run(*words, "--out", file)
    assert code == 130
    assert "part.safetensors.run" in "".join(err.split())
    code, _, _ = run(*words, "--out", file, "--resume")
    assert code == 0
    first, second = (read_tensors(path)[0] for path in (whole, file))
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_features_are_made_by_it(run: Any, sorted_pictures: Path, tmp_path: Path) -> None:
    file, features = tmp_path / "encoder.safetensors", tmp_path / "features.npz"
    assert run("pretrain", sorted_pictures, "--out", file, *QUICK)[0] == 0
    code, _, err = run("data", "encode", sorted_pictures, "--encoder", file, "--out", features, "--device", "cpu")
    assert code == 0, err
    pictures = px(load(sorted_pictures, size=8).split("train"))
    encoder = replace(read_encoder(file), frozen=True).build((3, 8, 8))
    torch.testing.assert_close(px(load(features).split("train")), encoder.features(pictures))
    code, _, err = run("data", "encode", sorted_pictures, "--encoder", tmp_path / "no.safetensors", "--out", features)
    assert code == 1
    assert "no.safetensors" in "".join(err.split())


def test_a_file_states_its_encoder(run: Any, plain_pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    run("pretrain", plain_pictures, "--out", file, *QUICK)
    given = {"encoder.weights": str(file), "epochs": "3"}
    known = {"encoder.backbone": "convnet", "encoder.width": "8", "encoder.size": "8"}
    assert with_stored_encoder(given) == {**known, **given}
    assert with_stored_encoder({**given, "encoder.size": "16", "encoder.backbone": "auto"}) == {
        **known,
        **given,
        "encoder.size": "16",
    }
    assert "encoder.size" not in with_stored_encoder({**given, "view.size": "16"})
    with pytest.raises(UsageError, match=r"encoder.backbone is convnet, not resnet18"):
        with_stored_encoder({**given, "encoder.backbone": "resnet18"})
    with pytest.raises(UsageError, match=r"encoder.width is 8, not 16"):
        with_stored_encoder({**given, "encoder.width": "16"})
    for other in ({"epochs": "3"}, {"encoder.weights": "nowhere.safetensors"}, {"encoder.weights": str(tmp_path)}):
        assert with_stored_encoder(other) == other


def test_requests_that_make_no_sense(run: Any, plain_pictures: Path, tmp_path: Path) -> None:
    for words, said in (
        (["--out", tmp_path / "e.pt"], "takes a .safetensors file"),
        (["--out", tmp_path / "e.safetensors", "--set", "epoch=3"], 'Did you mean "epochs"'),
        (["--out", tmp_path / "e.safetensors", "--set", "epochs"], "key=value"),
        (["--out", tmp_path / "e.safetensors", "--kind", "byol"], "simclr"),
        (["--out", tmp_path / "e.safetensors", "--resume"], "no checkpoint in"),
    ):
        code, _, err = run("pretrain", plain_pictures, *words)
        assert code == 2
        assert said in " ".join(err.split())
    assert len(list(plain_pictures.iterdir())) == 14, "pictures were taken for a run and deleted"
