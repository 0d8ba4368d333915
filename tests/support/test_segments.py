import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from labelwise.support.segments import connected_groups, segment_mean


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(5, 7))
def test_the_mean_of_each_group(groups: list[int], count: int) -> None:
    values = np.random.default_rng(len(groups)).standard_normal((len(groups), 3))
    expected = np.zeros((count, 3))
    for group in set(groups):
        expected[group] = values[[i for i, other in enumerate(groups) if other == group]].mean(0)
    np.testing.assert_allclose(segment_mean(values, np.array(groups, np.int64), count), expected, atol=1e-12)


def test_half_precision_is_summed_in_more() -> None:
    mean = segment_mean(np.full((1000, 1), 1.0009765625, np.float16), np.zeros(1000, np.int64), 1)
    assert mean.dtype == np.float32
    assert mean.tolist() == [[1.0009765625]]


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=30))
def test_groups_are_those_of_scipy(pairs: list[tuple[int, int]]) -> None:
    one, other = np.array(pairs, np.int64).reshape(-1, 2).T
    edges = coo_array((np.ones(len(one)), (one, other)), shape=(20, 20))
    assert connected_groups(20, one, other).tolist() == connected_components(edges, directed=False)[1].tolist()


def test_a_long_chain_is_one_group() -> None:
    order = np.random.default_rng(0).permutation(5000)
    assert connected_groups(5001, order[:-1], order[1:]).tolist() == [0] * 5000 + [1]
