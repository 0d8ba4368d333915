"""Every section of a report says what the evaluation functions say."""

import re
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from labelwise.api import fit_verification
from labelwise.core.classifier import Classifier
from labelwise.core.metrics import confusion_matrix, wilson
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import evaluate_multilabel
from labelwise.evaluation.ordinal import evaluate_ordinal
from labelwise.evaluation.outliers import evaluate_outliers
from labelwise.evaluation.retrieval import evaluate_retrieval
from labelwise.evaluation.verification import evaluate_verification
from labelwise.evaluation.zero_shot import evaluate_zero_shot
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import METHODS, Eszsl
from labelwise.reporting.case import Saved
from labelwise.reporting.page import Report, ReportSettings, make_report
from labelwise.reporting.pages import percent
from labelwise.support.errors import DataError, StoreError, UsageError
from labelwise.support.text import FIGURES
from labelwise.tasks.calibrate import calibration_errors, uncalibrated
from labelwise.train.method import Run
from tests.changed import changed
from tests.conftest import blobs, quick, squares
from tests.contract.subjects import pictures, trained
from tests.described import by_vector
from tests.pixels_of import px
from tests.reporting.pages import Page, check_alone
from tests.tasks.levels import saying, told

PAIRS = ("verification", "retrieval")


def shown(share: float | None) -> str:
    return percent(share).replace("\u00a0", " ")


