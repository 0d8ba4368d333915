"""Every metric against scikit-learn or a slow, obvious count."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from sklearn import metrics as reference
from sklearn.calibration import calibration_curve

from labelwise.core import metrics
from labelwise.support.errors import UsageError

Pairs = list[tuple[int, int]]
pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)
tied = st.lists(st.integers(-3, 3).map(lambda i: i / 4), min_size=1, max_size=25)  # few values, many ties


def columns(rows: Pairs) -> tuple[list[int], list[int]]:
    return [row[0] for row in rows], [row[1] for row in rows]


@given(pairs)
def test_accuracies_and_confusion(rows: Pairs) -> None:
    predicted, targets = columns(rows)
    assert metrics.accuracy(predicted, targets) == pytest.approx(reference.accuracy_score(targets, predicted))
    table = reference.confusion_matrix(targets, predicted, labels=range(5))
    assert metrics.confusion_matrix(predicted, targets, 5).tolist() == table.tolist()
    present = reference.recall_score(targets, predicted, labels=sorted(set(targets)), average="macro", zero_division=0)
    assert metrics.per_class_accuracy(predicted, targets) == pytest.approx(present)


def test_balanced_accuracy_on_uneven_classes() -> None:
    targets, predicted = [0] * 8 + [1] * 2, [0] * 8 + [0, 1]
    assert metrics.per_class_accuracy(predicted, targets) == 0.75
    assert reference.balanced_accuracy_score(targets, predicted) == 0.75


def test_unknown_is_a_wrong_prediction() -> None:
    assert metrics.accuracy([-1, 3], [0, 3]) == 0.5
    assert metrics.per_class_accuracy([-1, 3, 3], [0, 3, 3]) == 0.5


@given(st.floats(0, 1), st.floats(0, 1))
def test_harmonic_mean(unseen: float, seen: float) -> None:
    assume(unseen == 0 or unseen > 1e-9)
    assume(seen == 0 or seen > 1e-9)
    slow = 0.0 if unseen == 0 or seen == 0 else 1 / (0.5 / unseen + 0.5 / seen)
    assert metrics.harmonic_mean(unseen, seen) == pytest.approx(slow)


@given(tied, tied)
def test_auroc_with_ties(positive: list[float], negative: list[float]) -> None:
    truth = [1] * len(positive) + [0] * len(negative)
    assert metrics.auroc(positive, negative) == pytest.approx(reference.roc_auc_score(truth, positive + negative))


def test_auroc_of_many_scores_in_low_precision() -> None:
    random = np.random.default_rng(0)
    positive = (random.standard_normal(20000) + 0.3).astype(np.float16)
    negative = random.standard_normal(30000).astype(np.float16)
    truth = np.r_[np.ones(20000), np.zeros(30000)]
    expected = reference.roc_auc_score(truth, np.r_[positive, negative].astype(np.float32))
    assert metrics.auroc(positive, negative) == pytest.approx(expected, abs=1e-12)


@given(tied, tied, st.sampled_from([0.1, 0.5, 0.8, 0.95, 1.0]))
def test_fpr_at_tpr(positive: list[float], negative: list[float], tpr: float) -> None:
    reached = [t for t in positive if np.mean([p >= t for p in positive]) >= tpr - 1e-12]
    slow = np.mean([q >= max(reached) for q in negative])
    assert metrics.fpr_at_tpr(positive, negative, tpr) == pytest.approx(slow)


def test_fpr_needs_no_more_positives_than_asked() -> None:
    positive = list(range(1, 21))  # 19 of 20 must be accepted: the threshold is 2
    assert metrics.fpr_at_tpr(positive, [1, 1.5, 2, 9]) == 0.5


def slow_rates(positive: list[float], negative: list[float], threshold: float) -> tuple[float, float]:
    refused = sum(p < threshold for p in positive) / len(positive)
    accepted = sum(q >= threshold for q in negative) / len(negative)
    return refused, accepted


@given(tied, tied)
def test_equal_error_rate(positive: list[float], negative: list[float]) -> None:
    eer, threshold = metrics.equal_error(metrics.det_curve(positive, negative))
    curve = [slow_rates(positive, negative, t) for t in (*sorted({*positive, *negative}), math.inf)]
    line = np.concatenate([np.linspace(a, b, 201) for a, b in pairwise(curve)])  # walk through all thresholds
    nearest = line[np.abs(line[:, 0] - line[:, 1]).argmin()]
    assert eer == pytest.approx(nearest.mean(), abs=0.006)
    refused, accepted = slow_rates(positive, negative, threshold)
    assert abs(refused - accepted) == pytest.approx(min(abs(a - b) for a, b in curve))


@given(tied, tied)
def test_equal_error_rate_lies_on_the_roc_curve(positive: list[float], negative: list[float]) -> None:
    truth = [1] * len(positive) + [0] * len(negative)
    fpr, tpr, _ = reference.roc_curve(truth, positive + negative, drop_intermediate=False)
    eer = metrics.equal_error(metrics.det_curve(positive, negative)).rate
    swapped = metrics.equal_error(metrics.det_curve([-q for q in negative], [-p for p in positive])).rate
    assert swapped == pytest.approx(eer)
    point = np.array([eer, 1 - eer])
    corners = np.stack([fpr, tpr], 1)
    length = [
        np.linalg.norm(a - point) + np.linalg.norm(point - b) - np.linalg.norm(a - b) for a, b in pairwise(corners)
    ]
    assert min(length) < 1e-9  # the point is between two corners


def test_equal_error_of_separate_scores_is_zero_and_its_threshold_in_between() -> None:
    assert metrics.equal_error(metrics.det_curve([0.8, 0.9], [0.1, 0.2])) == metrics.EqualError(rate=0.0, threshold=0.5)
    assert metrics.equal_error(metrics.det_curve([1, 1], [1, 1])).rate == 0.5


answers = st.lists(st.tuples(st.integers(0, 60).map(lambda i: i / 60), st.booleans()), min_size=1, max_size=60)


@given(answers, st.integers(1, 15))
def test_calibration(rows: list[tuple[float, bool]], bins: int) -> None:
    table = metrics.reliability([c for c, _ in rows], [r for _, r in rows], bins)
    error = 0.0
    for b in range(bins):
        inside = [(c, r) for c, r in rows if sum(j / bins < c for j in range(1, bins)) == b]
        assert table.count[b] == len(inside)
        confidence, accuracy = np.mean(inside, axis=0) if inside else (math.nan, math.nan)
        assert table.confidence[b].item() == pytest.approx(confidence, nan_ok=True)
        assert table.accuracy[b].item() == pytest.approx(accuracy, nan_ok=True)
        error += abs(confidence - accuracy) * len(inside) / len(rows) if inside else 0
    ours = metrics.expected_calibration_error([c for c, _ in rows], [r for _, r in rows], bins)
    assert ours == pytest.approx(error, abs=1e-12)


def test_reliability_agrees_with_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.random(500)
    correct = generator.random(500) < confidence**2
    table = metrics.reliability(confidence, correct, bins=10)
    accuracy, mean = calibration_curve(correct, confidence, n_bins=10)
    np.testing.assert_allclose(table.accuracy, accuracy)
    np.testing.assert_allclose(table.confidence, mean)


def test_tensors_arrays_and_lists_give_the_same() -> None:
    predicted, targets = [0, 1, 2, 2], [0, 1, 1, 2]
    forms: list[Callable[[list[int]], ArrayLike]] = [list, np.array, torch.tensor]
    assert [metrics.accuracy(form(predicted), form(targets)) for form in forms] == [0.75] * 3
    assert metrics.auroc(torch.tensor([0.5, 2]), np.array([1, 2], dtype=np.float32)) == 0.375


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.accuracy([], []), "at least one"),
        (lambda: metrics.accuracy([1, 2], [1]), "2 answers and 1 targets"),
        (lambda: metrics.accuracy([math.nan], [1]), "no NaN"),
        (lambda: metrics.accuracy(np.zeros((2, 2)), [1, 1]), "at least one number"),
        (lambda: metrics.auroc([], [1.0]), "at least one"),
        (lambda: metrics.auroc([1.0], [0.0, math.nan]), "no NaN"),
        (lambda: metrics.fpr_at_tpr([], [1.0]), "at least one"),
        (lambda: metrics.equal_error(metrics.det_curve([1.0], [math.inf])), "infinite"),
        (lambda: metrics.expected_calibration_error([0.5, 0.5], [1]), "2 answers and 1 targets"),
    ],
)
def test_clear_errors(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_the_interval_of_a_share_is_that_of_scipy() -> None:
    from scipy.stats import binomtest

    for n in (1, 7, 24, 400):
        for hits in {0, 1, n // 2, n - 1, n}:
            low, high = binomtest(hits, n).proportion_ci(method="wilson")
            assert metrics.wilson(hits / n, n) == pytest.approx((low, high), abs=1e-12)
