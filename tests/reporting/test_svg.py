"""Plots: where marks fall, which ticks are written, which names find room."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.reporting.maps import label_map, matrix
from labelwise.reporting.svg import HEIGHT, WIDTH, Axis, Series, draw, range_of, round_values

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(numbers, st.floats(1e-6, 1e6))
def test_round_values_lie_inside(low: float, span: float) -> None:
    found = round_values(low, low + span)
    room = 1e-6 * span + 1e-9 * abs(low)
    assert all(low - room <= value <= low + span + room for value in found)
    assert len(found) <= 8


def test_round_values() -> None:
    assert round_values(0, 1) == pytest.approx((0, 0.2, 0.4, 0.6, 0.8, 1))
    assert round_values(2, 2) == (2,)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=5))
def test_ranges_hold_their_values(values: list[float]) -> None:
    held = [value for value in values if math.isfinite(value) and abs(value) < 1e300]
    low, high = range_of(held)
    assert low < high
    assert all(low <= value <= high for value in held)


def test_places() -> None:
    axis = Axis(label="x", low=2, high=4)
    assert [axis.place(value) for value in (1, 2, 3, 4, 9)] == [0, 0, 0.5, 1, 1]
    deviates = Axis(label="x", low=0.1, high=0.9, probit=True)
    assert deviates.place(0.5) == pytest.approx(0.5)
    assert deviates.place(0.7) + deviates.place(0.3) == pytest.approx(1)
    assert deviates.place(0.2) > (0.2 - 0.1) / 0.8  # room between small shares


def test_marks_stay_on_the_plot_and_gaps_are_left_out() -> None:
    series = [
        Series(points=[(0, 0.5), (1, math.nan), (2, 99)], name="a & b", kind="both", titles=["1", "2", "<3>"]),
        Series(points=[(0, 0.1), (1, 0.7), (2, 0)], colour=1, kind="steps"),
        Series(points=[], name="none"),
    ]
    svg, legend = draw(series, Axis(label="x", high=2), Axis(label="y", form="percent"), title="T", limit=(1, "here"))
    places = [tuple(map(float, found)) for found in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)]
    assert len(places) == 2
    assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in places)
    assert [one.name for one in legend] == ["a & b", "none"]
    assert "&lt;3&gt;" in svg
    assert "nan" not in svg
    assert ">here<" in svg
    assert ">20 %<" in svg


def test_matrix_shows_every_count() -> None:
    counts = np.array([[5, 1, 0], [0, 7, 0], [2, 0, 0]])
    svg = matrix(counts, ["a", "b", "c"])
    assert svg.count("<rect") == 1 + 4
    assert [int(found) for found in re.findall(r">(\d+)</text>", svg)] == [5, 1, 7, 2]
    assert "a → b: 1 of 6" in svg


def test_matrix_of_many_labels_has_a_cell_for_each_pair() -> None:
    counts = np.random.default_rng(0).integers(0, 3, (90, 90))
    svg = matrix(counts, [f"label {i}" for i in range(90)])
    assert len(re.findall(r"M[\d.]+ [\d.]+h", svg)) == int((counts > 0).sum())


def test_names_on_the_map_never_cover_each_other() -> None:
    made = np.random.default_rng(0)
    names = [f"label number {i}" for i in range(80)]
    svg, missing = label_map(made.standard_normal((80, 2)), names)
    boxes = [
        (float(x), float(y), float(x) + 6.1 * len(name), float(y) + 13)
        for x, y, name in re.findall(r'<text x="([-\d.]+)" y="([-\d.]+)"[^>]*>([^<]*)</text>', svg)
    ]
    assert len(boxes) + missing == 80
    assert missing < 60
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            apart = (
                one[0] >= other[2] - 0.2
                or other[0] >= one[2] - 0.2
                or one[1] >= other[3] - 0.2
                or other[1] >= one[3] - 0.2
            )
            assert apart
    assert svg.count("<title>label number") == 80


def test_map_of_labels_at_one_place() -> None:
    svg, missing = label_map(np.zeros((3, 2)), ["a", "<b>", "c"], {"<b>"})
    assert svg.count("<circle") == 3
    assert '<circle class="fb"' in svg
    assert "<title>&lt;b&gt;</title>" in svg
    assert missing == 0
