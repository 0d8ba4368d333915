"""A saved classifier whose numbers no model can have is refused: in words, in little memory, and before it is built."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier, bind
from labelwise.core.familiarity import OutlierRule
from labelwise.core.model import Spec
from labelwise.core.store import load, save
from labelwise.images.describe.labels import Labels
from labelwise.methods import METHODS, Clarel, Encoder, Izf, Method, Prototype, Softmax, ZeroLabel
from labelwise.support.errors import LabelwiseError, StoreError
from labelwise.support.files import read_tensors, write_tensors
from labelwise.train.networks.backbones import BACKBONES, ON_FEATURES
from tests.changed import changed, description
from tests.contract.subjects import trained

ROOT = Path(__file__).parent.parent
LABELS = Labels(
    names=("a", "b", "c"), vectors=torch.eye(3), texts=(("a red bird",), ("a blue bird",), ("a small green one",))
)
MANY_BACKBONES = [name for name in BACKBONES if name != "efficientnet_lite0"]


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors of a saved classifier, the checksum with them."""
    tensors, about = read_tensors(folder / "weights.safetensors")
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    change(copies)
    write_tensors(folder / "weights.safetensors", copies, about)
    say(folder, "weights_sha256", hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest())


def say(folder: Path, path: str, value: object) -> None:
    """Change one field of the description."""
    about = description(folder)
    part = about
    *outer, last = path.split(".")
    for key in outer:
        part = part[key]
    part[last] = value
    (folder / "classifier.json").write_text(json.dumps(about))


def trainable(classifier: Classifier) -> list[str]:
    return [name for name, parameter in classifier.model.named_parameters() if parameter.requires_grad]


def untrained(folder: Path, method: Method, shape: tuple[int, ...]) -> tuple[Classifier, Tensor]:
    """Save the classifier of an untrained model; return it, and some images."""
    torch.manual_seed(3)
    model = method.build(Spec(shape=shape, labels=LABELS))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    classifier = changed(bind(model, LABELS), method=method)
    save(classifier, folder)
    return classifier, torch.rand(2, *shape)


@pytest.mark.parametrize("method", METHODS)
def test_weights_that_are_not_finite_are_refused(method: str, tmp_path: Path) -> None:
    save(trained(method), tmp_path / "m")
    names = list(read_tensors(tmp_path / "m" / "weights.safetensors")[0])
    weight = next(name for name in names if name.startswith("model/encoder") and name.endswith("weight"))
    kept = {path: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    for name, value in ((weight, torch.nan), (weight, torch.inf), ("codes", torch.nan), ("scale", -torch.inf)):
        rewrite(tmp_path / "m", lambda tensors, n=name, x=value: tensors[n].view(-1)[-1:].fill_(x))  # type: ignore[misc]
        with pytest.raises(StoreError, match=rf'm cannot be used\. "{name}" is not finite .* lower learning rate'):
            load(tmp_path / "m")
        for path, content in kept.items():
            path.write_bytes(content)
    load(tmp_path / "m")


def test_label_vectors_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    save(trained("eszsl"), tmp_path / "m")
    rewrite(tmp_path / "m", lambda tensors: tensors["trained_labels/vectors"][0].fill_(torch.nan))
    with pytest.raises(StoreError, match='"trained_labels/vectors" is not finite'):
        load(tmp_path / "m")


def test_what_means_nothing_yet_may_be_infinite(tmp_path: Path) -> None:
    """The background of a model of single labels is infinite; NaN it must not be."""
    save(trained("softmax"), tmp_path / "m")
    assert bool(load(tmp_path / "m").model.state_dict()["background"].isinf().all())
    rewrite(tmp_path / "m", lambda tensors: tensors["model/background"].fill_(torch.nan))
    with pytest.raises(StoreError, match='"model/background" is not finite'):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temperature", float("nan"), '"temperature" is not finite'),
        ("temperature", 0, "the temperature must be above 0"),
        ("temperature", "warm", 'Setting "temperature" must be a number; given "warm"'),
        ("gap", float("-inf"), '"gap" is not finite'),
        ("outlier.limit", float("inf"), '"outlier.limit" is not finite'),
        ("outlier.spread", [1.0, float("nan")], '"outlier.spread.1" is not finite'),
        ("verification.threshold", float("nan"), '"verification.threshold" is not finite'),
        ("method.settings.optimizer.lr", float("nan"), 'Setting "optimizer.lr" must be a number; given NaN'),
        ("method.settings.encoder.width", 2048, r"features.0.weight is float32 \[8, 3, 3, 3\] in the file and float32 \[2048,"),
        ("method.settings.encoder.width", -8, "width of a backbone must be at least 1; given -8"),
        ("method.settings.encoder.code_size", 10**12, "settings and weights differ|overflow"),
        ("method.settings.encoder.size", 10**6, "An image has at most 268435456 numbers"),
        ("shape", [3, 10**9, 8], "An image has at most 268435456 numbers"),
        ("shape", [10**9], "An image has at most 268435456 numbers"),
        ("shape", [10**8], "does not take these|settings and weights differ"),
        ("shape", [3, -8, 8], "all at least 1"),
        ("labels.names", ["a", "b"], "2 labels"),
        ("summary", [], 'Setting "summary" must be a table'),
        ("method", None, "Restore its description from a copy"),
    ],
)  # fmt: skip
def test_descriptions_that_do_not_describe_the_weights_are_refused(
    field: str, value: object, message: str, tmp_path: Path
) -> None:
    save(trained("softmax"), tmp_path / "m")
    say(tmp_path / "m", field, value)
    with pytest.raises(StoreError, match=message):
        load(tmp_path / "m")


