"""Images that would lie idle train a method that leaves each out; those that somebody set aside never do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.evaluation.evaluation import leaked_rows
from labelwise.evaluation.test_set import select_test_set
from labelwise.fitting.division import with_idle
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.images.sources.arrays import arrays
from labelwise.images.split.files import apply_split, write_split
from labelwise.images.split.make import Shares
from labelwise.methods import METHODS
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
def test_validation_images_train_and_test_images_never_do(n: int) -> None:
    before = sizes(features(n))
    data = with_idle(features(n), CLOSED)
    assert sizes(data) == {"train": n - before["test"], "test": before["test"]}
    assert sizes(with_idle(data, CLOSED)) == sizes(data), "once is enough"


def test_every_image_that_trained_is_known_to_evaluate() -> None:
    data = features(60)
    classifier = fit(data, CLOSED, CPU)
    assert classifier.origin.summary["leave_one_out"]["images"] == 60 - len(data.split("test"))
    assert all(leaked_rows(classifier, px(data.split(name))).all() for name in ("train", "val"))
    assert torch.equal(px(select_test_set(classifier, data).split), px(data.split("test")))


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
        assert with_idle(data, CLOSED) is data, how
        classifier = fit(data, CLOSED, CPU)
        assert classifier.origin.summary["training"]["images"] == len(data.split("train")), how
        assert not leaked_rows(classifier, px(data.split("test"))).any(), how


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if not kind.leaves_out])
def test_methods_that_validate_keep_what_they_validate_on(name: str) -> None:
    data = features(60)
    assert with_idle(data, METHODS[name]()) is data


def test_data_to_test_alone_stay() -> None:
    data = features(60)
    alone = replace(data, splits={"test": data.split("test")})
    assert with_idle(alone, CLOSED) is alone


def test_groups_and_files_come_along() -> None:
    data = features(60)
    named = {
        split: replace(
            part, groups=tuple(f"{split} {i // 2}" for i in range(len(part))), files=tuple(map(str, range(len(part))))
        )
        for split, part in data.splits.items()
    }
    whole = with_idle(replace(data, splits=named), CLOSED).split("train")
    assert whole.groups == named["train"].groups + named["val"].groups
    assert whole.files == named["train"].files + named["val"].files


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
    assert "It was calibrated on these pictures, each left out" in " ".join(err.split())
    assert not (tmp_path / "c.lw").exists()
