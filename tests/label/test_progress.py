"""Intervals and what more answers would bring."""

import math

import pytest

from labelwise.label.progress import answers_for_a_point, interval


@pytest.mark.parametrize("n", [1, 5, 21, 60])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.8, 0.95, 0.99, 0.999])
def test_the_interval_covers_every_share_often_enough(n: int, share: float) -> None:
    inside = 0.0
    for hits in range(n + 1):
        low, high = interval(hits, n)
        inside += (low <= share <= high) * math.comb(n, hits) * share**hits * (1 - share) ** (n - hits)
    assert inside >= 0.95


def test_without_a_check_nothing_is_known() -> None:
    assert interval(0, 0) == (0.0, 1.0)


def test_answers_for_a_point_follow_the_slope() -> None:
    history = [(n, 0.5 + 0.1 * math.log(n)) for n in (40, 50, 60, 70, 80)]
    assert answers_for_a_point(history) == round(80 * math.expm1(0.1))
    assert answers_for_a_point([(n, 0.9) for n in (40, 50, 60, 70, 80)]) is None
    assert answers_for_a_point([]) is None
