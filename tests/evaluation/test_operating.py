"""Precision and recall at thresholds are those of the answers that a classifier with these thresholds gives."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, precision_recall_curve

import labelwise as lw
from labelwise.core.calibration import choose
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.operating import (
    THRESHOLDS,
    best_threshold,
    operating_points,
    point_at,
    threshold_for,
    thresholds_for,
)
from labelwise.support.errors import UsageError
from labelwise.tasks.classify import classify
from tests.changed import changed
from tests.contract.subjects import trained
from tests.evaluation.test_evaluate import DATA, NAMES


def draws(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = rng.random(200) < 0.1
    return np.round(np.clip(rng.normal(0.3 + 0.4 * true, 0.2), 0, 1), 2), true


@pytest.mark.parametrize("seed", range(5))
def test_points_and_best_thresholds_are_those_of_a_slow_search(seed: int) -> None:
    probabilities, true = draws(seed)
    precision, recall, _ = precision_recall_curve(true, probabilities)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = point_at(best_threshold(probabilities, true), probabilities, true)
    assert best.precision is not None
    assert 2 * best.precision * best.recall / (best.precision + best.recall) == pytest.approx(f1.max())
    for wanted in (0.3, 0.6, 0.9):
        slow = [r for p, r in zip(precision[:-1], recall[:-1], strict=True) if p >= wanted and r > 0]
        threshold = threshold_for(probabilities, true, precision=wanted)
        assert (threshold is None) == (not slow)
        if threshold is not None:
            assert point_at(threshold, probabilities, true).recall == max(slow)


def test_the_table_of_a_label_is_what_a_classifier_with_that_threshold_answers() -> None:
    classifier, test = trained("softmax"), DATA.split("test")
    figures = lw.evaluate(classifier, DATA)
    (one,) = [each for each in figures.operating if each.label == NAMES[1]]
    scores = classifier.scores(test.images)
    assert one.average_precision == pytest.approx(
        average_precision_score(np.asarray(test.targets) == 1, scores.probabilities[:, 1])
    )
    for point in (*one.points, one.best):
        strict = lw.evaluate(classifier.with_thresholds({NAMES[1]: point.threshold}), DATA).labels[1]
        assert strict.recall == pytest.approx(point.recall)
        assert (strict.precision is None) == (point.precision is None)
        assert strict.precision == pytest.approx(point.precision) if point.precision else True
    assert [point.threshold for point in one.points] == list(THRESHOLDS)


def test_the_answer_follows_thresholds() -> None:
    shares = np.array([[0.5, 0.4, 0.1], [0.2, 0.35, 0.45], [0.05, 0.9, 0.05]])
    nothing = float("nan")
    assert choose(shares, np.array([nothing, 0.4, nothing])).tolist() == [1, 2, 1]
    assert choose(shares, np.array([0.6, nothing, nothing])).tolist() == [1, 2, 1], "it is never answered below"
    assert choose(shares, np.array([0.25, 0.3, nothing])).tolist() == [0, 1, 1], "by the largest factor"
    assert choose(shares, np.array([1.0, 1.0, 1.0])).tolist() == [0, 2, 1], "of all labels the nearest to its own"


def test_a_threshold_is_kept_and_changes_every_answer(tmp_path: object) -> None:
    classifier, test = trained("softmax"), DATA.split("test")
    plain = classifier.scores(test.images)
    name = NAMES[0]
    always = classifier.with_thresholds({name: 1e-30})
    save(always, f"{tmp_path}/m.lw")
    assert load(f"{tmp_path}/m.lw").thresholds == {name: 1e-30}
    scores = plain.of(load(f"{tmp_path}/m.lw"))
    assert (scores.best == 0).all()
    assert all(one.top[0][0] == name for one in classify(scores))
    assert np.array_equal(scores.probabilities, plain.probabilities)
    assert np.array_equal(plain.of(always.with_thresholds({})).best, plain.best)
    assert always.remove(name).thresholds == {}
    for wrong, words in (({"no label": 0.5}, "no label"), ({name: 0.0}, "above 0"), ({name: 1.5}, "at most 1")):
        with pytest.raises(UsageError, match=words):
            classifier.with_thresholds(wrong)


def test_yes_to_each_label_follows_thresholds() -> None:
    classifier = changed(trained("softmax"), multilabel=True)
    images = np.random.default_rng(0).integers(0, 256, (12, 3, 8, 8), np.uint8)
    scores = classifier.scores(images)
    name = classifier.labels.names[0]
    some = float(np.median(scores.yes[:, 0]))
    strict = scores.of(classifier.with_thresholds({name: some}))
    assert np.array_equal(strict.agreed[:, 0], scores.yes[:, 0] >= some)
    assert np.array_equal(strict.agreed[:, 1:], scores.yes[:, 1:] >= 0.5)
    assert [one.yes for one in lw.ask(strict.classifier, images, name)] == strict.agreed[:, 0].tolist()


def test_labels_without_images_have_no_points() -> None:
    classifier, test = trained("softmax"), DATA.split("test")
    some = Evaluation.of(classifier, test)[np.flatnonzero(np.asarray(test.targets) != 2)]
    assert [one.label for one in operating_points(some)] == [NAMES[0], NAMES[1], NAMES[3]]
    wanted = thresholds_for(some, {NAMES[0]: 0.9})
    point = point_at(wanted[NAMES[0]], some.scores.probabilities[:, 0], np.asarray(some.split.targets) == 0)
    assert point.precision is not None
    assert point.precision >= 0.9
