"""The exported file answers as the classifier does, for every method and without labelwise."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from labelwise.api import teach
from labelwise.core.classifier import Classifier
from labelwise.core.export import OUTPUTS, TOLERANCE, export, outputs_of
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.methods import METHODS, Softmax
from labelwise.support.errors import LabelwiseError, UnsupportedError, UsageError
from labelwise.train.method import Run
from tests.changed import changed
from tests.conftest import blobs, quick, squares
from tests.contract.subjects import pictures, trained
from tests.pixels_of import px

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


def check(classifier: Classifier, file: Path, images: np.ndarray) -> dict[str, Any]:
    """Return the outputs of an exported file after comparing all of them with the classifier."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    given = dict(zip(OUTPUTS, session.run(list(OUTPUTS), {"images": images}), strict=True))
    wanted = outputs_of(classifier.scores(images))
    np.testing.assert_allclose(given["scores"], wanted["scores"], rtol=1e-4, atol=1e-4)
    for name in ("probabilities", "answers"):
        np.testing.assert_allclose(given[name], wanted[name], atol=1e-5)
    np.testing.assert_allclose(given["outlier_score"], wanted["outlier_score"], rtol=1e-3, atol=1e-3)
    limit = classifier.familiarity.limit
    clear = abs(wanted["outlier_score"] - limit) > 1e-2
    assert np.array_equal(given["unknown"][clear], wanted["unknown"][clear])
    assert np.array_equal(given["labels"][clear], wanted["labels"][clear])
    assert clear.any()
    return given


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_its_own_answers(name: str, tmp_path: Path) -> None:
    classifier = trained(name)
    images = px(pictures(name).split("test"))[:9].numpy()
    made = export(classifier, tmp_path / "model.onnx")
    assert made.difference <= TOLERANCE
    given = check(classifier, made.file, images)
    assert given["labels"].dtype == given["unknown"].dtype == np.bool_
    check(classifier, made.file, images[:1])


def test_unknown_images_and_thresholds_are_inside(tmp_path: Path) -> None:
    classifier = trained("softmax")
    images = px(blobs().split("test"))[:40].numpy()
    scores = classifier.scores(images)
    assert classifier.familiarity.rule is not None
    middle = replace(classifier.familiarity.rule, limit=float(np.median(scores.outlier_score)) + 1e-3)
    names = classifier.labels.names
    strict = changed(classifier, rule=middle).with_thresholds({names[0]: 0.999, names[1]: 0.05})
    given = check(strict, export(strict, tmp_path / "strict.onnx").file, images)
    assert 0 < given["unknown"].sum() < 40
    assert not given["labels"][given["unknown"]].any()
    every = classifier.with_thresholds(dict.fromkeys(names, 0.9999))
    check(every, export(every, tmp_path / "every.onnx").file, images)
    several = changed(classifier, multilabel=True).with_thresholds({names[0]: 0.01})
    check(several, export(several, tmp_path / "several.onnx").file, images)
    about = onnxruntime.InferenceSession(str(tmp_path / "strict.onnx")).get_modelmeta().custom_metadata_map
    assert json.loads(about["thresholds"]) == strict.thresholds
    assert json.loads(about["outlier_rule"])["limit"] == middle.limit


def test_a_taught_classifier_through_the_shell_has_labels_inside(blob_data: Dataset, tmp_path: Path) -> None:
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
    assert (about["shape"], about["fit"]) == ([3, 8, 8], taught.encoder.fit)
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape[1:]) == ("images", "tensor(uint8)", [3, 8, 8])
    assert isinstance(CliRunner().invoke(app, words).exception, UsageError), "it is there already"
    with pytest.raises(UsageError, match=r"\.onnx file"):
        export(load(tmp_path / "m.lw"), tmp_path / "m.pt")


def test_several_labels_and_grey_pictures(tmp_path: Path) -> None:
    classifier = fit(squares(), quick("multilabel", epochs=2), Run(device="cpu"))
    check(classifier, export(classifier, tmp_path / "several.onnx").file, px(squares().split("test"))[:9].numpy())
    grey = blobs()
    splits = {name: replace(split, images=px(split)[:, :1].contiguous()) for name, split in grey.splits.items()}
    classifier = fit(replace(grey, splits=splits), quick("softmax", epochs=2), Run(device="cpu"))
    check(classifier, export(classifier, tmp_path / "grey.onnx").file, px(splits["test"])[:9].numpy())


def test_features_are_taken_as_floats(blob_data: Dataset, tmp_path: Path) -> None:
    flat = {name: replace(s, images=px(s).flatten(1).float() / 255) for name, s in blob_data.splits.items()}
    for method in (Softmax(epochs=2), None):
        classifier = fit(replace(blob_data, splits=flat), method, Run(device="cpu"))
        made = export(classifier, tmp_path / "features.onnx", overwrite=True)
        check(classifier, made.file, torch.as_tensor(px(flat["test"]))[:4].numpy())


def test_what_cannot_be_written_or_differs_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = trained("softmax")
    with monkeypatch.context() as patch:
        patch.setattr(type(classifier.head), "embed", lambda _, features: np.cumsum(features, 1))
        with pytest.raises(UnsupportedError, match="Cannot export a formula with cumsum"):
            export(classifier, tmp_path / "model.onnx")
        patch.setattr(type(classifier.head), "embed", lambda _, features: features[:2])
        with pytest.raises(UnsupportedError, match="cannot choose among them"):
            export(classifier, tmp_path / "model.onnx")
    monkeypatch.setattr("labelwise.core.export.TOLERANCE", -1.0)
    with pytest.raises(LabelwiseError, match="differs from the classifier"):
        export(classifier, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_export_and_report_need_no_torch(tmp_path: Path) -> None:
    save(trained("discriminant"), tmp_path / "m.lw")
    np.save(tmp_path / "images.npy", px(pictures("discriminant").split("test"))[:20].numpy())
    np.save(tmp_path / "targets.npy", np.asarray(pictures("discriminant").split("test").targets)[:20])
    program = """
import sys; sys.modules["torch"] = None
import numpy as np, labelwise as lw
from labelwise.core.export import export
classifier = lw.load("m.lw")
export(classifier, "m.onnx")
lw.report("m.lw", (np.load("images.npy"), np.load("targets.npy")), out="m.html", split="all")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "m.onnx").exists()
    assert "Thresholds" in (tmp_path / "m.html").read_text()
