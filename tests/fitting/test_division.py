"""All images train a method that leaves each out; those that somebody set aside never do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import labelwise as lw
from labelwise.evaluation.evaluation import leaked_rows
from labelwise.evaluation.test_set import select_test_set
from labelwise.fitting.division import hold_out, train_on_all
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.images.sources.array_data import arrays
from labelwise.images.split.divide import pool
from labelwise.images.split.make import Shares
from labelwise.images.split.split_files import apply_split, write_split
from labelwise.methods import METHODS
from labelwise.support.errors import UsageError
from labelwise.train.method import Run
from tests.cli.conftest import run as run
from tests.pixels_of import px

CLOSED, CPU = METHODS["discriminant"](), Run(device="cpu")


def features(n: int, **options: Any) -> Dataset:
    """Features of three labels that are easy to tell."""
    rng, targets = np.random.default_rng(0), np.arange(n) % 3
    return arrays(rng.random((n, 5), np.float32) + np.eye(3, 5)[targets].astype(np.float32), targets, **options)


def sizes(data: Dataset) -> dict[str, int]:
    return {name: len(split) for name, split in data.splits.items()}


@pytest.mark.parametrize("n", [7, 120, 504])
def test_all_images_train_that_nobody_set_aside(n: int) -> None:
    data = train_on_all(features(n), CLOSED)
    assert sizes(data) == {"train": n}
    assert train_on_all(data, CLOSED) is data, "once is enough"


def test_a_validation_part_of_the_datas_own_train_trains_and_its_test_split_does_not(tmp_path: Path) -> None:
    divided = features(60)
    rows = np.concatenate([np.asarray(px(part)) for part in divided.splits.values()])
    labels = np.concatenate([part.targets for part in divided.splits.values()])
    split = np.array(["train"] * 40 + ["test"] * 20)
    np.savez(tmp_path / "p.npz", features=rows, labels=labels, classes=np.array(["a", "b", "c"]), split=split)
    data = lw.data.load(tmp_path / "p.npz")
    assert sizes(data) == {"train": 37, "val": 3, "test": 20}
    assert sizes(train_on_all(data, CLOSED)) == {"train": 40, "test": 20}
    np.savez(tmp_path / "q.npz", features=rows, labels=labels, split=np.array(["train"] * 40 + ["val"] * 20))
    own = lw.data.load(tmp_path / "q.npz")
    assert train_on_all(own, CLOSED) is own


def test_images_that_are_held_out_are_those_that_evaluate_measures() -> None:
    data = features(60)
    classifier = lw.fit(data, CLOSED, CPU, hold_out=0.25)
    assert classifier.origin.summary["training"]["images"] == 45
    part = select_test_set(classifier, data)
    assert (len(part.split), part.trained_on, part.left_out) == (15, 45, None)
    assert not leaked_rows(classifier, px(part.split)).any()
    with pytest.raises(UsageError, match="already has splits"):
        hold_out(replace(data, own_splits=True), 0.2, 0)
    with pytest.raises(UsageError, match="between 0 and 1"):
        hold_out(data, 1.0, 0)


def test_groups_are_held_out_whole() -> None:
    data = features(60)
    whole = pool(data)
    groups = tuple(f"animal {i // 4}" for i in range(60))
    held = hold_out(replace(data, splits={"train": replace(whole, groups=groups)}), 0.25, 0)
    train, test = held.split("train"), held.split("test")
    assert len(test) == 16
    assert not set(train.groups) & set(test.groups)


@pytest.mark.filterwarnings("error::labelwise.support.errors.LabelwiseWarning")
def test_a_split_of_somebody_stays_as_it_is(tmp_path: Path) -> None:
    divided = features(60)
    write_split(divided, tmp_path / "s.csv")
    named = {
        "by arrays": replace(divided, own_splits=True),
        "by shares": features(60, shares=Shares()),
        "by a table": apply_split(divided, tmp_path / "s.csv"),
        "anew": lw.data.divide(divided),
    }
    for how, data in named.items():
        assert train_on_all(data, CLOSED) is data, how
        classifier = fit(data, CLOSED, CPU)
        assert classifier.origin.summary["training"]["images"] == len(data.split("train")), how
        assert not leaked_rows(classifier, px(data.split("test"))).any(), how


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if not kind.leaves_out])
def test_methods_that_validate_keep_what_they_validate_on(name: str) -> None:
    data = features(60)
    assert train_on_all(data, METHODS[name]()) is data


def test_data_to_test_alone_stay() -> None:
    data = features(60)
    alone = replace(data, splits={"test": data.split("test")})
    assert train_on_all(alone, CLOSED) is alone


def test_groups_and_files_come_along() -> None:
    data = features(60)
    named = {
        split: replace(
            part, groups=tuple(f"{split} {i // 2}" for i in range(len(part))), files=tuple(map(str, range(len(part))))
        )
        for split, part in data.splits.items()
    }
    whole = train_on_all(replace(data, splits=named), CLOSED).split("train")
    assert whole.groups == named["train"].groups + named["val"].groups + named["test"].groups
    assert whole.files == named["train"].files + named["val"].files + named["test"].files


def test_what_trained_is_not_calibrated_on_again(run: Any, tmp_path: Path) -> None:
    data = features(60)
    rows, labels = (
        np.concatenate([np.asarray(read(part)) for part in data.splits.values()])
        for read in (px, lambda part: part.targets)
    )
    np.savez(tmp_path / "p.npz", features=rows, labels=labels, classes=np.array(["a", "b", "c"]))
    assert run("fit", tmp_path / "p.npz", "--out", tmp_path / "m.lw", "--device", "cpu")[0] == 0
    code, _, err = run("calibrate", tmp_path / "m.lw", tmp_path / "p.npz", "--out", tmp_path / "c.lw")
    assert code == 1
    assert "and calibrated on it by leave-one-out" in " ".join(err.split())
    assert not (tmp_path / "c.lw").exists()
