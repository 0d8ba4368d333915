"""Two classifiers on the same images, against the definitions spelt out."""

from math import comb

import numpy as np
import pytest
import torch

from labelwise.evaluation.paired import compare_answers


def answers(both: int, first: int, second: int, none: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Right and wrong of two classifiers, so many images of each kind."""
    kinds = [(True, True)] * both + [(True, False)] * first + [(False, True)] * second + [(False, False)] * none
    one, other = torch.tensor(kinds).T
    return one, other


def test_counts_and_exact_p() -> None:
    found = compare_answers(*answers(50, 3, 12, 10))
    assert (found.images, found.only_first, found.only_second) == (75, 3, 12)
    assert found.difference == pytest.approx(9 / 75)
    assert found.p == pytest.approx(2 * sum(comb(15, i) for i in range(4)) / 2**15)


def test_interval_is_that_of_drawing_images_again() -> None:
    first, second = answers(30, 5, 15, 10)
    found = compare_answers(first, second)
    made = np.random.default_rng(7)
    gaps = (second.int() - first.int()).numpy()
    drawn = [gaps[made.integers(0, 60, 60)].mean() for _ in range(4000)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.02)
    assert found.high == pytest.approx(high, abs=0.02)
    assert found.low < found.difference < found.high


def test_the_other_way_round() -> None:
    first, second = answers(30, 5, 15, 10)
    there, back = compare_answers(first, second), compare_answers(second, first)
    assert back.difference == -there.difference
    assert back.p == there.p


def test_no_difference() -> None:
    same = torch.tensor([True, False, True])
    found = compare_answers(same, same)
    assert (found.difference, found.low, found.high, found.p) == (0, 0, 0, 1)
