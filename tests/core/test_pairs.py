from collections import Counter
from itertools import combinations

import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.core.pairs import draw_pairs


def unordered(rows: torch.Tensor) -> list[tuple[int, int]]:
    return sorted((min(pair), max(pair)) for pair in rows.tolist())


@given(st.lists(st.integers(-1, 3), max_size=12))
def test_all_pairs_where_there_are_few(targets: list[int]) -> None:
    found = draw_pairs(torch.tensor(targets, dtype=torch.int64), 1_000)
    every = [(i, j) for i, j in combinations(range(len(targets)), 2) if min(targets[i], targets[j]) >= 0]
    assert unordered(found.same) == [(i, j) for i, j in every if targets[i] == targets[j]]
    assert unordered(found.different) == [(i, j) for i, j in every if targets[i] != targets[j]]


def test_a_draw_is_even_and_seeded() -> None:
    targets = torch.tensor([0, 1, 0, 0, 2, -1, 1])
    found, again = draw_pairs(torch.cat([targets] * 30), 3_000, seed=1), draw_pairs(torch.cat([targets] * 30), 3_000, 1)
    assert torch.equal(found.same, again.same)
    assert torch.equal(found.different, again.different)
    assert not torch.equal(found.same, draw_pairs(torch.cat([targets] * 30), 3_000, seed=2).same)
    whole = torch.cat([targets] * 30)
    assert len(found.same) == len(found.different) == 3_000
    assert (whole[found.same[:, 0]] == whole[found.same[:, 1]]).all()
    assert (whole[found.different[:, 0]] != whole[found.different[:, 1]]).all()
    assert (found.same[:, 0] != found.same[:, 1]).all()
    # Labels have 90, 60 and 30 images, so 4005, 1770 and 435 same pairs, and 5400, 2700, 1800 different ones.
    shares = torch.bincount(whole[found.same[:, 0]]) / 3_000
    torch.testing.assert_close(shares, torch.tensor([4005, 1770, 435]) / 6210, atol=0.03, rtol=0)
    kinds = Counter(tuple(sorted(whole[pair].tolist())) for pair in found.different)
    drawn = torch.tensor([kinds[0, 1], kinds[0, 2], kinds[1, 2]]) / 3_000
    torch.testing.assert_close(drawn, torch.tensor([5400, 2700, 1800]) / 9900, atol=0.03, rtol=0)
