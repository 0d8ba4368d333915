"""Ranks, medians and intervals of levels against slow, obvious loops; what is asked wrongly is said."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.api import rank
from labelwise.core.calibration import OutlierRule
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.tasks.rank import covering_levels, expected_ranks, level_columns, median_levels
from tests.changed import changed
from tests.tasks.levels import saying, told

GRADES = Labels(names=("good", "poor", "fair"), order=(30, 10, 20))
weights = st.integers(1, 6).flatmap(
    lambda k: st.lists(
        st.lists(st.integers(0, 8), min_size=k, max_size=k).filter(lambda row: sum(row) > 0), min_size=1, max_size=6
    )
)


def shares(rows: list[list[int]]) -> torch.Tensor:
    table = torch.tensor(rows, dtype=torch.float64)
    return table / table.sum(1, keepdim=True)


@given(weights)
def test_expected_rank_and_median(rows: list[list[int]]) -> None:
    levels = shares(rows)
    ranks, medians = expected_ranks(np.asarray(levels)), median_levels(np.asarray(levels))
    for i, row in enumerate(rows):
        drawn = [level for level, times in enumerate(row) for _ in range(times)]
        assert float(ranks[i]) == pytest.approx(1 + sum(drawn) / len(drawn))
        off = [sum(abs(level - said) for level in drawn) for said in range(len(row))]
        assert off[int(medians[i])] == min(off), "another level has a smaller expected error"


@given(weights, st.integers(1, 20))
def test_shortest_interval(rows: list[list[int]], part: int) -> None:
    coverage = part / 20 - 0.0123  # no sum of shares, so that rounding decides nothing
    first, last = covering_levels(np.asarray(shares(rows)), coverage)
    for i, row in enumerate(rows):
        k, total = len(row), sum(row)
        every = [(b - a, -sum(row[a : b + 1])) for a in range(k) for b in range(a, k)]
        found = (int(last[i] - first[i]), -sum(row[first[i] : last[i] + 1]))
        assert found == min((width, held) for width, held in every if -held >= coverage * total)


def test_interval_of_everything() -> None:
    assert [ends.tolist() for ends in covering_levels(np.asarray(torch.tensor([[0.1, 0.2, 0.7]]).double()), 1.0)] == [
        [0],
        [2],
    ]
    for coverage in (0.0, 1.1):
        with pytest.raises(UsageError, match=f"given {coverage}"):
            covering_levels(np.asarray(torch.ones(1, 2) / 2), coverage)


def test_rank_sorts_pictures_by_the_order_of_labels() -> None:
    pictures = saying([[0.9, 0.02, 0.08], [0.05, 0.8, 0.15], [0.3, 0.4, 0.3]])  # good, poor, fair
    found = rank(told(GRADES), pictures)
    assert [one.image for one in found] == [1, 2, 0]
    assert [one.rank for one in found] == pytest.approx([1.25, 1.9, 2.88], abs=1e-5)
    assert [one.median for one in found] == ["poor", "fair", "good"]
    assert [one.best for one in found] == ["poor", "poor", "good"]
    assert [one.interval for one in found] == [("poor", "poor"), ("poor", "good"), ("good", "good")]
    assert found[0].probabilities == pytest.approx({"poor": 0.8, "fair": 0.15, "good": 0.05}, abs=1e-6)
    assert list(found[0].probabilities) == ["poor", "fair", "good"]
    assert rank(told(GRADES), pictures, coverage=0.95)[0].interval == ("poor", "fair")


def test_order_of_the_call_comes_first() -> None:
    pictures = saying([[0.9, 0.02, 0.08], [0.05, 0.8, 0.15]])
    assert [one.image for one in rank(told(GRADES), pictures, order=["good", "fair", "poor"])] == [0, 1]
    bare = told(Labels(names=GRADES.names))
    assert rank(bare, pictures, order=("poor", "fair", "good")) == rank(told(GRADES), pictures)


def test_equal_ranks_keep_their_places_and_temperature_counts() -> None:
    classifier = told(GRADES)
    assert [one.image for one in rank(classifier, saying([[0.2, 0.5, 0.3]] * 3))] == [0, 1, 2]
    (sure,) = rank(classifier, saying([[0.1, 0.8, 0.1]]))
    (unsure,) = rank(changed(classifier, temperature=5.0), saying([[0.1, 0.8, 0.1]]))
    assert unsure.rank > sure.rank


def test_strange_pictures_are_not_known() -> None:
    rule = OutlierRule(centre=(0.0, 0.0), spread=(1.0, 1.0), limit=0.5)  # minus the logarithm of a share counts here
    found = rank(changed(told(GRADES), rule=rule), saying([[0.98, 0.01, 0.01], [0.34, 0.33, 0.33]]))
    assert {one.image: one.known for one in found} == {0: True, 1: False}


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["poor", "fair"], "every label once.*it lacks good. Given: poor, fair"),
        (["poor", "fair", "good", "fair"], "more than once: fair"),
        (["poor", "fare", "good"], 'No label "fare".*Did you mean "fair"'),
        ([], "lacks good, poor, fair"),
    ],
)
def test_wrong_orders(order: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        level_columns(told(GRADES), order)


def test_labels_without_an_order_say_how_to_give_one() -> None:
    with pytest.raises(UsageError, match=r"no order: good, poor, fair.*order=.*--order.*labels\.csv.*order\.txt"):
        rank(told(Labels(names=GRADES.names)), saying([[1, 1, 1]]))
    with pytest.raises(UnsupportedError, match="Several labels may be true"):
        rank(told(GRADES, multilabel=True), saying([[1, 1, 1]]))
