"""Images that would lie idle train a method that leaves each out; those that somebody set aside never do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.data.dataset import Dataset
from labelwise.data.read.arrays import arrays
from labelwise.data.split.files import apply_split, write_split
from labelwise.data.split.make import Shares
from labelwise.errors import DataError, LabelwiseWarning
from labelwise.evaluate.part import choose_part
from labelwise.evaluate.tested import leaked_rows
from labelwise.fitting.fit import fit
from labelwise.fitting.steps import with_idle
from labelwise.methods import METHODS
from labelwise.training.stages import Run
from tests.cli.conftest import run as run

CLOSED, CPU = METHODS["discriminant"](), Run(device="cpu")


def features(n: int, **options: Any) -> Dataset:
    """Features of three labels that are easy to tell."""
    rng, targets = np.random.default_rng(0), np.arange(n) % 3
    return arrays(rng.random((n, 5), np.float32) + np.eye(3, 5)[targets].astype(np.float32), targets, **options)


def sizes(data: Dataset) -> dict[str, int]:
    return {name: len(split) for name, split in data.splits.items()}


@pytest.mark.parametrize(
    ("n", "after"),
    [(120, {"train": 120}), (498, {"train": 498}), (504, {"train": 402, "test": 102}), (7, {"train": 7})],
)
def test_validation_images_train_and_few_test_images_too(n: int, after: dict[str, int]) -> None:
    data, words = with_idle(features(n), CLOSED)
    assert sizes(data) == after
    told = f"few pictures: all {n} train; the figure comes from leaving each out."
    assert words == (told if len(after) == 1 else "")
    assert sizes(with_idle(data, CLOSED)[0]) == after, "once is enough"


def test_every_image_that_trained_is_known_to_evaluate() -> None:
    large, small = features(510), features(60)
    classifier = fit(large, CLOSED, CPU)
    assert classifier.origin.summary["training"]["images"] == 510 - len(large.split("test"))
    part = choose_part(classifier, large)
    assert torch.equal(part.split.images, large.split("test").images)
    with pytest.warns(LabelwiseWarning, match=r"few pictures: all 60 train; the figure comes from leaving each out\."):
        classifier = fit(small, CLOSED, CPU)
    assert classifier.origin.summary["leave_one_out"]["images"] == 60
    assert all(leaked_rows(classifier, part.images).all() for part in small.splits.values())
    with pytest.raises(DataError, match="60 were used to train"):
        choose_part(classifier, small)


@pytest.mark.filterwarnings("error::labelwise.errors.LabelwiseWarning")
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
        assert with_idle(data, CLOSED)[0] is data, how
        classifier = fit(data, CLOSED, CPU)
        assert classifier.origin.summary["training"]["images"] == len(data.split("train")), how
        assert not leaked_rows(classifier, data.split("test").images).any(), how


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if not kind.leaves_out])
def test_methods_that_validate_keep_what_they_validate_on(name: str) -> None:
    data = features(60)
    assert with_idle(data, METHODS[name]()) == (data, "")


def test_data_to_test_alone_stay() -> None:
    data = features(60)
    alone = replace(data, splits={"test": data.split("test")})
    assert with_idle(alone, CLOSED)[0] is alone


def test_groups_and_files_come_along() -> None:
    data = features(60)
    named = {
        split: replace(
            part, groups=tuple(f"{split} {i // 2}" for i in range(len(part))), files=tuple(map(str, range(len(part))))
        )
        for split, part in data.splits.items()
    }
    whole = with_idle(replace(data, splits=named), CLOSED)[0].split("train")
    assert whole.groups == sum((part.groups for part in named.values()), ())
    assert whole.files == sum((part.files for part in named.values()), ())


def test_the_shell_says_it_once(run: Any, tmp_path: Path) -> None:
    data = features(60)
    rows = np.concatenate([part.images.numpy() for part in data.splits.values()])
    labels = np.concatenate([part.targets.numpy() for part in data.splits.values()])
    np.savez(tmp_path / "my pack.npz", features=rows, labels=labels, classes=np.array(["a", "b", "c"]))
    code, out, err = run("fit", tmp_path / "my pack.npz", "--out", tmp_path / "m.lw", "--device", "cpu")
    assert code == 0, err
    words = " ".join((out + err).split())
    assert words.count("few pictures: all 60 train; the figure comes from leaving each out.") == 1
    assert "images 60 train," in words
    assert "Warning" not in words


def test_what_trained_is_not_calibrated_on_again(run: Any, tmp_path: Path) -> None:
    data = features(60)
    rows, labels = (
        torch.cat([getattr(part, what) for part in data.splits.values()]).numpy() for what in ("images", "targets")
    )
    np.savez(tmp_path / "p.npz", features=rows, labels=labels, classes=np.array(["a", "b", "c"]))
    assert run("fit", tmp_path / "p.npz", "--out", tmp_path / "m.lw", "--device", "cpu")[0] == 0
    code, _, err = run("calibrate", tmp_path / "m.lw", tmp_path / "p.npz", "--out", tmp_path / "c.lw")
    assert code == 1
    assert "It was calibrated on these pictures, each left out" in " ".join(err.split())
    assert not (tmp_path / "c.lw").exists()