def test_labels_without_a_code_are_refused(tmp_path: Path) -> None:
    """A label more or less than there are rows would put names beside the scores of others."""
    untrained(tmp_path / "m", Softmax(), (5,))
    rewrite(tmp_path / "m", lambda tensors: tensors.__delitem__("labels/vectors"))
    say(tmp_path / "m", "labels.names", ["a", "b"])
    say(tmp_path / "m", "labels.texts", None)
    with pytest.raises(StoreError, match=r"2 labels need as many codes, scales and offsets; given \(3, 6\)"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    ("method", "field", "value"),
    [
        (Izf(epochs=1, blocks=1, hidden=4), "blocks", 10**6),
        (Clarel(reader="words", filters=(4,), hidden=4, code_size=4), "filters", [4] * 10**5),
    ],
)
def test_a_depth_that_no_network_has_is_refused(method: Method, field: str, value: object, tmp_path: Path) -> None:
    untrained(tmp_path / "m", method, (5,))
    say(tmp_path / "m", f"method.settings.{field}", value)
    with pytest.raises(StoreError, match=r"has at most 1?\d* blocks; given"):
        load(tmp_path / "m")


def test_no_number_of_a_description_takes_memory_or_another_answer(tmp_path: Path) -> None:
    """Every number of every method's folder is changed, in a process of its own, whose memory is its own, too.

    That is some thousand folders to load, and takes some seconds.
    """
    methods = [
        method for method in METHODS if method not in ("ridge", "devise")
    ]  # their folders are like those of eszsl
    for method in methods:
        save(trained(method), tmp_path / method)
    folders = [str(tmp_path / method) for method in methods]
    words = [sys.executable, "-m", "tests.flipped_numbers", *folders]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(words, cwd=ROOT, env=environment, check=True, capture_output=True, text=True, timeout=600)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == []
    assert found["refused"] > 400
    assert found["megabytes"] < 100
    assert found["imported"] == []  # torch's compiler takes a second to import, at the first call of every command


