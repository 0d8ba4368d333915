"""The exported file gives the scores of the classifier, for every method that takes pictures."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.api import teach
from labelwise.core.store import load, save
from labelwise.fitting.export import TOLERANCE, export
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.methods import Softmax
from labelwise.methods.shared.linear import SoftmaxModel
from labelwise.support.errors import LabelwiseError, UnsupportedError, UsageError
from labelwise.train.method import Run
from labelwise.train.model import LabelModel
from tests.conftest import blobs, quick, squares
from tests.contract.subjects import pictures, trained
from tests.pixels_of import px

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra export is not installed")


def run(file: Path, images: torch.Tensor) -> list[Any]:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(["scores", "probabilities", "answers"], {"images": images.numpy()})
    return found


# One method of each kind of score; writing a file takes seconds. softmax and multilabel are written below.
KINDS = ("indicator", "prototype", "clarel", "eszsl", "izf", "zero_label")


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_model_gives_its_own_scores(name: str, tmp_path: Path) -> None:
    classifier = trained(name)
    images = px(pictures(name).split("test"))[:9]
    made = export(classifier, tmp_path / "model.onnx")
    scores, probabilities, answers = run(made.file, images)
    found = classifier.scores(images)
    wanted = found.log_odds
    assert np.abs(scores - wanted).max() <= TOLERANCE * max(1.0, float(abs(wanted).max()))
    assert np.abs(probabilities - found.probabilities).max() <= TOLERANCE
    assert np.abs(answers - found.yes).max() <= TOLERANCE
    assert run(made.file, images[:1])[0].shape == (1, len(classifier.labels)), "the batch size is free"


def test_a_taught_classifier_through_the_shell_has_labels_and_preparation_inside(
    blob_data: Dataset, tmp_path: Path
) -> None:
    from typer.testing import CliRunner

    from labelwise.cli.verbs import app

    classifier = fit(blob_data, quick("softmax", epochs=2), Run(device="cpu"))
    taught = teach(classifier, "ölig", examples=px(blob_data.split("test"))[:5])
    save(taught, tmp_path / "m.lw")
    words = ["export", str(tmp_path / "m.lw"), "--out", str(tmp_path / "m.onnx")]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["labels"] == 5
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    about = {key: json.loads(value) for key, value in session.get_modelmeta().custom_metadata_map.items()}
    assert about["labels"] == list(taught.labels.names)
    assert about["shape"] == [3, 8, 8]
    assert "8 x 8" in about["preprocessing"]
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape[1:]) == ("images", "tensor(uint8)", [3, 8, 8])
    assert isinstance(CliRunner().invoke(app, words).exception, UsageError), "it is there already"
    with pytest.raises(UsageError, match=r"\.onnx file"):
        export(load(tmp_path / "m.lw"), tmp_path / "m.pt")


def test_several_labels_and_grey_pictures(tmp_path: Path) -> None:
    data = squares()
    classifier = fit(data, quick("multilabel", epochs=2), Run(device="cpu"))
    assert export(classifier, tmp_path / "several.onnx").difference <= TOLERANCE
    grey = blobs()
    splits = {name: replace(split, images=px(split)[:, :1].contiguous()) for name, split in grey.splits.items()}
    classifier = fit(replace(grey, splits=splits), quick("softmax", epochs=2), Run(device="cpu"))
    assert export(classifier, tmp_path / "grey.onnx").difference <= TOLERANCE


def test_features_are_taken_as_floats(blob_data: Dataset, tmp_path: Path) -> None:
    flat = {name: replace(s, images=px(s).flatten(1).float() / 255) for name, s in blob_data.splits.items()}
    classifier = fit(replace(blob_data, splits=flat), Softmax(epochs=2), Run(device="cpu"))
    made = export(classifier, tmp_path / "features.onnx")
    images = px(flat["test"])[:4]
    assert np.allclose(run(made.file, images)[0], classifier.scores(images).log_odds, atol=1e-4)


def test_what_cannot_be_written_or_differs_leaves_no_file(
    blob_data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = fit(blob_data, quick("softmax", epochs=1), Run(device="cpu"))

    def by_hand(self: LabelModel, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1)[:, : int(images.sum()) % 2 + 1]

    with monkeypatch.context() as patch:
        patch.setattr(SoftmaxModel, "encode_images", by_hand)
        with pytest.raises(UnsupportedError, match="softmax cannot be written"):
            export(classifier, tmp_path / "model.onnx")
    monkeypatch.setattr("labelwise.fitting.export.TOLERANCE", -1.0)
    with pytest.raises(LabelwiseError, match="differs from the classifier"):
        export(classifier, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
