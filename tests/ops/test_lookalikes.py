"""Copies of pictures are told from pictures that are merely alike."""

import pytest
import torch

from labelwise.ops.lookalikes import lookalike_groups


@pytest.mark.parametrize("size", [3, 8, 200])
def test_copies_are_together_and_hardly_anything_else(size: int) -> None:
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(300, size, generator=rng) + 3 * torch.eye(3, size).repeat(100, 1)
    targets = torch.arange(300) % 3
    copies = rows[:60] + 0.005 * torch.randn(60, size, generator=rng)
    groups = lookalike_groups(torch.cat([rows, copies]), torch.cat([targets, targets[:60]]))
    assert (groups[:60] == groups[300:]).all()
    assert len(set(groups[:300].tolist())) > 0.9 * 300


def test_a_copy_under_another_label_is_no_lookalike() -> None:
    rows = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))
    targets = torch.arange(40) % 2
    groups = lookalike_groups(torch.cat([rows, rows[:1]]), torch.cat([targets, 1 - targets[:1]]))
    assert groups[0] != groups[40]


def test_groups_that_are_known_stay_together() -> None:
    rows = torch.randn(40, 30, generator=torch.Generator().manual_seed(2))
    known = torch.arange(40) % 8
    groups = lookalike_groups(rows, torch.arange(40) % 2, known)
    assert len(set(groups.tolist())) == 8
    assert all(len(set(groups[known == group].tolist())) == 1 for group in range(8))
