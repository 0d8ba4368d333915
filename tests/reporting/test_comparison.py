"""Several classifiers side by side, and the commands that make them again."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from labelwise.data import load
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.paired import compare_answers
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.reporting.page import ReportSettings, make_report
from labelwise.support.text import FIGURES
from labelwise.train.method import Run
from tests.conftest import blobs, quick, squares
from tests.contract.subjects import trained
from tests.pixels_of import px
from tests.reporting.pages import Page, check_alone
from tests.reporting.test_page import hard, shown
from tests.tasks.levels import told


def test_side_by_side() -> None:
    data = hard()
    models = {"first": trained("softmax"), "second": trained("indicator"), "third": trained("prototype")}
    others = {name: model for name, model in models.items() if name != "first"}
    made = make_report(models["first"], data, ReportSettings(name="first", compare=others, examples=2))
    page = Page(made.html)
    check_alone(page)
    test = data.split("test")
    right = {name: model.scores(px(test)).best == test.targets for name, model in models.items()}
    for name, row in zip(("second", "third"), made.figures["paired"], strict=True):
        found = compare_answers(right["first"], right[name])
        assert row["model"] == name
        assert (row["only_first"], row["only_second"]) == (found.only_first, found.only_second)
        assert row["p"] == pytest.approx(found.p)
    rows = {row[0]: row[1:] for row in page.table("figure")}
    closed = [evaluate_closed(Evaluation.of(model, test, data.labels)) for model in models.values()]
    assert rows["right (accuracy)"] == [shown(one.accuracy) for one in closed]
    assert rows[FIGURES["ece"]] == [shown(one.ece) for one in closed]
    pairs = {row[0]: row[1:] for row in page.table("compared with first")}
    assert pairs["only it right : only first right"] == [
        f"{row['only_second']} : {row['only_first']}" for row in made.figures["paired"]
    ]
    mixed = np.stack([np.asarray(each) for each in right.values()])
    count = int((mixed.any(0) & ~mixed.all(0)).sum())
    assert count > 0
    assert f"disagree on {count} of {len(test)} images" in page.words
    for name in models:
        assert f"{name}: " in page.words


def test_two_of_a_kind_do_not_differ() -> None:
    data, one = hard(), trained("softmax")
    made = make_report(one, data, ReportSettings(name="a", compare={"b": one}))
    assert made.figures["paired"][0]["p"] == 1.0
    page = Page(made.html)
    assert "no clear difference" in page.words
    assert "all classifiers are right, or none is" in page.words


def test_compared_where_several_labels_may_be_true() -> None:
    data = squares(60)
    labels = data.labels
    split = Split(images=torch.randn(20, 3), targets=data.split("test").targets)
    data = Dataset(name="told", labels=labels, splits={"test": split})
    one = told(labels, multilabel=True)
    made = make_report(one, data, ReportSettings(name="a", compare={"b": one}))
    check_alone(Page(made.html))


def test_labels_in_another_order_compare() -> None:
    labels = Labels(names=("a", "b", "c"))
    images = torch.tensor([[3.0, 0, 0], [0, 3, 0], [0, 0, 3], [3, 0, 0]])
    data = Dataset(name="d", labels=labels, splits={"test": Split(images=images, targets=torch.tensor([0, 1, 2, 2]))})
    other = told(labels).select(("c", "a", "b"))
    made = make_report(told(labels), data, ReportSettings(name="x", compare={"y": other}))
    assert made.figures["accuracy"] == made.figures["compare"][0]["accuracy"] == 0.75
    assert made.figures["paired"][0]["only_first"] == 0


def test_data_by_their_path_are_read_at_the_size_of_each_model(tmp_path: Path) -> None:
    data = blobs(per_label=20, side=16)
    for name, split in data.splits.items():
        for i, (image, target) in enumerate(zip(px(split), split.targets.tolist(), strict=True)):
            place = tmp_path / "blobs" / name / f"blob {target}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(place / f"{i}.png")
    small = fit(load(tmp_path / "blobs", size=8), quick("softmax", 3), Run(device="cpu"))
    large = fit(load(tmp_path / "blobs", size=16), quick("indicator", 3), Run(device="cpu"))
    made = make_report(small, tmp_path / "blobs", ReportSettings(compare={"large": large}))
    for classifier, size, found in ((small, 8, made.figures), (large, 16, made.figures["compare"][0])):
        read = load(tmp_path / "blobs", size=size)
        own = evaluate_closed(Evaluation.of(classifier, read.split("test"), read.labels))
        assert found["closed"]["ece"] == pytest.approx(own.ece, abs=1e-6)
        assert found["closed"]["accuracy"] == own.accuracy
        assert not any("resized" in text for text in found["warnings"])
    given = make_report(large, load(tmp_path / "blobs", size=8))
    assert any("have shape [3, 8, 8] and were resized to [3, 16, 16]" in text for text in given.figures["warnings"])
