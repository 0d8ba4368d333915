import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from labelwise.data.splits import Shares, split_off, stratified
from labelwise.errors import UsageError

TARGETS = st.lists(st.integers(-1, 5), max_size=120).map(lambda rows: torch.tensor(rows, dtype=torch.int64))
SHARES = st.sampled_from(
    [
        Shares(),
        Shares(train=0.34, val=0.33, test=0.33),
        Shares(train=0.1, val=0.6, test=0.3),
        Shares(train=0.98, val=0.01, test=0.01),
        Shares(train=0.8, val=0.0, test=0.2),
        Shares(train=1.0, val=0.0, test=0.0),
    ]
)


def count(targets: Tensor, rows: Tensor, target: int) -> int:
    return sum(int(targets[i]) == target for i in rows.tolist())


@given(TARGETS, SHARES, st.integers(0, 2**31))
@settings(max_examples=200, deadline=None)
def test_stratified_is_complete_proportional_and_repeatable(targets: Tensor, shares: Shares, seed: int) -> None:
    parts = stratified(targets, shares, seed)
    assert list(parts) == [name for name in ("train", "val", "test") if getattr(shares, name) > 0]
    assert sorted(i for rows in parts.values() for i in rows.tolist()) == list(range(len(targets)))
    again = stratified(targets, shares, seed)
    for name, rows in parts.items():
        assert rows.tolist() == sorted(rows.tolist()) == again[name].tolist()
    for target in set(targets.tolist()):
        size = count(targets, torch.arange(len(targets)), target)
        found = {name: count(targets, rows, target) for name, rows in parts.items()}
        assert found["train"] >= 1
        if size >= len(parts):
            assert min(found.values()) >= 1
        forced = size <= len(parts) or any(size * getattr(shares, name) < 1 for name in parts)
        for name, images in found.items():
            assert abs(images - size * getattr(shares, name)) < (2 if forced else 1 + 1e-9)


@given(TARGETS, st.floats(0.01, 0.99), st.integers(0, 2**31))
@settings(max_examples=100, deadline=None)
def test_split_off_holds_out_its_share_of_every_class(targets: Tensor, share: float, seed: int) -> None:
    kept, held = split_off(targets, share, seed)
    assert sorted(kept.tolist() + held.tolist()) == list(range(len(targets)))
    assert held.tolist() == split_off(targets, share, seed)[1].tolist()
    for target in set(targets.tolist()):
        staying, out = count(targets, kept, target), count(targets, held, target)
        assert staying >= 1
        assert (out >= 1) == (staying + out >= 2)
        assert abs(out - (staying + out) * share) <= 1


def test_small_classes_go_to_train_then_test() -> None:
    targets = torch.tensor([0, 1, 1, 2, 2, 2])
    parts = stratified(targets, Shares(), 0)
    found = {name: sorted(targets[rows].tolist()) for name, rows in parts.items()}
    assert found == {"train": [0, 1, 2], "val": [2], "test": [1, 2]}


def test_ten_of_a_class_are_seven_one_two() -> None:
    parts = stratified(torch.zeros(10, dtype=torch.int64), Shares(), 3)
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 7, "val": 1, "test": 2}


def test_another_seed_gives_another_split() -> None:
    targets = torch.zeros(100, dtype=torch.int64)
    assert stratified(targets, Shares(), 0)["test"].tolist() != stratified(targets, Shares(), 1)["test"].tolist()


@pytest.mark.parametrize(
    "given_shares", [(0.5, 0.1, 0.1), (1.2, -0.1, -0.1), (0.0, 0.5, 0.5), (float("nan"), 0.5, 0.5)]
)
def test_shares_that_are_not_shares_are_refused(given_shares: tuple[float, float, float]) -> None:
    train, val, test = given_shares
    with pytest.raises(UsageError, match="must sum to 1, and train must get some; given train="):
        Shares(train=train, val=val, test=test)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_share_to_hold_out_must_lie_between_zero_and_one(share: float) -> None:
    with pytest.raises(UsageError, match="must lie between 0 and 1; given"):
        split_off(torch.tensor([0, 1]), share, 0)


@pytest.mark.parametrize("targets", [torch.zeros(2, 2, dtype=torch.int64), torch.zeros(3)])
def test_targets_must_be_whole_numbers_in_a_row(targets: Tensor) -> None:
    with pytest.raises(UsageError, match=r"Targets must be whole numbers \[n\]; given"):
        stratified(targets, Shares(), 0)
