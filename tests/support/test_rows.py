"""Rows appended one after another are those of ``np.concatenate``, whoever else appends to the same array."""

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from labelwise.support.rows import LEAST, append_rows, connected_groups, draw_rows, drop_rows, segment_mean


def address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def test_as_concatenate_in_any_order() -> None:
    random = np.random.default_rng(0)
    first = random.random((LEAST, 2))
    known = [(first, first.copy())]
    for _ in range(400):
        array, slow = known[random.integers(len(known)) if random.random() < 0.3 else -1]
        rows = random.random((random.integers(4), 2))
        known.append((append_rows(array, rows), np.concatenate([slow, rows])))
        if random.random() < 0.2:
            begin, end = sorted(random.integers(len(slow) + 1, size=2).tolist())
            end = min(end, begin + 5)
            known.append((drop_rows(array, begin, end), np.concatenate([slow[:begin], slow[end:]])))
    assert all(np.array_equal(fast, slow) for fast, slow in known), "no row was overwritten"


def test_most_rows_are_copied_a_few_times_only() -> None:
    array, places = np.zeros(LEAST), set()
    for i in range(5_000):
        array = append_rows(array, [float(i)])
        places.add(address(array))
    assert len(places) < 15
    assert array[LEAST:].tolist() == list(range(5_000))


def test_rows_appended_after_some_were_dropped_are_not_copied() -> None:
    array = drop_rows(np.arange(2.0 * LEAST), 3, 5)
    longer = append_rows(array, np.ones(1))
    assert address(longer) == address(array)
    assert np.array_equal(longer, np.append(array, 1.0))


@pytest.mark.parametrize("part", [np.s_[:, :1], np.s_[::-1], np.s_[1:], np.s_[:-1], np.s_[::2], np.s_[:0]])
def test_parts_of_an_array_are_copied(part: Any) -> None:
    array = append_rows(np.random.default_rng(0).random((2 * LEAST, 2)), np.ones((1, 2)))
    before, rows = array.copy(), np.zeros((LEAST, array[part].shape[1]))
    assert np.array_equal(append_rows(array[part], rows), np.concatenate([array[part], rows]))
    longer = append_rows(array, np.ones((1, 2)))
    assert np.array_equal(longer[:-1], before)
    assert np.array_equal(array, before)


def test_dtypes_follow_the_first() -> None:
    assert append_rows(np.zeros(LEAST, bool), np.ones(1)).dtype == np.bool_
    assert append_rows(np.zeros(2, np.float32), np.ones(1)).dtype == np.float32


def test_copies_have_no_room() -> None:
    array = append_rows(np.zeros(LEAST), np.ones(1))
    for twin in (copy.deepcopy(array), pickle.loads(pickle.dumps(array))):
        assert np.array_equal(append_rows(twin, np.ones(1)), append_rows(array, np.ones(1)))


def test_threads_never_share_a_row() -> None:
    shared = append_rows(np.zeros(LEAST), np.zeros(1))
    results: dict[int, NDArray[Any]] = {}

    def append(i: int) -> None:
        mine = shared
        for _ in range(200):
            mine = append_rows(mine, [float(i)])
        results[i] = mine

    threads = [threading.Thread(target=append, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, array in results.items():
        assert array[LEAST + 1 :].tolist() == [float(i)] * 200


def test_drawn_rows_are_in_order_and_the_same_each_time() -> None:
    assert draw_rows(5, 9).tolist() == [0, 1, 2, 3, 4]
    rows = draw_rows(100, 10)
    assert len(set(rows.tolist())) == 10
    assert np.array_equal(rows, np.sort(rows))
    assert np.array_equal(rows, draw_rows(100, 10))
    assert not np.array_equal(rows, draw_rows(100, 10, seed=1))


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
