"""Cross-validation: every image once, groups whole, the encoder once; against a slow obvious loop."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import labelwise as lw
from labelwise.core.classifier import MethodRecord
from labelwise.core.metrics import expected_calibration_error
from labelwise.encoders.encoder import Array
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.evaluation.folds import evaluate_folds
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.sources.array_data import arrays
from labelwise.images.split.make import folds_of
from labelwise.methods import METHODS
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.train.method import Run
from labelwise.train.networks.encoder import Encoder
from tests.changed import changed
from tests.cli.conftest import run as run
from tests.conftest import squares
from tests.contract.subjects import trained
from tests.fitting.test_one_choice import TinyPretrained
from tests.pixels_of import px

CPU = Run(device="cpu")
pytestmark = pytest.mark.filterwarnings("ignore::labelwise.support.errors.LabelwiseWarning")


def features(n: int = 60, labels: int = 3, spread: float = 1.0) -> Dataset:
    rng, targets = np.random.default_rng(0), np.arange(n) % labels
    means = np.eye(labels, 8, dtype=np.float32)[targets]
    return arrays(spread * rng.random((n, 8), np.float32) + means, targets)


def pictures(side: int) -> Dataset:
    rng, targets = np.random.default_rng(0), np.arange(24) % 3
    images = rng.integers(0, 99, (24, 3, side, side), dtype=np.uint8)
    images[np.arange(24), targets] += 120
    return arrays(images, targets)


@pytest.mark.parametrize("seed", range(4))
def test_folds_are_even_and_groups_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets = torch.from_numpy(rng.integers(0, 4, 97))
    alone = folds_of([""] * 97, targets, 5, seed)
    for label in range(4):
        sizes = np.bincount(alone[targets == label], minlength=5)
        assert int(sizes.max() - sizes.min()) <= 1
    groups = [f"g{i // 3}" if i < 60 else "" for i in range(97)]
    fold = folds_of(groups, targets, 5, seed)
    assert all(len(set(fold[i : i + 3].tolist())) == 1 for i in range(0, 60, 3))
    sizes = np.bincount(fold, minlength=5)
    assert int(sizes.max() - sizes.min()) <= 6
    assert not np.array_equal(alone, folds_of([""] * 97, targets, 5, seed + 1))


def test_small_labels_fill_all_folds() -> None:
    targets = torch.arange(100).repeat(2)  # two images of each label
    fold = folds_of([""] * 200, targets, 5, 0)
    assert np.bincount(fold).tolist() == [40] * 5
    assert bool((fold[:100] != fold[100:]).all()), "each label is left in training"


@pytest.mark.parametrize("folds", [1, 61])
def test_too_few_or_too_many_folds_are_refused(folds: int) -> None:
    with pytest.raises(UsageError, match=rf"2 to 60 folds; given {folds}"):
        folds_of([""] * 60, torch.zeros(60, dtype=torch.int64), folds, 0)


@pytest.mark.parametrize("name", ["discriminant", "softmax"])
def test_it_is_what_a_loop_by_hand_says(name: str) -> None:
    data = features(spread=2.0)
    method = METHODS[name](**({} if name == "discriminant" else {"epochs": 3}))  # type: ignore[arg-type]
    whole = lw.data.pool(data)
    result = evaluate_folds(fit(data, method, CPU), data, 4, CPU)
    fold = torch.from_numpy(folds_of([""] * 60, whole.targets, 4, 0))
    right, sure = [], []
    for number in range(4):
        part = Dataset(name="x", labels=data.labels, splits={"train": whole.select((fold != number).nonzero()[:, 0])})
        rows = (fold == number).nonzero()[:, 0]
        for answer, target in zip(
            lw.classify(fit(part, method, CPU), px(whole)[rows], top=1),
            torch.as_tensor(whole.targets)[rows].tolist(),
            strict=True,
        ):
            right.append(answer.top[0][0] == data.labels.names[target])
            sure.append(answer.top[0][1])
    assert result.accuracy == pytest.approx(np.mean(right))
    assert result.ece == pytest.approx(expected_calibration_error(sure, np.array(right, float)), abs=1e-6)
    assert (result.images, result.groups, result.alone) == (60, 60, 0)
    assert result.low < result.accuracy < result.high


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Images that pass a stand-in for the pretrained network, nothing kept on disk."""
    passes: list[int] = []

    class Counted(TinyPretrained):
        def maps(self, x: Tensor) -> Tensor:
            passes.append(len(x))
            return super().maps(x)

    monkeypatch.setenv("LABELWISE_CACHE", "off")
    monkeypatch.setattr("labelwise.train.networks.backbones.EfficientNetLite0", Counted)
    published = OnnxEncoder.__call__

    def called(encoder: OnnxEncoder, images: Array) -> Array:
        """Closed forms take the published network without torch."""
        passes.append(len(images))
        return published(encoder, images)

    monkeypatch.setattr(OnnxEncoder, "__call__", called)
    return passes


