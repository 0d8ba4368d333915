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
from labelwise.data.dataset import Dataset, Split
from labelwise.data.read.arrays import arrays
from labelwise.data.split.make import folds_of
from labelwise.errors import UnsupportedError, UsageError
from labelwise.evaluate.folds import evaluate_folds
from labelwise.fitting.fit import fit
from labelwise.labels import Labels
from labelwise.methods import METHODS
from labelwise.nn.encoder import Encoder
from labelwise.training.stages import Run
from tests.changed import changed
from tests.cli.conftest import run as run
from tests.conftest import quick, squares
from tests.contract.subjects import trained
from tests.fitting.test_one_choice import TinyPretrained

CPU = Run(device="cpu")
pytestmark = pytest.mark.filterwarnings("ignore::labelwise.errors.LabelwiseWarning")


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
        sizes = torch.bincount(alone[targets == label], minlength=5)
        assert int(sizes.max() - sizes.min()) <= 1
    groups = [f"g{i // 3}" if i < 60 else "" for i in range(97)]
    fold = folds_of(groups, targets, 5, seed)
    assert all(len(set(fold[i : i + 3].tolist())) == 1 for i in range(0, 60, 3))
    sizes = torch.bincount(fold, minlength=5)
    assert int(sizes.max() - sizes.min()) <= 6
    assert not torch.equal(alone, folds_of([""] * 97, targets, 5, seed + 1))


def test_small_labels_fill_all_folds() -> None:
    targets = torch.arange(100).repeat(2)  # two images of each label
    fold = folds_of([""] * 200, targets, 5, 0)
    assert torch.bincount(fold).tolist() == [40] * 5
    assert bool((fold[:100] != fold[100:]).all()), "each label is left in training"


@pytest.mark.parametrize("folds", [1, 61])
def test_too_few_or_too_many_folds_are_refused(folds: int) -> None:
    with pytest.raises(UsageError, match=rf"2 to 60 folds; given {folds}"):
        folds_of([""] * 60, torch.zeros(60, dtype=torch.int64), folds, 0)


@pytest.mark.parametrize("name", ["discriminant", "softmax"])
def test_it_is_what_a_loop_by_hand_says(name: str) -> None:
    data = features(spread=2.0)
    method = METHODS[name]() if name == "discriminant" else quick(name, 3)
    whole = lw.data.pool(data)
    result = evaluate_folds(fit(data, method, CPU), data, 4, CPU)
    fold = folds_of([""] * 60, whole.targets, 4, 0)
    right, sure = [], []
    for number in range(4):
        part = Dataset(name="x", labels=data.labels, splits={"train": whole.select((fold != number).nonzero()[:, 0])})
        rows = (fold == number).nonzero()[:, 0]
        for answer, target in zip(
            lw.classify(fit(part, method, CPU), whole.images[rows], top=1), whole.targets[rows].tolist(), strict=True
        ):
            right.append(answer.top[0][0] == data.labels.names[target])
            sure.append(answer.top[0][1])
    assert result.accuracy == pytest.approx(np.mean(right))
    assert result.ece == pytest.approx(lw.metrics.expected_calibration_error(sure, np.array(right, float)), abs=1e-6)
    assert (result.images, result.groups, result.alone) == (60, 60, 0)
    assert result.low < result.accuracy < result.high
