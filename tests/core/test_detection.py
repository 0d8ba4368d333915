import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.core.metrics import det_curve, equal_error, min_dcf, misses_at, threshold_at
from labelwise.support.errors import UsageError

Scores = st.lists(st.integers(-4, 4).map(lambda i: i / 4), min_size=1, max_size=12)


def sweep(positive: list[float], negative: list[float]) -> list[tuple[float, float, float]]:
    """Both errors at every threshold, by counting."""
    thresholds = [*sorted(set(positive + negative)), math.inf]
    return [
        (t, sum(p < t for p in positive) / len(positive), sum(q >= t for q in negative) / len(negative))
        for t in thresholds
    ]


@given(Scores, Scores)
def test_curve_is_a_sweep_of_thresholds(positive: list[float], negative: list[float]) -> None:
    curve = det_curve(torch.tensor(positive), torch.tensor(negative))
    rows = zip(curve.thresholds.tolist(), curve.misses.tolist(), curve.false_accepts.tolist(), strict=True)
    assert list(rows) == [pytest.approx(row) for row in sweep(positive, negative)]
    assert curve.misses[[0, -1]].tolist() == [0, 1]
    assert curve.false_accepts[[0, -1]].tolist() == [1, 0]


@given(Scores, Scores, st.sampled_from([0.01, 0.3, 0.9]))
def test_least_cost(positive: list[float], negative: list[float], share: float) -> None:
    slow = min(share * miss + (1 - share) * false for _, miss, false in sweep(positive, negative))
    found = min_dcf(det_curve(torch.tensor(positive), torch.tensor(negative)), share)
    assert found == pytest.approx(slow / min(share, 1 - share))
    assert found <= 1 + 1e-12


@given(Scores, Scores, st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.99]))
def test_threshold_for_a_share_of_false_accepts(positive: list[float], negative: list[float], share: float) -> None:
    curve = det_curve(torch.tensor(positive), torch.tensor(negative))
    threshold = threshold_at(curve, share)
    least = min(miss for _, miss, false in sweep(positive, negative) if false <= share)
    assert math.isfinite(threshold)
    assert sum(q >= threshold for q in negative) / len(negative) <= share
    assert sum(p < threshold for p in positive) / len(positive) == pytest.approx(least)
    assert misses_at(curve, share) == pytest.approx(least)


@given(Scores, Scores)
def test_equal_error_lies_between_points_of_the_sweep(positive: list[float], negative: list[float]) -> None:
    rate = equal_error(det_curve(positive, negative)).rate
    points = sweep(positive, negative)
    assert min(max(miss, false) for _, miss, false in points) >= rate - 1e-9
    assert max(min(miss, false) for _, miss, false in points) <= rate + 1e-9


def test_wrong_scores_are_refused() -> None:
    one = torch.ones(1)
    with pytest.raises(UsageError, match="at least one positive"):
        det_curve(one, one[:0])
    with pytest.raises(UsageError, match="finite"):
        det_curve(one, one / 0)