def hard() -> Dataset:
    """Test images of which some are answered wrongly: noise covers the squares."""
    data = blobs(4, 60)
    test = data.split("test")
    made = torch.Generator().manual_seed(3)
    noise = torch.randint(0, 120, px(test).shape, generator=made, dtype=torch.uint8)
    noisy = (px(test) // 2 + noise).clamp(0, 255).to(torch.uint8)
    files = tuple(f"noisy/{i}.png" for i in range(len(test)))
    return replace(data, splits={**data.splits, "test": replace(test, images=noisy, files=files)})


@cache
def ordinary() -> tuple[Classifier, Dataset, Report, Page]:
    classifier, data = trained("softmax"), hard()
    strange = torch.full((12, 3, 8, 8), 255, dtype=torch.uint8)
    strange[:, :, ::2] = 0
    log = tuple(
        {"stage": "softmax", "stage_number": 0, "epoch": e, "loss": 2.0 / (e + 1), "validation": e / 10}
        for e in range(4)
    )
    settings = ReportSettings(
        unknown=strange, name="colours", commands=("labelwise report a b",), examples=3, protocols=PAIRS
    )
    made = make_report(Saved(classifier=classifier, log=log), data, settings)
    return classifier, data, made, Page(made.html)


def test_page_stands_alone() -> None:
    _, _, made, page = ordinary()
    check_alone(page)
    assert len(made.html) < 2_000_000
    assert page.tags.count("svg") >= 6
    assert page.html.count('role="img"') == page.html.count("<svg") == page.html.count("aria-label") - 2
    for name in (
        "examples",
        "confusion",
        "labels",
        "thresholds",
        "calibration",
        "unknown",
        "pairs",
        "map",
        "training",
        "speed",
        "repeat",
    ):
        assert name in page.ids
    assert "labelwise report a b" in page.words


def test_figures_are_those_of_evaluate() -> None:
    classifier, data, made, page = ordinary()
    test = data.split("test")
    closed = evaluate_closed(Evaluation.of(classifier, test, data.labels))
    assert 0.3 < closed.accuracy < 0.99
    for key in ("accuracy", "balanced_accuracy", "ece", "answer_ece", "kept", "kept_accuracy", "leaked"):
        assert made.figures["closed"][key] == pytest.approx(getattr(closed, key), abs=1e-6), key
    assert f"right (accuracy) {shown(closed.accuracy)}" in page.words
    assert f"{FIGURES['ece']} {shown(closed.ece)}" in page.words
    assert f"{FIGURES['kept_accuracy']} {shown(closed.kept_accuracy)}" in page.words
    errors = calibration_errors(uncalibrated(classifier.scores(px(test))), test.targets)
    rows = {row[0]: row[1:] for row in page.table("calibration")}
    assert rows[FIGURES["ece"]] == [shown(errors["ece"]), shown(closed.ece)]
    assert rows[FIGURES["answer_ece"]] == [shown(errors["answer_ece"]), shown(closed.answer_ece)]


def test_confusions_are_counted() -> None:
    classifier, data, made, page = ordinary()
    test, names = data.split("test"), data.labels.names
    counts = confusion_matrix(classifier.scores(px(test)).best, test.targets, 4)
    listed = {(one["true"], one["answer"]): one["count"] for one in made.figures["confusion"]}
    assert listed == {(names[i], names[j]): int(counts[i, j]) for i, j in zip(*counts.nonzero(), strict=True)}
    for (true, said), count in listed.items():
        total = int(counts[names.index(true)].sum())
        assert f"{true} → {said}: {count} of {total}" in page.titles
    wrong = [count for (true, said), count in listed.items() if true != said]
    assert [int(row[2].split(" of ")[0]) for row in page.table("true")] == sorted(wrong, reverse=True)[:15]
    for i, row in enumerate(page.table("label")):
        total = int(counts[i].sum())
        recall = int(counts[i, i]) / total
        low, high = wilson(recall, total)
        assert row[:3] == [names[i], str(total), f"{shown(recall)} {100 * low:.0f}\u2013{100 * high:.0f}"]
        said = int(counts[:, i].sum())
        assert row[4].startswith(shown(int(counts[i, i]) / said if said else None))


def test_thresholds_are_listed_with_their_precision_and_recall() -> None:
    _, _, made, page = ordinary()
    rows = page.table("answer")
    labels = [place for place, row in enumerate(rows) if row[0]]
    assert sorted(rows[place][0] for place in labels) == sorted(one["label"] for one in made.figures["thresholds"])
    for one in made.figures["thresholds"]:
        own = [
            row
            for place, row in enumerate(rows)
            if rows[max(each for each in labels if each <= place)][0] == one["label"]
        ]
        (cells,) = [row for row in own if row[1].endswith(" best")]
        assert cells[1] == f"{one['best']['threshold']:.2f} best"
        assert cells[2].startswith(shown(one["best"]["precision"]))
        assert cells[3].startswith(shown(one["best"]["recall"]))
    assert made.figures["interval"][0] < made.figures["accuracy"] < made.figures["interval"][1]
    assert made.figures["mean_average_precision"] > made.figures["accuracy"] / 2


def test_error_bars_of_calibration_hold_their_dot() -> None:
    _, _, made, page = ordinary()
    full = [one for when in ("before", "after") for one in made.figures["calibration"][when]["bins"]]
    assert page.html.count('class="bar s') == len(full)


def test_terms_of_verification_come_only_if_asked_for() -> None:
    made = make_report(trained("softmax"), hard(), ReportSettings(examples=1))
    for word in ("EER", "minDCF", "MAP@R", "R@1"):
        assert word not in made.html
    assert made.figures["verification"] is made.figures["retrieval"] is None


def test_an_unknown_image_looks_most_like_a_label_without_a_probability() -> None:
    classifier, data = trained("softmax"), hard()
    assert classifier.familiarity.rule is not None
    strict = changed(classifier, rule=replace(classifier.familiarity.rule, limit=-1e9))
    page = Page(make_report(strict, data, ReportSettings(examples=2)).html)
    assert page.words.count("unknown, looks most like blob") == 4
    assert not re.search(r"looks most like blob \d \d", page.words)


def test_leave_one_out_and_suspects_are_shown() -> None:
    classifier = trained("discriminant")
    about = classifier.origin.summary["leave_one_out"]
    suspect = {"file": "a/1.png", "label": "blob 0", "looks_like": "blob 1", "probability": 0.9}
    told = changed(
        classifier, summary={**classifier.origin.summary, "leave_one_out": {**about, "suspicious": [suspect]}}
    )
    page = Page(make_report(told, pictures("discriminant"), ReportSettings(examples=1)).html)
    assert f"{shown(about['accuracy'])} of {about['images']} training images (by leave-one-out)" in page.words
    assert page.table("image") == [["a/1.png", "blob 0", "blob 1", "90.0 %"]]


def test_reliability_dots_hold_every_answer() -> None:
    _, data, made, page = ordinary()
    for when in ("before", "after"):
        assert sum(one["count"] for one in made.figures["calibration"][when]["bins"]) == len(data.split("test"))
    full = made.figures["calibration"]["after"]["bins"]
    for one in full:
        said = f"{one['count']} answers, probability {percent(one['confidence'])}, right {percent(one['accuracy'])}"
        assert said in page.titles


def test_strange_pictures() -> None:
    classifier, data, made, page = ordinary()
    strange = torch.full((12, 3, 8, 8), 255, dtype=torch.uint8)
    strange[:, :, ::2] = 0
    result = evaluate_outliers(classifier.scores(px(data.split("test"))), classifier.scores(strange))
    assert made.figures["unknown"]["figures"] == pytest.approx(
        {"auroc": result.auroc, "fpr95": result.fpr95, "flagged": result.flagged}
    )
    assert classifier.familiarity.rule is not None
    assert made.figures["unknown"]["limit"] == classifier.familiarity.rule.limit
    assert f"threshold {classifier.familiarity.rule.limit:.3f}" in page.words
    assert "unknown images (12)" in page.words


def test_pairs_and_retrieval() -> None:
    classifier, data, made, page = ordinary()
    pairs = evaluate_verification(Evaluation.of(classifier, data.split("test")), most=50_000)
    assert made.figures["verification"]["eer"] == pytest.approx(pairs.eer, abs=1e-6)
    assert f"pairs judged wrongly (EER) {shown(pairs.eer)}" in page.words
    found = evaluate_retrieval(Evaluation.of(classifier, data.split("test")))
    for k in (1, 2, 4, 8, 16):
        assert made.figures["retrieval"]["recall"][str(k)] == pytest.approx(found.recall[k], abs=1e-6)
        assert f"its label among the {k} most alike (R@{k}) {shown(found.recall[k])}" in page.words


def test_pairs_by_whitened_embeddings() -> None:
    data = hard()
    classifier = fit_verification(trained("softmax"), blobs(seed=1).split("val"), by="whitened")
    made = make_report(classifier, data, ReportSettings(protocols=PAIRS))
    pairs = evaluate_verification(Evaluation.of(classifier, data.split("test")), most=50_000)
    assert pairs.by == made.figures["verification"]["by"] == "whitened"
    for key in ("eer", "auroc", "misses", "false_accepts"):
        assert made.figures["verification"][key] == pytest.approx(getattr(pairs, key), abs=1e-6), key
    assert "Same or different" not in made.figures["left_out"]
    assert f"pairs judged wrongly (EER) {shown(pairs.eer)}" in Page(made.html).words


@pytest.mark.parametrize(
    ("place", "times"),
    [
        ("labelwise.tasks.verify.draw_pairs", 1),
        ("labelwise.tasks.calibrate.reliability", 4),  # two kinds, before and after calibration
        ("labelwise.evaluation.figures.confusion_matrix", 1),
    ],
)
def test_no_figure_is_computed_twice(place: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, data = trained("softmax"), hard()
    module, _, name = place.rpartition(".")
    counted = Mock(wraps=getattr(import_module(module), name))
    monkeypatch.setattr(place, counted)
    make_report(classifier, data, ReportSettings(protocols=PAIRS))
    assert counted.call_count == times


def test_examples_are_the_surest() -> None:
    classifier, data, _, page = ordinary()
    test = data.split("test")
    probabilities = np.asarray(classifier.scores(px(test)).probabilities)
    sure, said = probabilities.max(1), probabilities.argmax(1)
    wrong = np.argsort(-np.where(said != np.asarray(test.targets), sure, -1.0), kind="stable")[:3].tolist()
    listed = page.html.split("Wrong answers with the highest probability")[1].split("<h3>")[0]
    assert [f"noisy/{row}.png" in listed for row in wrong] == [True] * 3
    assert listed.count("<li>") == 3
    assert listed.count("<img") == 6  # the picture, and why that was said and not what is true
    names = data.labels.names
    for row in wrong:
        assert f"why {names[said[row]]} (orange), not {names[test.targets[row]]} (blue)<" in listed


def test_training_curves() -> None:
    _, _, _, page = ordinary()
    assert "Training loss of stage softmax" in page.titles
    assert "validation figure, 0.3 at best in epoch 4" in page.words


def test_speed_is_measured() -> None:
    _, _, made, page = ordinary()
    assert made.figures["speed"]["images_per_second"] > 1
    assert made.figures["speed"]["milliseconds"] > 0
    assert page.table("classifier")[0][0] == "colours"


def test_what_is_left_out_says_why() -> None:
    _, _, made, page = ordinary()
    assert set(made.figures["left_out"]) == {"Seen and unseen labels", "Ordered labels", "Promised and measured"}
    assert "The labels have no order." in page.words


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gets_a_page(method: str) -> None:
    made = make_report(trained(method), pictures(method), ReportSettings(examples=1))
    page = Page(made.html)
    check_alone(page)
    closed = evaluate_closed(Evaluation.of(trained(method), pictures(method).split("test"), pictures(method).labels))
    assert made.figures["closed"]["accuracy"] == pytest.approx(closed.accuracy)
    assert made.figures["closed"]["ece"] == pytest.approx(closed.ece, abs=1e-5)
    assert made.figures["closed"]["kept"] == pytest.approx(closed.kept)
    assert page.words.startswith(f"{method} on blobs")


def test_several_labels() -> None:
    data = squares(240)
    classifier = fit(data, quick("multilabel", 4), Run(device="cpu"))
    made = make_report(classifier, data, ReportSettings(examples=2))
    page = Page(made.html)
    check_alone(page)
    found = evaluate_multilabel(Evaluation.of(classifier, data.split("test"), data.labels))
    for key in ("mean_average_precision", "micro_f1", "macro_f1", "exact", "answer_ece", "kept"):
        assert made.figures["several"][key] == pytest.approx(getattr(found, key), abs=1e-6), key
    assert f"mean average precision {shown(found.mean_average_precision)}" in page.words
    assert "confusion" not in page.ids
    rows = page.table("label")
    truths = data.split("test").targets
    assert [[*row[:2], row[5]] for row in rows] == [
        [name, str(int(truths[:, i].sum())), shown(found.average_precision[name])]
        for i, name in enumerate(data.labels.names)
    ]
    assert made.figures["accuracy"] == pytest.approx(found.exact)


def test_unseen_labels_of_features() -> None:
    data = by_vector()
    classifier = fit(data, Eszsl(), Run(device="cpu"))
    made = make_report(classifier, data)
    page = Page(made.html)
    check_alone(page)
    found = evaluate_zero_shot(Evaluation.of(classifier, data.split("test"), data.labels))
    for key in ("unseen", "seen", "harmonic", "zero_shot", "area"):
        assert made.figures["zero_shot"][key] == pytest.approx(getattr(found, key), abs=1e-6)
    rows = {row[0]: row[1:] for row in page.table("accuracy, mean over labels")}
    assert rows["all labels, with the seen penalty"] == [
        shown(found.unseen),
        shown(found.seen),
        shown(found.harmonic),
    ]
    assert "there are no images to show" in page.words
    assert "img" not in page.tags
    assert "image 1" in page.html


def test_ordered_labels() -> None:
    labels = Labels(names=("fair", "good", "poor"), order=(1, 2, 0))
    images = saying([[0.2, 0.1, 0.7], [0.3, 0.6, 0.1], [0.5, 0.3, 0.2], [0.3, 0.2, 0.5], [0.1, 0.8, 0.1]])
    split = Split(images=images, targets=torch.tensor([2, 0, 0, 1, 1]))
    data = Dataset(name="grades", labels=labels, splits={"test": split})
    made = make_report(told(labels), data)
    page = Page(made.html)
    found = evaluate_ordinal(Evaluation.of(told(labels), split, labels))
    assert made.figures["ordinal"]["median"]["mean_absolute_error"] == pytest.approx(found.median.mean_absolute_error)
    rows = {row[0]: row[1:] for row in page.table("predicted level")}
    assert rows["right (accuracy)"] == [shown(found.best.accuracy), shown(found.median.accuracy)]
    assert rows["levels off, on average (MAE)"][1] == f"{found.median.mean_absolute_error:.3f}"
    drawn = made.html.split('class="plot matrix"')[1].split("</svg>")[0]
    assert re.findall(r'text-anchor="end">([a-z]+)<', drawn) == [
        "poor",
        "fair",
        "good",
    ]  # from the lowest to the highest
    assert "Not calibrated" in page.words
    assert "Only 5 test images" in page.words
    assert "It has no outlier threshold" in page.words


@pytest.mark.parametrize("rows", [[0], [0, 4, 8], [0, 1], [4, 1, 2, 3]])
def test_tiny_splits(rows: list[int]) -> None:
    data = blobs()
    tiny = replace(data, splits={"test": data.split("test").select(rows)})
    made = make_report(trained("indicator"), tiny)
    check_alone(Page(made.html))
    assert made.figures["images"] == len(rows)
    assert any("Only " in one for one in made.figures["warnings"])
    assert any("No test image of" in one for one in made.figures["warnings"]) == (len(rows) < 4)


def test_a_single_label() -> None:
    labels = Labels(names=("only",))
    split = Split(images=torch.randn(3, 1), targets=torch.tensor([0, 0, -1]))
    made = make_report(told(labels), Dataset(name="one", labels=labels, splits={"test": split}))
    check_alone(Page(made.html))
    assert made.figures["accuracy"] == 1.0
    assert "Map of labels" in made.figures["left_out"]
    assert "No label is mistaken for another." in made.html


def test_a_classifier_of_several_labels_on_images_of_one() -> None:
    data = hard()
    made = make_report(changed(trained("multilabel"), multilabel=True), data)
    check_alone(Page(made.html))
    assert made.figures["several"] is None
    assert made.figures["closed"]["images"] == len(data.split("test"))


def test_images_without_a_label_are_left_out() -> None:
    data = blobs()
    test = data.split("test")
    some = replace(test, targets=np.where(np.arange(len(test)) % 2 == 0, test.targets, -1))
    made = make_report(trained("softmax"), replace(data, splits={"test": some}))
    assert made.figures["images"] == len(test) // 2
    assert "40 test images without a label are left out." in made.figures["warnings"]
    assert all(row % 2 == 1 for row in _numbers(made.html))


def _numbers(html: str) -> set[int]:
    """Return the numbers of the images that are shown."""
    found = {int(number) for number in re.findall(r'class="file">image (\d+)<', html)}
    assert found
    return found


def test_leaks_are_told() -> None:
    data = blobs()
    leaky = replace(data, splits={"test": data.split("train")})
    with pytest.raises(DataError, match=r"no image is left to measure: 80 were used to train.*--split all"):
        make_report(trained("softmax"), leaky)
    made = make_report(trained("softmax"), leaky, ReportSettings(split="all"))
    assert made.figures["closed"]["leaked"] == 1.0
    assert "80 of these 80 test images (100.0 %) were used to train" in made.figures["warnings"][0].replace(
        "\u00a0", " "
    )


HOSTILE = ('<script>alert("x")</script> & <b>', "<script>{{ 7*7 }}</script>{% raw %}", "{# gone #}'\"><i>")


@pytest.mark.parametrize("bad", HOSTILE)
def test_names_are_escaped(bad: str) -> None:
    data = hard()
    labels = replace(data.labels, names=(bad, *data.labels.names[1:]))
    classifier = replace(trained("softmax"), labels=labels)
    test = replace(data.split("test"), files=tuple(f"<i>{i}</i>{bad}" for i in range(len(data.split("test")))))
    log = ({"stage": bad, "epoch": 0, "loss": 1.0, "validation": 0.5, "terms": {bad: 1.0, "other": 2.0}},)
    made = make_report(
        Saved(classifier=classifier, log=log),
        replace(data, labels=labels, name="<u>", splits={"test": test}),
        ReportSettings(name=f"<model>{bad}", compare={f"<other>{bad}": classifier}, commands=(f"a < b && {bad}",)),
    )
    page = Page(made.html)
    check_alone(page)
    assert page.tags.count("script") == 1
    assert {"i", "b", "u", "model", "other"} & set(page.tags) == set()
    for text in (f"<model>{bad} on <u>", f"<other>{bad}", f"</i>{bad}", f"a < b && {bad}", f"Stage {bad}: loss"):
        assert text in page.words
    assert bad in page.titles


def test_many_labels_stay_readable() -> None:
    names = tuple(f"species number {i}" for i in range(200))
    labels = Labels(names=names)
    made = torch.Generator().manual_seed(0)
    targets = torch.arange(200).repeat(4)
    images = torch.randn(800, 200, generator=made) + 3 * torch.eye(200)[targets]
    data = Dataset(name="many", labels=labels, splits={"test": Split(images=images, targets=targets)})
    page = Page(make_report(told(labels), data).html)
    check_alone(page)
    assert len(page.html) < 1_000_000
    assert len(page.table("true")) == 15
    assert page.table("label")[7][-1] == "8"


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    data, classifier = blobs(), trained("softmax")
    with pytest.raises(DataError, match=r"has no test split; it has: train.*data split"):
        make_report(classifier, replace(data, splits={"train": data.split("train")}))
    with pytest.raises(DataError, match="no labelled image"):
        make_report(classifier, replace(data, splits={"test": data.split("test").select([])}))
    unlabelled = replace(data.split("test"), targets=torch.full((len(data.split("test")),), -1))
    with pytest.raises(DataError, match="no labelled image"):
        make_report(classifier, replace(data, splits={"test": unlabelled}))
    with pytest.raises(DataError, match=r'takes images.*"by vector" has features of 20 numbers'):
        make_report(classifier, by_vector())
    with pytest.raises(DataError, match=r"softmax and blobs do not match.*does not know these labels.*blob 4, blob 5"):
        make_report(classifier, blobs(6))
    with pytest.raises(UsageError, match='"softmax" occurs twice'):
        make_report(classifier, data, ReportSettings(compare={"softmax": classifier}))
    with pytest.raises(StoreError, match="No saved classifier"):
        make_report(tmp_path / "none.lw", data)
