from collections import Counter
from itertools import permutations, product
from math import comb

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor
from torch.nn.functional import one_hot

from labelwise.methods.indicator.negatives import sample_by_score, sample_uniformly, sample_wrong_labels


def two_halves(numbers: Tensor) -> Tensor:
    """Numbers in [0, 1) in double precision as pairs of single ones: the first 24 bits, then the rest."""
    first = (numbers * 2**24).floor()
    return torch.stack([first / 2**24, numbers * 2**24 - first], -1).float()


@given(st.integers(2, 200_000), st.integers(1, 20), st.integers(0, 2**32 - 1), st.data())
def test_uniform_labels_are_distinct_and_never_the_true_one(k: int, n: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, min(40, k - 1)))
    made = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, k, (n,), generator=made)
    drawn = sample_uniformly(torch.rand(n, count, 2, generator=made), targets, k)
    assert drawn.shape == (n, count)
    for row, target in zip(drawn.tolist(), targets.tolist(), strict=True):
        assert len({*row, target}) == count + 1
        assert 0 <= min(row) <= max(row) < k


@pytest.mark.parametrize(("k", "count"), [(2, 1), (5, 1), (5, 2), (6, 3), (7, 4), (6, 5), (7, 6)])
def test_every_set_of_wrong_labels_is_equally_likely(k: int, count: int) -> None:
    """Floyd's algorithm draws a number from 0 to j at each place j; all outcomes of all draws are gone through."""
    places = range(k - 1 - count, k - 1)
    outcomes = torch.tensor(list(product(*(range(place + 1) for place in places)))).double()
    uniforms = two_halves((outcomes + 0.5) / torch.tensor([place + 1 for place in places]))
    for target in range(k):
        drawn = sample_uniformly(uniforms, torch.full((len(outcomes),), target), k)
        sets = Counter(frozenset(row) for row in drawn.tolist())
        assert all(len(labels) == count and target not in labels for labels in sets)
        assert len(sets) == comb(k - 1, count)
        assert set(sets.values()) == {len(outcomes) // comb(k - 1, count)}


def test_draws_equal_those_of_a_plain_loop() -> None:
    """Many draws from few labels, where chains of replaced draws are long, against Floyd's algorithm as usually written."""
    n, k, count = 300, 41, 33
    made = torch.Generator().manual_seed(3)
    uniforms, targets = torch.rand(n, count, 2, generator=made), torch.randint(0, k, (n,), generator=made)
    drawn = sample_uniformly(uniforms, targets, k).tolist()
    for row, pairs, target in zip(drawn, uniforms.double().tolist(), targets.tolist(), strict=True):
        chosen: list[int] = []
        for place, (first, second) in zip(range(k - 1 - count, k - 1), pairs, strict=True):
            number = int((first + second / 2**24) * (place + 1))
            chosen.append(place if number in chosen else number)
        assert row == [label + (label >= target) for label in chosen]


def test_uniform_sampling_of_pairs_passes_a_chi_squared_test() -> None:
    n, k = 40_000, 8
    made = torch.Generator().manual_seed(0)
    drawn = sample_uniformly(torch.rand(n, 2, 2, generator=made), torch.full((n,), 5), k)
    pairs = Counter(frozenset(row) for row in drawn.tolist())
    assert len(pairs) == comb(k - 1, 2)
    assert chisquare(list(pairs.values())).pvalue > 0.01


def test_uniform_sampling_of_very_many_labels_has_no_steps() -> None:
    """24 bits do not divide evenly among ten million labels: some would be drawn half as often as others."""
    k, n = 10_000_001, 400_000
    made = torch.Generator().manual_seed(0)
    drawn = sample_uniformly(torch.rand(n, 1, 2, generator=made), torch.full((n,), k - 1), k)[:, 0]
    assert chisquare(torch.bincount(drawn * 100 // (k - 1), minlength=100).numpy()).pvalue > 0.01
    assert chisquare(torch.bincount(drawn % 5, minlength=5).numpy()).pvalue > 0.01
    expected = n - n * (n - 1) / 2 / (k - 1)  # different labels among n draws, to second order
    assert abs(len(set(drawn.tolist())) - expected) < 6 * (n - expected) ** 0.5


@given(st.integers(2, 60), st.integers(1, 70), st.integers(0, 2**32 - 1), st.data())
def test_parts_of_labels_give_what_all_labels_do(k: int, width: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, k - 1))
    made = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, k, (9,), generator=made)
    uniforms, logits = torch.rand(9, k, generator=made), torch.randn(9, k, generator=made) * 3
    whole = sample_wrong_labels(uniforms, targets, count, logits)
    parts = zip(uniforms.split(width, 1), logits.split(width, 1), strict=True)  # type: ignore[no-untyped-call]
    assert torch.equal(sample_by_score(parts, targets, count).sort().values, whole.sort().values)


def test_extreme_random_numbers_do_not_choose_the_true_label() -> None:
    uniforms = torch.tensor([[0.0, 1 - 2**-24, 0.0, 1 - 2**-24]])
    assert sorted(sample_wrong_labels(uniforms, torch.tensor([0]), 3)[0].tolist()) == [1, 2, 3]
    logits = torch.tensor([[0.0, 0.0, -60.0, 60.0]])
    assert sample_wrong_labels(uniforms, torch.tensor([0]), 1, logits).tolist() == [[3]]


@given(st.integers(2, 12), st.integers(1, 20), st.integers(0, 2**32 - 1), st.data())
def test_distinct_and_never_the_true_label(k: int, n: int, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, k - 1))
    made = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, k, (n,), generator=made)
    logits = torch.randn(n, k, generator=made) * 10 if data.draw(st.booleans()) else None
    drawn = sample_wrong_labels(torch.rand(n, k, generator=made), targets, count, logits)
    assert drawn.shape == (n, count)
    for row, target in zip(drawn.tolist(), targets.tolist(), strict=True):
        assert len(set(row)) == count
        assert target not in row
        assert all(0 <= label < k for label in row)


