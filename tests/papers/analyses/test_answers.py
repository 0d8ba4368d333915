"""Yes-rates and the calibration of answers against loops over single questions."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import Evaluation
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import METHODS
from labelwise.methods.discriminant.model import DiscriminantModel
from labelwise.methods.indicator.method import IndicatorModel
from labelwise.support.errors import DataError, UsageError
from labelwise.train.model import Spec
from labelwise.train.train_data import TensorSplit
from labelwise_papers.analyses.answers import answer_calibration, draw_calibration, odd_answers, wrong_labels, yes_rates
from tests.changed import bind_model, changed, made_from, model_of
from tests.conftest import blobs, quick
from tests.described import Table
from tests.pixels_of import px

DATA = blobs()


def untrained(name: str, data: Dataset = DATA, seed: int = 0) -> Classifier:
    """A method's model with random weights and a made-up calibration; scores of a linear one lie about zero."""
    torch.manual_seed(seed)
    method = quick(name)
    model = method.build(Spec(shape=data.shape or (), labels=data.labels))
    if isinstance(model, IndicatorModel):
        with torch.no_grad():
            model.predictor.bias.add_(0.06)
            model.label_encoder.first.bias.add_(0.1)
    if isinstance(model, DiscriminantModel):
        model.solve(TensorSplit.of(data.split("train")))
    bound = bind_model(model, data.labels, method)
    if not bound.label_embeddings.any():  # a closed form that was not solved yet
        bound = changed(
            bound,
            label_embeddings=np.random.default_rng(0).standard_normal(bound.label_embeddings.shape).astype(np.float32),
        )
    k = len(data.labels)
    return changed(bound, scale=torch.linspace(20, 40, k), offset=torch.linspace(-1, 1, k), temperature=0.5)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def literal_yes(classifier: Classifier, image: Tensor, label_input: Tensor) -> float:
    """The score of one question as the paper writes it: w.(z * psi) + b with psi of a label input in R^k."""
    model = model_of(classifier)
    assert isinstance(model, IndicatorModel)
    with torch.no_grad():
        psi = model.label_encoder.second(model.label_encoder.first(label_input))
        return float(model.predictor(torch.from_numpy(classifier.encode(image[None])[0]) * psi))


def test_yes_rates_equal_single_questions() -> None:
    classifier, test = untrained("indicator"), DATA.split("test")
    found = yes_rates(Evaluation.of(classifier, test, DATA.labels), seed=5)
    targets, k = test.targets.tolist(), len(DATA.labels)
    wrong = wrong_labels(torch.as_tensor(test.targets), k, 5).tolist()
    raw = [[literal_yes(classifier, image, torch.eye(k)[i]) for i in range(k)] for image in px(test)]
    fitted = [
        [
            s * float(classifier.calibration.scale[i]) + float(classifier.calibration.offset[i])
            for i, s in enumerate(row)
        ]
        for row in raw
    ]
    for scores, rates in ((raw, found["raw"]), (fitted, found["calibrated"])):
        yes = [[sigmoid(s) > 0.5 for s in row] for row in scores]
        n = len(yes)
        assert rates["right"] == pytest.approx(sum(row[t] for row, t in zip(yes, targets, strict=True)) / n)
        assert rates["wrong"] == pytest.approx(sum(row[t] for row, t in zip(yes, wrong, strict=True)) / n)
        others = [row[i] for row, t in zip(yes, targets, strict=True) for i in range(k) if i != t]
        assert rates["every_wrong"] == pytest.approx(sum(others) / len(others))
        assert 0 < rates["every_wrong"] < 1, "the reference must be able to tell"
    assert found["raw"] != found["calibrated"]
    assert (found["images"], found["leaked"]) == (len(test), 0.0)


def test_inputs_of_ones_and_zeros_are_asked_as_the_paper_does() -> None:
    classifier, test = untrained("indicator"), DATA.split("test")
    k = len(DATA.labels)
    scale, offset = float(classifier.calibration.scale.mean()), float(classifier.calibration.offset.mean())
    answers = odd_answers(classifier.scores(test.images))
    assert answers is not None
    for column, value in enumerate((1.0, 0.0)):
        slow = [sigmoid(literal_yes(classifier, x, torch.full((k,), value)) * scale + offset) for x in px(test)]
        assert answers[:, column].tolist() == pytest.approx(slow, abs=1e-5)
        rate = yes_rates(Evaluation.of(classifier, test, DATA.labels))["calibrated"][("ones", "zeros")[column]]
        assert rate == pytest.approx(sum(p > 0.5 for p in slow) / len(slow))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_answers(method: str) -> None:
    classifier, test = untrained(method), DATA.split("test")
    found = yes_rates(Evaluation.of(classifier, test, DATA.labels))
    assert (found["raw"]["ones"] is None) == (method != "indicator")
    answers = classifier.scores(test.images).yes > 0.5
    assert found["calibrated"]["right"] == pytest.approx(float(answers[range(len(test)), test.targets].mean()))
    assert answer_calibration(Evaluation.of(classifier, test, DATA.labels))["every"]["pairs"] == len(test) * len(
        DATA.labels
    )


