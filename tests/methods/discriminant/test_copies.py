"""Copies of pictures are told from pictures that are merely alike."""

import pytest
import torch

from labelwise.methods.discriminant import copies as lookalikes
from labelwise.methods.discriminant.copies import lookalike_groups, together


@pytest.mark.parametrize("size", [3, 8, 200])
def test_copies_are_together_and_hardly_anything_else(size: int) -> None:
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(300, size, generator=rng) + 3 * torch.eye(3, size).repeat(100, 1)
    targets = torch.arange(300) % 3
    copies = rows[:60] + 0.005 * torch.randn(60, size, generator=rng)
    groups = lookalike_groups(torch.cat([rows, copies]), torch.cat([targets, targets[:60]]))
    assert (groups[:60] == groups[300:]).all()
    assert len(set(groups[:300].tolist())) > 0.9 * 300


def test_a_narrow_mode_of_a_label_is_no_burst() -> None:
    """Sketches among photos: near each other beside the photos, yet as far apart as their own neighbours."""
    rng = torch.Generator().manual_seed(0)
    sketches, photos = 0.35 * torch.randn(60, 200, generator=rng), torch.randn(60, 200, generator=rng)
    rows = torch.cat([sketches, photos, sketches[:5] + 0.01])
    groups = lookalike_groups(rows, torch.zeros(125, dtype=torch.int64))
    assert (groups[:5] == groups[120:]).all()
    assert len(set(groups[:120].tolist())) == 120


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


def test_a_blank_group_is_none() -> None:
    rows = torch.randn(40, 30, generator=torch.Generator().manual_seed(3))
    groups = together(rows, torch.arange(40) % 2, ["burst", "burst", *[""] * 38])
    assert groups[0] == groups[1]
    assert len(set(groups.tolist())) == 39


def test_some_rows_say_in_how_many_directions_all_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = torch.randn(600, 8, generator=torch.Generator().manual_seed(3)) * torch.arange(1, 9)
    slow = float(inside.square().sum() ** 2 / (inside.T @ inside).square().sum())
    for most, near in ((600, 1e-5), (200, 0.15)):
        monkeypatch.setattr(lookalikes, "MOST_ROWS", most)
        assert lookalikes._directions(inside) == pytest.approx(slow, rel=near)


def test_of_many_of_a_label_those_side_by_side_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(3)
    rows = torch.randn(200, 30, generator=rng) * torch.linspace(3, 0.5, 30)
    rows = torch.cat([rows, rows[:40] + 0.002 * torch.randn(40, 30, generator=rng)])
    targets = torch.arange(40).repeat(6) % 2
    whole = lookalike_groups(rows, targets)
    sizes, compare = list[int](), torch.cdist

    def counted(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        sizes.append(len(one))
        return compare(one, other)

    monkeypatch.setattr(torch, "cdist", counted)
    monkeypatch.setattr(lookalikes, "MOST_COMPARED", 32)
    windows = lookalike_groups(rows, targets)
    assert max(sizes) == 32
    assert sum(sizes) < 3 * len(rows)  # not one pair of all
    assert (windows[:40] == windows[200:]).all()
    assert (whole[:40] == whole[200:]).all()