@given(st.integers(1, 12), st.integers(1, 20), st.floats(0, 1), st.integers(0, 2**32 - 1), st.data())
def test_none_of_several_true_labels_is_drawn(k: int, n: int, share: float, seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, k))
    made = torch.Generator().manual_seed(seed)
    truths = torch.rand(n, k, generator=made) < share
    uniforms, logits = torch.rand(n, k, generator=made), torch.randn(n, k, generator=made) * 10
    width = data.draw(st.integers(1, k))
    parts = zip(uniforms.split(width, 1), logits.split(width, 1), strict=True)  # type: ignore[no-untyped-call]
    for drawn in (sample_by_score(parts, truths, count), sample_wrong_labels(uniforms, truths, count)):
        assert drawn.shape == (n, count)
        for row, true in zip(drawn.tolist(), truths.tolist(), strict=True):
            wrong = {label for label in range(k) if not true[label]}
            labels = [label for label in row if label >= 0]
            assert len(set(labels)) == len(labels) == min(count, len(wrong))
            assert set(labels) <= wrong
            assert all(label == -1 for label in row if label not in wrong)


def test_one_true_label_is_the_same_as_several_that_are_one() -> None:
    made = torch.Generator().manual_seed(4)
    targets, uniforms = torch.randint(0, 9, (50,), generator=made), torch.rand(50, 9, generator=made)
    logits = torch.randn(50, 9, generator=made)
    one = sample_wrong_labels(uniforms, targets, 5, logits)
    assert torch.equal(sample_wrong_labels(uniforms, one_hot(targets, 9).bool(), 5, logits), one)


def test_wrong_labels_of_several_true_ones_are_equally_likely() -> None:
    n = 30_000
    truths = torch.tensor([True, False, False, True, False, False]).expand(n, 6)
    drawn = sample_wrong_labels(torch.rand(n, 6, generator=torch.Generator().manual_seed(2)), truths, 2)
    pairs = Counter(frozenset(row) for row in drawn.tolist())
    assert len(pairs) == comb(4, 2)
    assert chisquare(list(pairs.values())).pvalue > 0.01


def test_uniform_sampling_is_uniform() -> None:
    n = 40_000
    targets = torch.zeros(n, dtype=torch.int64)
    drawn = sample_wrong_labels(torch.rand(n, 6, generator=torch.Generator().manual_seed(0)), targets, 2)
    counts = torch.bincount(drawn.flatten(), minlength=6).double() / n
    torch.testing.assert_close(counts, torch.tensor([0, 0.4, 0.4, 0.4, 0.4, 0.4]).double(), atol=0.012, rtol=0)


def test_hard_sampling_follows_the_scores_without_replacement() -> None:
    """The share of each label equals that of drawing one after another in proportion to exp(score)."""
    weights = torch.tensor([0.0, 1.0, 2.0, 4.0])
    expected = torch.zeros(4)
    for first, second in permutations(range(1, 4), 2):
        chance = weights[first] / weights.sum() * weights[second] / (weights.sum() - weights[first])
        expected[first] += chance
        expected[second] += chance
    n = 60_000
    uniforms = torch.rand(n, 4, generator=torch.Generator().manual_seed(1))
    logits = weights.clamp_min(1e-9).log().expand(n, 4)
    drawn = sample_wrong_labels(uniforms, torch.zeros(n, dtype=torch.int64), 2, logits)
    shares = torch.bincount(drawn.flatten(), minlength=4) / n
    torch.testing.assert_close(shares, expected, atol=0.01, rtol=0)
