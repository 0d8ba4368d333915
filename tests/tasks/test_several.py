"""The tasks on a classifier of which several labels may be true of one picture."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.core.classifier import NONE, UNKNOWN, Classifier
from labelwise.core.metrics import average_precisions
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import evaluate_multilabel
from labelwise.evaluation.outliers import evaluate_outliers
from labelwise.fitting.training import training_data
from labelwise.images.dataset import Split
from labelwise.support.errors import DataError
from labelwise.train.checkpoint import run_identity
from labelwise.train.train_data import TensorSplit
from tests.close import assert_close
from tests.conftest import blobs, quick, squares
from tests.contract.subjects import trained as trained_on_blobs
from tests.once import once
from tests.pixels_of import px


@once
def trained(method: str = "indicator") -> Classifier:
    return lw.fit(squares(), quick(method, 40), lw.Run(device="cpu"))


def part_to_test() -> Split:
    return squares().split("test")


def truths(split: Split | TensorSplit) -> torch.Tensor:
    assert split.multilabel
    return torch.as_tensor(split.targets)


@pytest.mark.parametrize("method", ["indicator", "multilabel"])
def test_classify_gives_each_label_that_is_answered_yes(method: str) -> None:
    classifier, test = trained(method), part_to_test()
    found = lw.classify(classifier, px(test), top=1)
    answers = classifier.scores(px(test)).yes
    for p, row in zip(found, answers, strict=True):
        order = np.argsort(-row).tolist()
        yes = tuple(classifier.labels.names[i] for i in order if row[i] >= 0.5)
        assert p.probability == pytest.approx(float(row.max()))
        assert p.top == ((classifier.labels.names[order[0]], p.probability),)
        if p.label == UNKNOWN:
            assert p.labels == ()
            continue
        assert p.labels == yes
        assert p.label == (yes[0] if yes else NONE)
        assert p.known == bool(yes)
    words = [set(p.labels) for p in found if p.label != UNKNOWN]
    kept = [i for i, p in enumerate(found) if p.label != UNKNOWN]
    wanted = [set(w.split(";")) - {""} for w in test.words(classifier.labels.names)]
    assert np.mean([said == wanted[i] for said, i in zip(words, kept, strict=True)]) > 0.8
    assert {len(said) for said in words} >= {0, 1, 2}
    assert float(answers.sum(1).max()) > 1.5, "probabilities of several labels do not sum to one"


def test_ask_answers_each_label_on_its_own() -> None:
    classifier, test = trained(), part_to_test()
    for i, name in enumerate(classifier.labels.names):
        said = [answer.yes for answer in lw.ask(classifier, px(test), name)]
        assert np.mean(np.array(said) == truths(test)[:, i].numpy()) > 0.9


def test_one_label_each_is_classified_as_before() -> None:
    classifier, test = trained_on_blobs("indicator"), blobs().split("test")
    assert not classifier.calibration.multilabel
    for p in lw.classify(classifier, px(test)):
        assert p.labels == ((p.label,) if p.label != UNKNOWN else ())
        assert p.known == (p.label != UNKNOWN)


def test_images_without_a_true_label_are_trained_on() -> None:
    data = squares(60)
    seen = training_data(data)
    assert (len(seen.train), len(seen.val)) == (20, 20)
    assert not bool(seen.train.targets.any(1).all())
    none = torch.tensor([[False] * 3] * 10 + [[True, False, True]] * 5 + [[True, True, False]] * 5)
    part = Split(images=px(data.split("train")), targets=none)
    seen = training_data(replace(data, splits={"train": part}))
    assert len(seen.train) + len(seen.val) == 20
    assert int((~seen.val.targets.any(1)).sum()) == 1


def test_labels_without_a_training_image_lose_their_column() -> None:
    data = squares(60)
    part = data.split("train")
    changed = truths(part).clone()
    changed[:, 0] = False
    part = replace(part, targets=changed)
    seen = training_data(replace(data, splits={**data.splits, "train": part}))
    assert seen.labels.names == ("green", "blue")
    assert seen.unseen is not None
    assert seen.unseen.names == ("red",)
    assert np.array_equal(truths(seen.val), truths(data.split("val"))[:, 1:])
    changed[:, 1] = False
    part = replace(part, targets=changed)
    with pytest.raises(DataError, match=r"images of at least two labels; .* has 1"):
        training_data(replace(data, splits={**data.splits, "train": part}))


def test_calibration_is_of_each_label_and_needs_yes_and_no() -> None:
    classifier, val = trained(), squares().split("val")
    figures = classifier.origin.summary["calibration"]
    assert classifier.calibration.multilabel
    assert len(set(classifier.calibration.scale.tolist())) == (3 if figures["applied"]["answer_ece"] else 1)
    assert classifier.calibration.temperature == 1.0
    again = lw.calibrate(classifier, px(val), truths(val), keep=0.5)
    assert_close(again.calibration.scale, classifier.calibration.scale, rtol=1e-3, atol=1e-4)
    assert again.familiarity.rule is not None
    assert classifier.familiarity.rule is not None
    assert again.familiarity.rule.limit < classifier.familiarity.rule.limit
    assert figures["answer_ece_after"] < figures["answer_ece_before"] + 0.02
    assert "ece_after" not in figures
    with pytest.raises(DataError, match=r"yes or no \(bool\) to each of its 3 labels .* given targets int64 \[80\]"):
        lw.calibrate(classifier, px(val), torch.zeros(80).long())
    with pytest.raises(DataError, match=r"takes one label for each image; given targets bool"):
        lw.calibrate(trained_on_blobs("indicator"), px(val), truths(val))


@pytest.mark.parametrize("method", ["indicator", "multilabel"])
def test_a_label_is_taught_from_examples(method: str) -> None:
    """ "mixed", a red and a green square in one picture, to a classifier that knows each of them."""
    classifier, data = trained(method), squares()
    train, test = data.split("train"), data.split("test")
    mixed = truths(train)[:, :2].all(1).nonzero()[:8, 0]
    taught = lw.teach(classifier, "mixed", examples=px(train)[mixed])
    assert taught.calibration.multilabel
    found = taught.scores(px(test))
    scores = found.log_odds
    assert_close(scores[:, :3], classifier.scores(px(test)).log_odds, atol=1e-5, rtol=1e-6)
    right = truths(test)[:, :2].all(1, keepdim=True)
    assert float(average_precisions(scores[:, 3:], right)[0]) > float(right.double().mean()) + 0.4
    yes = found.yes[:, 3] >= 0.5
    assert float((yes == right[:, 0]).double().mean()) > 0.7
    assert lw.forget(taught, "mixed").labels.names == data.labels.names


def test_outliers_are_told() -> None:
    classifier, test = trained(), part_to_test()
    strange = torch.full((20, 3, 8, 8), 255, dtype=torch.uint8)
    strange[:, :, ::2] = 0
    assert np.mean([one.flagged for one in lw.outliers(classifier, px(test))]) < 0.2
    assert evaluate_outliers(classifier.scores(px(test)), classifier.scores(strange)).auroc > 0.9
    assert all(p.label == UNKNOWN and p.labels == () for p in lw.classify(classifier, strange))


def test_a_saved_classifier_remembers_that_several_may_be_true(tmp_path: Path) -> None:
    lw.save(trained(), tmp_path / "model.lw")
    loaded = lw.load(tmp_path / "model.lw")
    assert loaded.calibration.multilabel
    images = part_to_test().images
    assert [one.label for one in lw.classify(loaded, images)] == [one.label for one in lw.classify(trained(), images)]
    data = squares()
    assert evaluate_multilabel(Evaluation.of(loaded, data.split("test"), data.labels)).mean_average_precision > 0.9


def test_a_heat_map_is_drawn_of_any_label() -> None:
    test = part_to_test()
    row = int(truths(test).all(1).nonzero()[0])
    red, blue = (lw.explain(trained(), px(test)[row : row + 1], name).heat for name in ("red", "blue"))
    assert not np.array_equal(red, blue)


def test_the_same_seed_gives_the_same_weights() -> None:
    one, two = (lw.fit(squares(60), quick("indicator", 3), lw.Run(seed=3, device="cpu")) for _ in range(2))
    assert np.array_equal(one.label_embeddings, two.label_embeddings)


def test_a_run_with_other_truths_is_not_continued(tmp_path: Path) -> None:
    data = training_data(squares(60))
    other = truths(data.train).clone()
    other[5, 2] = ~other[5, 2]
    if not bool(other[5, :2].any()):
        other[5, 1] = True
    changed = replace(data, train=replace(data.train, targets=other))
    method = quick("indicator", 3)
    assert run_identity(method, data, lw.Run())["data"] != run_identity(method, changed, lw.Run())["data"]
