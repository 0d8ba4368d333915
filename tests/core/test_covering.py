"""Sets of labels that hold the right one at a promised rate: they do, they keep the answer, and they stay small where answers are sure."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import labelwise as lw
from labelwise.core.calibration import Calibration
from labelwise.core.classifier import Classifier
from labelwise.core.promises import MARGINS
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.tasks.calibrate import calibrate

K, WIDTH = 6, 8


def draw(n: int, seed: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Features of six labels that overlap."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(K, WIDTH))
    targets = rng.integers(K, size=n)
    return (centres[targets] + spread * rng.normal(size=(n, WIDTH))).astype(np.float32), targets


def classifier(n: int = 240) -> lw.Classifier:
    features, targets = draw(n, 1)
    return lw.fit((features, [f"label {target}" for target in targets]))


def held(fitted: Classifier, coverage: float) -> tuple[float, float]:
    """How often the sets of new images hold the right label, and their size."""
    features, targets = draw(4000, 2)
    within = fitted.scores(features).covering(coverage)
    return float(within[np.arange(len(targets)), targets].mean()), float(within.sum(1).mean())


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_sets_hold_the_right_label_as_often_as_promised_and_are_larger_the_more_is_promised(coverage: float) -> None:
    fitted = classifier()
    share, size = held(fitted, coverage)
    assert coverage - 0.03 < share < coverage + 0.05
    assert size < held(fitted, 0.98)[1]


def test_of_many_margins_quantiles_say_the_same() -> None:
    features, targets = draw(6000, 3)
    fitted = calibrate(classifier().scores(features), targets)
    assert fitted.calibration.margins is not None
    assert len(fitted.calibration.margins) == MARGINS
    few = held(calibrate(classifier().scores(features[:MARGINS]), targets[:MARGINS]), 0.9)
    many = held(fitted, 0.9)
    assert abs(few[0] - many[0]) < 0.02


def test_too_few_images_for_a_promise_leave_all_labels_in() -> None:
    fitted = classifier(60)
    features, _ = draw(5, 2)
    assert fitted.scores(features).covering(0.999).all()


def test_a_prediction_lists_the_set_the_answer_first(tmp_path: Path) -> None:
    fitted = classifier()
    features, _ = draw(50, 2)
    within = fitted.scores(features).covering(0.95)
    for row, one in zip(within, fitted.classify(features, coverage=0.95), strict=True):
        assert {name for name, _ in one.top} == set(np.array(fitted.labels.names)[row])
        assert one.label in ("unknown", one.top[0][0])
    fitted.save(tmp_path / "sets.lw")
    assert (lw.load(tmp_path / "sets.lw").scores(features).covering(0.95) == within).all()


def test_a_chosen_threshold_keeps_its_answer_in_the_set() -> None:
    fitted = classifier()
    strict = fitted.with_thresholds({fitted.labels.names[0]: 0.05})
    features, _ = draw(50, 2)
    scores = strict.scores(features)
    assert scores.covering(0.5)[np.arange(50), scores.best].all()


def test_a_taught_label_joins_the_sets() -> None:
    rng = np.random.default_rng(5)
    far = (8 + rng.normal(size=(20, WIDTH))).astype(np.float32)
    taught = classifier().teach("far", far[:5])
    within = taught.scores(far[5:]).covering(0.9)
    assert within[:, taught.labels.index("far")].all()


def test_promises_count_labels_that_are_taught_later(tmp_path: Path) -> None:
    rng, fixed = np.random.default_rng(5), np.random.default_rng(6)
    centres = fixed.normal(size=(24, WIDTH))

    def some(labels: range, n: int) -> tuple[np.ndarray, list[str]]:
        targets = np.repeat(labels, n)
        features = centres[targets] + 0.8 * rng.normal(size=(len(targets), WIDTH))
        return features.astype(np.float32), [f"label {target}" for target in targets]

    taught = lw.fit(some(range(12), 25))
    for label in range(12, 24):
        features, (name, *_) = some(range(label, label + 1), 8)
        taught = taught.teach(name, features)
    test, names = some(range(24), 100)

    def hit(classifier: lw.Classifier) -> float:
        right = [classifier.labels.index(name) for name in names]
        return float(classifier.scores(test).covering(0.9)[np.arange(len(right)), right].mean())

    forgetful = replace(taught, calibration=replace(taught.calibration, later=None))
    assert hit(forgetful) < 0.87 < hit(taught) < 0.96
    taught.save(tmp_path / "taught.lw")
    assert hit(lw.load(tmp_path / "taught.lw")) == hit(taught)
    fewer = taught.forget("label 3").forget("label 20")
    assert fewer.scores(test).covering(0.9).any(1).all()


def test_what_cannot_be_promised_is_refused() -> None:
    calibration = Calibration.none(2, exclusive=False, penalty="offset")
    with pytest.raises(UnsupportedError, match="not calibrated"):
        calibration.covering(np.zeros((1, 2)), 0.9)
    with pytest.raises(UnsupportedError, match="several labels"):
        replace(calibration, multilabel=True).covering(np.zeros((1, 2)), 0.9)
    with pytest.raises(UsageError, match="between 0 and 1"):
        classifier().scores(draw(2, 2)[0]).covering(90)


def test_no_margins_promise_nothing_after_teaching() -> None:
    """A saved classifier whose margins are an empty row was an error of an index."""
    taught = classifier(60).teach("new", draw(5, 3)[0])
    none = np.zeros(0, np.float32)
    forged = replace(taught, calibration=replace(taught.calibration, margins=none, mistakes=none))
    assert forged.promising is forged.calibration