@pytest.mark.parametrize("name", MANY_BACKBONES)
def test_every_backbone_is_loaded_as_it_was(name: str, tmp_path: Path) -> None:
    shape = (6,) if name == "identity" else (4000,) if name in ON_FEATURES else (3, 16, 16)
    method = Softmax(encoder=Encoder(backbone=name, width=None if name == "identity" else 4))
    classifier, images = untrained(tmp_path / "m", method, shape)
    again = load(tmp_path / "m")
    assert np.array_equal(again.scores(images).log_odds, classifier.scores(images).log_odds)
    assert trainable(again) == trainable(classifier)


@pytest.mark.parametrize(
    "method",
    [
        Izf(epochs=1, blocks=2, hidden=4),
        Izf(epochs=1, blocks=2, hidden=4, mixing="lu", act_norm=True, head="softmax"),
        Izf(epochs=1, blocks=2, hidden=4, start="random"),
        Clarel(reader="words", filters=(4,), hidden=4, code_size=4),
        METHODS["eszsl"](source="texts"),  # type: ignore[call-arg]
        Prototype(hidden=4, layers=2, similarity="both", prototypes="sgd"),
        ZeroLabel(naming="transport", restarts=2),
        ZeroLabel(directions=3),
    ],
    ids=repr,
)
def test_every_kind_of_model_is_loaded_as_it_was(method: Method, tmp_path: Path) -> None:
    classifier, images = untrained(tmp_path / "m", method, (6,))
    again = load(tmp_path / "m")
    assert np.array_equal(again.scores(images).log_odds, classifier.scores(images).log_odds)
    state = again.model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in classifier.model.state_dict().items())
    assert trainable(again) == trainable(classifier)


def test_weights_of_half_precision_are_taken(tmp_path: Path) -> None:
    classifier, images = untrained(tmp_path / "m", Softmax(encoder=Encoder(code_size=4)), (6,))
    rewrite(tmp_path / "m", lambda tensors: tensors.update({"model/head.bias": tensors["model/head.bias"].half()}))
    torch.testing.assert_close(
        load(tmp_path / "m").scores(images).log_odds, classifier.scores(images).log_odds, atol=1e-3, rtol=0
    )
    assert load(tmp_path / "m").model.state_dict()["head.bias"].dtype == torch.float32
    rewrite(tmp_path / "m", lambda tensors: tensors.update({"model/head.bias": tensors["model/head.bias"].long()}))
    with pytest.raises(StoreError, match=r"head.bias is int64 \[3\] in the file and float32 \[3\] by the settings"):
        load(tmp_path / "m")


def test_writing_over_the_file_changes_no_answer(tmp_path: Path) -> None:
    """Tensors of a file are mapped into memory: what is loaded must not change with the file."""
    classifier, images = untrained(tmp_path / "m", Prototype(hidden=4), (6,))
    again = load(tmp_path / "m")
    before = again.scores(images).log_odds
    with (tmp_path / "m" / "weights.safetensors").open("r+b") as file:
        file.write(bytes(os.fstat(file.fileno()).st_size))
    assert np.array_equal(again.scores(images).log_odds, before)
    assert np.array_equal(before, classifier.scores(images).log_odds)


def test_a_classifier_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    classifier, images = untrained(tmp_path / "m", Softmax(encoder=Encoder(code_size=4)), (6,))
    before = classifier.scores(images).log_odds
    broken = [
        (changed(classifier, label_embeddings=classifier.label_embeddings * torch.nan), "codes"),
        (changed(classifier, temperature=float("nan")), "temperature"),
        (
            changed(trained("softmax"), rule=OutlierRule(centre=(0.0, 0.0), spread=(1.0, 1.0), limit=float("nan"))),
            "outlier.limit",
        ),
    ]
    with torch.no_grad():
        again = load(tmp_path / "m")
        again.model.get_parameter("encoder.project.weight")[0, 0] = torch.inf
    broken.append((again, "model/encoder.project.weight"))
    for one, name in broken:
        with pytest.raises(LabelwiseError, match=rf'"{name}" is not finite .* lower learning rate'):
            save(one, tmp_path / "m", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert np.array_equal(load(tmp_path / "m").scores(images).log_odds, before)
