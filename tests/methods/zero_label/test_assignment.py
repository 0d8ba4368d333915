from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labelwise.core.arrays import Array
from labelwise.methods.zero_label.assignment import (
    Structure,
    best_matching,
    gibbs_average,
    improve,
    matching_scores,
    random_matchings,
    standardise,
)
from labelwise.support.rows import Draws


def random_structure(k: int, seed: int, fits: bool = False) -> Structure:
    rng = np.random.default_rng(seed)
    clusters, labels = rng.normal(size=(2, k, k))
    return Structure.of(clusters, labels, rng.normal(size=(k, k)) * 0.05 if fits else None)


def slow_score(structure: Structure, matching: list[int]) -> float:
    k = len(matching)
    pairs = [
        float(structure.clusters[i, j] * structure.labels[matching[i], matching[j]])
        for i in range(k)
        for j in range(k)
        if i != j
    ]
    return sum(pairs) / len(pairs) + sum(float(structure.fits[i, matching[i]]) for i in range(k))


@given(st.integers(2, 6), st.integers(0, 50), st.booleans())
@settings(max_examples=25)
def test_scores_are_those_of_a_loop(k: int, seed: int, fits: bool) -> None:
    structure = random_structure(k, seed, fits)
    matchings = random_matchings(4, k, Draws(seed))
    found = matching_scores(structure, matchings)
    assert found.tolist() == pytest.approx([slow_score(structure, row) for row in matchings.tolist()])


@given(st.integers(2, 6), st.integers(0, 50), st.booleans())
@settings(max_examples=25)
def test_improved_matchings_have_no_better_exchange(k: int, seed: int, fits: bool) -> None:
    structure = random_structure(k, seed, fits)
    starts = random_matchings(5, k, Draws(seed))
    found = improve(structure, starts)
    before, after = matching_scores(structure, starts), matching_scores(structure, found)
    assert bool((after >= before - 1e-9).all())
    for row, score in zip(found.tolist(), after.tolist(), strict=True):
        assert sorted(row) == list(range(k))
        for i in range(k):
            for j in range(i):
                other = list(row)
                other[i], other[j] = other[j], other[i]
                assert slow_score(structure, other) <= score + 1e-8


def test_many_starts_find_the_best_of_all_matchings() -> None:
    structure = random_structure(6, 3)
    every = np.array(list(permutations(range(6))))
    found = improve(structure, random_matchings(60, 6, Draws(0)))
    assert float(matching_scores(structure, found).max()) == pytest.approx(
        float(matching_scores(structure, every).max())
    )


def test_a_hidden_permutation_is_found() -> None:
    labels, hidden = np.random.default_rng(1).normal(size=(12, 5)), Draws(2).permutation(12)
    clusters = labels[hidden]
    structure = Structure.of(clusters @ clusters.T, labels @ labels.T)
    found = improve(structure, random_matchings(200, 12, Draws(3)))
    scores = matching_scores(structure, found)
    assert np.array_equal(found[scores.argmax()], hidden)
    assert float(scores.max()) == pytest.approx(1.0)


def test_fixed_clusters_keep_their_label() -> None:
    structure = random_structure(7, 5)
    fixed = np.array([-1, 4, -1, 0, -1, -1, -1])
    starts = random_matchings(30, 7, Draws(0), fixed)
    assert all(sorted(row) == list(range(7)) for row in starts.tolist())
    found = improve(structure, starts, fixed >= 0)
    assert found[:, [1, 3]].tolist() == [[4, 0]] * 30
    assert not np.array_equal(found, starts)


def test_standardised() -> None:
    found = standardise(np.random.default_rng(0).normal(size=(5, 5)))
    off = found[~np.eye(5, dtype=bool)]
    assert float(off.mean()) == pytest.approx(0, abs=1e-12)
    assert float((off**2).mean()) == pytest.approx(1)
    np.testing.assert_allclose(found, found.T)
    assert not found.diagonal().any()


def test_gibbs_average_counts_each_matching_once() -> None:
    matchings = np.array([[0, 1], [0, 1], [0, 1], [1, 0]])
    found = gibbs_average(matchings, np.ones(4), 0.5)
    np.testing.assert_allclose(found, np.full((2, 2), 0.5))
    warm = gibbs_average(matchings, np.array([1.0, 1.0, 1.0, 0.0]), 1.0)
    assert float(warm[0, 0]) == pytest.approx(1 / (1 + np.e**-1), rel=1e-5)


def slow_best(fits: Array) -> float:
    return max(sum(float(fits[i, j]) for i, j in enumerate(p)) for p in permutations(range(len(fits))))


def test_best_matching() -> None:
    fits = np.random.default_rng(0).normal(size=(5, 5))
    found = best_matching(fits)
    assert float(fits[np.arange(5), found].sum()) == pytest.approx(slow_best(fits))