@pytest.mark.parametrize("side", [16, 20])
@pytest.mark.parametrize("name", ["discriminant", "prototype", "softmax", "indicator"])
def test_a_frozen_encoder_runs_once_for_all_folds(name: str, side: int, counted: list[int]) -> None:
    data = pictures(side)
    encoder = Encoder(backbone="efficientnet_lite0", frozen=True)
    short = {} if name == "discriminant" else {"epochs": 2}
    classifier = fit(data, METHODS[name](encoder=encoder, **short), CPU)  # type: ignore[call-arg, arg-type]
    counted.clear()
    result = evaluate_folds(classifier, data, 3, CPU)
    assert sum(counted) == 24, "each image once, whatever the folds"
    assert result.images == 24
    assert result.by_fold == pytest.approx([1.0] * 3, abs=0.3)


def test_features_of_a_frozen_encoder_change_nothing(counted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    data = pictures(16)
    method = METHODS["discriminant"](encoder=Encoder(backbone="efficientnet_lite0", frozen=True))  # type: ignore[call-arg]
    classifier = fit(data, method, CPU)
    quickly = evaluate_folds(classifier, data, 3, CPU)
    monkeypatch.setattr("labelwise.evaluation.folds._on_features", lambda _, method, split: (method, split))
    slowly = evaluate_folds(classifier, data, 3, CPU)
    assert replace(quickly, ece=0.0) == replace(slowly, ece=0.0)
    assert quickly.ece == pytest.approx(slowly.ece, abs=1e-5)
    assert sum(counted) > 3 * 24


def test_lookalikes_and_groups_count_once() -> None:
    data = features(30)
    whole = lw.data.pool(data)
    twice = Split(images=px(whole).repeat(2, 1), targets=torch.as_tensor(whole.targets).repeat(2))
    classifier = fit(data, METHODS["discriminant"](), CPU)
    copies = evaluate_folds(classifier, Dataset(name="x", labels=data.labels, splits={"train": twice}), 5, CPU)
    assert (copies.images, copies.groups) == (60, 30), "nobody named groups: copies are found"
    named = replace(whole, groups=tuple(f"day {i // 6}" for i in range(30)))
    days = evaluate_folds(classifier, Dataset(name="x", labels=data.labels, splits={"test": named}), 5, CPU)
    assert (days.images, days.groups) == (30, 5)
    assert days.high - days.low > copies.high - copies.low
    with pytest.raises(UsageError, match="2 to 5 folds; given 6"):
        evaluate_folds(classifier, Dataset(name="x", labels=data.labels, splits={"test": named}), 6, CPU)


def test_a_label_with_one_image_is_not_measured() -> None:
    data = features(30)
    whole = lw.data.pool(data)
    labels = Labels(names=(*data.labels.names, "rare"))
    more = Split(
        images=torch.cat([px(whole), torch.ones(2, 8)]),
        targets=torch.cat([torch.as_tensor(whole.targets), torch.tensor([3, -1])]),
    )
    result = evaluate_folds(
        fit(data, METHODS["discriminant"](), CPU), Dataset(name="x", labels=labels, splits={"train": more}), 3, CPU
    )
    assert (result.images, result.alone) == (30, 1)


def test_what_cannot_be_refitted_is_refused() -> None:
    data = features()
    classifier = fit(data, METHODS["discriminant"](), CPU)
    with pytest.raises(UnsupportedError, match="has no record of the method that made it"):
        evaluate_folds(changed(classifier, method=None), data)
    for name, why in (("eszsl", "fits labels from descriptions"), ("zero_label", "reads no label")):
        with pytest.raises(UnsupportedError, match=rf"{name} {why}"):
            evaluate_folds(changed(classifier, method=MethodRecord.of(METHODS[name]())), data)
    with pytest.raises(UnsupportedError, match="Several labels may be true"):
        evaluate_folds(trained("multilabel"), squares())


def test_the_shell_measures_by_folds(run: Any, tmp_path: Path) -> None:
    whole = lw.data.pool(features(60))
    names = np.array(["a", "b", "c"])
    file, model = tmp_path / "my pack.npz", tmp_path / "m.lw"
    np.savez(file, features=px(whole).numpy(), labels=torch.as_tensor(whole.targets).numpy(), classes=names)
    assert run("fit", file, "--out", model, "--device", "cpu")[0] == 0
    code, out, err = run("evaluate", model, file, "--folds", 5)
    assert code == 0, err
    assert "right (accuracy)" in out
    assert "fold 5 of 5: 48 images train, 12 are measured" in err
    code, out, _ = run("evaluate", model, file, "--folds", 5, "--json")
    figures = json.loads(out)
    assert (figures["images"], figures["folds"], len(figures["by_fold"])) == (60, 5, 5)
    code, _, err = run("evaluate", model, file, "--folds", 5, "--split", "test")
    assert code == 2
    assert "Leave out --split" in err
