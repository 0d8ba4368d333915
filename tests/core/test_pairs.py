from collections import Counter
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from labelwise.tasks.verify import draw_pairs


def unordered(rows: NDArray[Any]) -> list[tuple[int, int]]:
    return sorted((min(pair), max(pair)) for pair in rows.tolist())


@given(st.lists(st.integers(-1, 3), max_size=12))
def test_all_pairs_where_there_are_few(targets: list[int]) -> None:
    pairs = draw_pairs(np.array(targets, np.int64), 1_000)
    every = [(i, j) for i, j in combinations(range(len(targets)), 2) if min(targets[i], targets[j]) >= 0]
    assert unordered(pairs.same) == [(i, j) for i, j in every if targets[i] == targets[j]]
    assert unordered(pairs.different) == [(i, j) for i, j in every if targets[i] != targets[j]]


def test_a_draw_is_even_and_seeded() -> None:
    targets = np.tile([0, 1, 0, 0, 2, -1, 1], 30)
    same, different = draw_pairs(targets, 3_000, seed=1)
    again, other = draw_pairs(targets, 3_000, 1), draw_pairs(targets, 3_000, seed=2)
    assert np.array_equal(same, again.same)
    assert np.array_equal(different, again.different)
    assert not np.array_equal(same, other.same)
    assert len(same) == len(different) == 3_000
    assert (targets[same[:, 0]] == targets[same[:, 1]]).all()
    assert (targets[different[:, 0]] != targets[different[:, 1]]).all()
    assert (same[:, 0] != same[:, 1]).all()
    # Labels have 90, 60 and 30 images, so 4005, 1770 and 435 same pairs, and 5400, 2700, 1800 different ones.
    shares = np.bincount(targets[same[:, 0]]) / 3_000
    np.testing.assert_allclose(shares, np.array([4005, 1770, 435]) / 6210, atol=0.03)
    kinds = Counter(tuple(sorted(targets[pair].tolist())) for pair in different)
    drawn = np.array([kinds[0, 1], kinds[0, 2], kinds[1, 2]]) / 3_000
    np.testing.assert_allclose(drawn, np.array([5400, 2700, 1800]) / 9900, atol=0.03)
