"""Formulas against slow, obvious ones and those of scipy, on ordinary and hostile numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from scipy.spatial.distance import cdist

from labelwise.core import arrays
from labelwise.support.rows import unit_rows

HOSTILE = np.array([[0.0, 1e4, -1e4, 3e38], [-3e38, 0.0, 80.0, -80.0]], np.float32)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_formulas_are_those_of_scipy(dtype: type) -> None:
    random = np.random.default_rng(0)
    tables: tuple[arrays.Array, ...] = (HOSTILE.astype(dtype), (random.standard_normal((5, 4)) * 10).astype(dtype))
    for table in tables:
        np.testing.assert_allclose(arrays.sigmoid(table), special.expit(table), rtol=1e-6)
        np.testing.assert_allclose(arrays.softplus(table), special.softplus(table), rtol=1e-6)
        with np.errstate(over="ignore"):  # the largest differences have no number
            np.testing.assert_allclose(arrays.softmax(table), special.softmax(table, 1), rtol=2e-6, atol=1e-30)
        assert arrays.sigmoid(table).dtype == arrays.softmax(table).dtype == dtype
    inside = random.random(9)
    np.testing.assert_allclose(arrays.logit(inside, 1e-12), special.logit(inside))
    assert arrays.logit(np.array([0.0, 1.0]), 1e-12).tolist() == pytest.approx([-27.6310, 27.6310], abs=1e-3)


def test_rows_have_unit_length_and_zeros_stay() -> None:
    rows = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    rows[1] = 0
    for unit in (unit_rows(rows), arrays.root_features(rows)):
        assert np.linalg.norm(unit, axis=1).tolist() == pytest.approx([1, 0, 1, 1])
        assert (np.sign(unit) == np.sign(rows)).all()
    np.testing.assert_allclose(
        arrays.root_features(rows) ** 2, abs(rows) / abs(rows).sum(1, keepdims=True).clip(1e-9), atol=2e-3
    )


def test_distances_are_those_of_scipy() -> None:
    random = np.random.default_rng(0)
    first, second = random.random((5, 3)), random.random((4, 3))
    second[0] = first[0]
    np.testing.assert_allclose(arrays.distances(first, second), cdist(first, second), atol=1e-7)


@given(st.integers(1, 200), st.integers(1, 12), st.integers(1, 50), st.integers(0, 10**6))
def test_the_top_columns_are_those_of_a_stable_sort(k: int, count: int, levels: int, seed: int) -> None:
    """Few levels make many ties, of which the first column counts."""
    table = np.random.default_rng(seed).integers(levels, size=(6, k)).astype(np.float32)
    slow = [sorted(range(k), key=lambda column: -row[column])[:count] for row in table]
    assert arrays.top_columns(table, min(count, k)).tolist() == slow
