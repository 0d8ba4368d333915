from itertools import permutations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labelwise.ops.negatives import sample_wrong_labels


@settings(max_examples=60, deadline=None)
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