def test_wrong_labels_are_wrong_and_all_as_likely() -> None:
    targets = torch.arange(5).repeat(4000)
    wrong = wrong_labels(targets, 5, 0)
    assert not (wrong == targets).any()
    for label in range(5):
        counts = torch.bincount(wrong[targets == label], minlength=5)
        assert counts[torch.arange(5) != label].sub(1000).abs().max() < 150
    assert torch.equal(wrong, wrong_labels(targets, 5, 0))
    assert not torch.equal(wrong, wrong_labels(targets, 5, 1))
    with pytest.raises(UsageError, match="one label only"):
        wrong_labels(targets, 1, 0)


LABELS = Labels(names=("a", "b", "c"))


def known_scores() -> tuple[Classifier, Split]:
    """A model whose images are its scores; every fifth image has no label."""
    made = torch.Generator().manual_seed(2)
    targets = torch.arange(60) % 3
    scores = torch.randn(60, 3, generator=made) + 2 * torch.eye(3)[targets]
    bound = bind_model(Table(LABELS), LABELS)
    split = Split(images=scores, targets=torch.where(torch.arange(60) % 5 == 4, -1, targets))
    return changed(bound, scale=bound.calibration.scale * 1.5, offset=bound.calibration.offset - 1), split


def slow_figures(said: list[float], truth: list[int], bins: int) -> tuple[float, float]:
    error = 0.0
    for b in range(bins):
        rows = [i for i, p in enumerate(said) if b / bins < p <= (b + 1) / bins or (b == 0 and p == 0)]
        if rows:
            error += abs(sum(said[i] - truth[i] for i in rows)) / len(said)
    return error, sum((p - t) ** 2 for p, t in zip(said, truth, strict=True)) / len(said)


def test_calibration_equals_a_slow_reference() -> None:
    classifier, split = known_scores()
    found = answer_calibration(Evaluation.of(classifier, split, LABELS), seed=3, bins=7)
    rows = [i for i, t in enumerate(split.targets.tolist()) if t >= 0]
    targets = [int(torch.as_tensor(split.targets)[i]) for i in rows]
    wrong = wrong_labels(torch.tensor(targets), 3, 3).tolist()
    assert found["images"] == len(rows) == 48
    for when, scale, offset in (("before", 1.0, 0.0), ("after", 1.5, -1.0)):
        said = [[sigmoid(float(s) * scale + offset) for s in px(split)[i]] for i in rows]
        every = [p for row in said for p in row], [int(i == t) for t in targets for i in range(3)]
        yes, no = ([row[i] for row, i in zip(said, places, strict=True)] for places in (targets, wrong))
        even = yes + no, [1] * len(yes) + [0] * len(no)
        for pairs, (answers, truth) in ((found["every"], every), (found["balanced"], even)):
            figures = pairs[when]
            assert (figures["ece"], figures["brier"]) == pytest.approx(slow_figures(answers, truth, 7), abs=1e-6)
            assert sum(one["count"] for one in figures["bins"]) == pairs["pairs"] == len(answers)


def test_leaks_are_told_and_images_without_labels_left_out() -> None:
    classifier, split = known_scores()
    seen = made_from(classifier, split.images[:12])
    kept = [i for i in range(12) if torch.as_tensor(split.targets)[i] >= 0]
    for result in (
        yes_rates(Evaluation.of(seen, split, LABELS)),
        answer_calibration(Evaluation.of(seen, split, LABELS)),
    ):
        assert result["images"] == 48
        assert result["leaked"] == pytest.approx(len(kept) / 48)
    bare = Split(images=split.images, targets=torch.full_like(torch.as_tensor(split.targets), -1))
    for figures in (yes_rates, answer_calibration):
        with pytest.raises(DataError, match="no labelled test image"):
            figures(Evaluation.of(classifier, bare, LABELS))


def test_targets_follow_the_names_of_labels() -> None:
    classifier, split = known_scores()
    other = Labels(names=("c", "a", "b"))
    moved = Split(images=split.images, targets=torch.tensor([1, 2, 0, -1])[torch.as_tensor(split.targets)])
    assert yes_rates(Evaluation.of(classifier, moved, other)) == yes_rates(Evaluation.of(classifier, split, LABELS))


def test_the_picture_shows_each_full_bin() -> None:
    classifier, split = known_scores()
    found = answer_calibration(Evaluation.of(classifier, split, LABELS))
    left, right = draw_calibration(found).axes
    for axes, pairs in ((left, found["every"]), (right, found["balanced"])):
        for drawn, figures in zip(axes.collections, (pairs["before"], pairs["after"]), strict=True):
            wanted = torch.tensor([[one["probability"], one["yes"]] for one in figures["bins"]])
            assert torch.allclose(torch.as_tensor(drawn.get_offsets(), dtype=wanted.dtype), wanted)
        assert str(pairs["pairs"]) in axes.get_title()
