from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labelwise.images.dataset import Array
from labelwise.images.split.make import (
    Shares,
    divide_groups,
    hold_out_domain,
    leave_one_domain_out,
    split_off,
    stratify,
    zero_shot,
)
from labelwise.support.errors import DataError, UsageError

TARGETS = st.lists(st.integers(-1, 5), max_size=120).map(lambda rows: np.array(rows, np.int64))
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


def count(targets: Array, rows: Array, target: int) -> int:
    return sum(int(targets[i]) == target for i in rows.tolist())


@given(TARGETS, SHARES, st.integers(0, 2**31))
def test_stratified_is_complete_proportional_and_repeatable(targets: Array, shares: Shares, seed: int) -> None:
    parts = stratify(targets, shares, seed)
    assert list(parts) == [name for name in ("train", "val", "test") if getattr(shares, name) > 0]
    assert sorted(i for rows in parts.values() for i in rows.tolist()) == list(range(len(targets)))
    again = stratify(targets, shares, seed)
    for name, rows in parts.items():
        assert rows.tolist() == sorted(rows.tolist()) == again[name].tolist()
    for target in set(targets.tolist()):
        size = count(targets, np.arange(len(targets)), target)
        found = {name: count(targets, rows, target) for name, rows in parts.items()}
        assert found["train"] >= 1
        if size >= len(parts):
            assert min(found.values()) >= 1
        forced = size <= len(parts) or any(size * getattr(shares, name) < 1 for name in parts)
        for name, images in found.items():
            assert abs(images - size * getattr(shares, name)) < (2 if forced else 1 + 1e-9)


@given(TARGETS, st.floats(0.01, 0.99), st.integers(0, 2**31))
def test_split_off_holds_out_its_share_of_every_class(targets: Array, share: float, seed: int) -> None:
    kept, held = split_off(targets, share, seed)
    assert sorted(kept.tolist() + held.tolist()) == list(range(len(targets)))
    assert held.tolist() == split_off(targets, share, seed)[1].tolist()
    for target in set(targets.tolist()):
        staying, out = count(targets, kept, target), count(targets, held, target)
        assert staying >= 1
        assert (out >= 1) == (staying + out >= 2)
        assert abs(out - (staying + out) * share) <= 1


def test_small_classes_go_to_train_then_test() -> None:
    targets = np.array([0, 1, 1, 2, 2, 2])
    parts = stratify(targets, Shares(), 0)
    found = {name: sorted(targets[rows].tolist()) for name, rows in parts.items()}
    assert found == {"train": [0, 1, 2], "val": [2], "test": [1, 2]}


def test_ten_of_a_class_are_seven_one_two() -> None:
    parts = stratify(torch.zeros(10, dtype=torch.int64), Shares(), 3)
    assert {name: len(rows) for name, rows in parts.items()} == {"train": 7, "val": 1, "test": 2}


def test_another_seed_gives_another_split() -> None:
    targets = torch.zeros(100, dtype=torch.int64)
    assert stratify(targets, Shares(), 0)["test"].tolist() != stratify(targets, Shares(), 1)["test"].tolist()


@pytest.mark.parametrize(
    "given_shares", [(0.5, 0.1, 0.1), (1.2, -0.1, -0.1), (0.0, 0.5, 0.5), (float("nan"), 0.5, 0.5)]
)
def test_shares_that_are_not_shares_are_refused(given_shares: tuple[float, float, float]) -> None:
    train, val, test = given_shares
    with pytest.raises(UsageError, match="must sum to 1, and train must get some; given train="):
        Shares(train=train, val=val, test=test)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_share_to_hold_out_must_lie_between_zero_and_one(share: float) -> None:
    with pytest.raises(UsageError, match="must be between 0 and 1; given"):
        split_off(np.array([0, 1]), share, 0)


@pytest.mark.parametrize("targets", [torch.zeros(2, 2, dtype=torch.int64), torch.zeros(3)])
def test_targets_must_be_whole_numbers_in_a_row(targets: Array) -> None:
    with pytest.raises(UsageError, match=r"Targets must be whole numbers \[n\]; given"):
        stratify(targets, Shares(), 0)


# Folds


# Domains


def test_a_held_out_domain_leaves_validation_images_of_each_label_and_domain() -> None:
    targets, domains = np.arange(240) % 2, ["day", "dusk", "night"] * 80
    parts = hold_out_domain(targets, domains, "dusk", 0)
    assert {domains[row] for row in parts["test"].tolist()} == {"dusk"}
    held = Counter((domains[row], int(targets[row])) for row in parts["val"].tolist())
    assert held == {(domain, target): 4 for domain in ("day", "night") for target in (0, 1)}
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(240))


def test_one_domain_is_left_out() -> None:
    parts = leave_one_domain_out(["sketch", "photo", "art", "photo"], "photo")
    assert {name: rows.tolist() for name, rows in parts.items()} == {"train": [0, 2], "test": [1, 3]}


@pytest.mark.parametrize(
    ("domains", "error", "message"),
    [
        (["photo", "art"], UsageError, 'No domain "photos". Did you mean "photo"\\? Domains: art, photo.'),
        ([], UsageError, 'No domain "photos". Domains: none'),
        (["photos", "photos"], DataError, "nothing is left to train on"),
    ],
)
def test_a_domain_that_cannot_be_left_out(domains: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        leave_one_domain_out(domains, "photos")


# Groups

GROUPED = st.lists(st.tuples(st.sampled_from(["", *"abcdefgh"]), st.integers(-1, 3)), max_size=60)


@given(GROUPED, SHARES, st.integers(0, 99))
def test_groups_stay_together(rows: list[tuple[str, int]], shares: Shares, seed: int) -> None:
    groups, targets = [group for group, _ in rows], np.array([target for _, target in rows], np.int64)
    number = len(set(groups) - {""}) + groups.count("")
    wanted = [name for name in ("train", "val", "test") if getattr(shares, name) > 0]
    if number < len(wanted):
        with pytest.raises(DataError, match=f"There are {number} groups for {len(wanted)} splits"):
            divide_groups(groups, targets, shares, seed)
        return
    parts = divide_groups(groups, targets, shares, seed)
    assert list(parts) == wanted
    assert sorted(i for part in parts.values() for i in part.tolist()) == list(range(len(rows)))
    assert min(len(part) for part in parts.values()) > 0
    homes = [{groups[i] for i in part.tolist()} - {""} for part in parts.values()]
    assert sum(map(len, homes)) == len(set(groups) - {""})
    again = divide_groups(groups, targets, shares, seed)
    assert all(part.tolist() == sorted(part.tolist()) == again[name].tolist() for name, part in parts.items())


def test_groups_of_one_class_each_still_give_every_split_its_share_of_every_class() -> None:
    groups = [f"{target}-{group}" for target in range(4) for group in range(10) for _ in range(5)]
    targets = np.array([target for target in range(4) for _ in range(50)])
    parts = divide_groups(groups, targets, Shares(), 3)
    found = {name: [count(targets, rows, target) for target in range(4)] for name, rows in parts.items()}
    assert found == {"train": [35] * 4, "val": [5] * 4, "test": [10] * 4}


def test_no_single_move_of_a_group_brings_classes_nearer_to_their_shares() -> None:
    made = torch.Generator().manual_seed(0)
    member = torch.randint(0, 25, (300,), generator=made)
    targets = (member + torch.randint(0, 3, (300,), generator=made)) % 5
    shares = Shares(train=0.6, val=0.2, test=0.2)
    groups = [f"group {i}" for i in member.tolist()]
    parts = divide_groups(groups, targets, shares, 0)
    home = torch.empty(300, dtype=torch.int64)
    for i, name in enumerate(("train", "val", "test")):
        home[torch.from_numpy(parts[name])] = i

    def distance(home: torch.Tensor) -> float:
        total = 0.0
        for i, share in enumerate((0.6, 0.2, 0.2)):
            for target in range(5):
                wanted = share * float((targets == target).sum())
                total += (float(((targets == target) & (home == i)).sum()) - wanted) ** 2 / wanted
        return total

    for group in range(25):
        for split in range(3):
            assert distance(torch.where(member == group, split, home)) >= distance(home) - 1e-9


def test_another_seed_groups_differently_and_lengths_must_agree() -> None:
    groups, targets = [str(i) for i in range(100)], torch.zeros(100, dtype=torch.int64)
    assert (
        divide_groups(groups, targets, Shares(), 0)["test"].tolist()
        != divide_groups(groups, targets, Shares(), 1)["test"].tolist()
    )
    with pytest.raises(UsageError, match="There are 100 images but 99 groups"):
        divide_groups(groups[1:], targets, Shares(), 0)


# Zero-shot

NAMES = tuple("abcdefgh")
PARTS = ("train", "val_seen", "val_unseen", "test_seen", "test_unseen")


@given(
    st.lists(st.integers(-1, 7), max_size=120).map(lambda rows: np.array(rows, np.int64)),
    st.sampled_from([0.0, 0.1, 0.25]),
    st.sampled_from([0.1, 0.3, ("b",), ("g", "b")]),
    st.integers(0, 99),
)
def test_zero_shot_keeps_classes_apart(targets: Array, held: float, unseen: float | tuple[str, ...], seed: int) -> None:
    targets = np.concatenate([targets, np.arange(7)])
    present = {NAMES[i] for i in targets.tolist() if i >= 0}
    parts = zero_shot(targets, NAMES, held, unseen, seed=seed)
    assert tuple(parts) == PARTS
    names = {part: {NAMES[i] for i in targets[rows].tolist()} for part, rows in parts.items()}
    assert sorted([*names["train"], *names["val_unseen"], *names["test_unseen"]]) == sorted(present)
    assert len(names["val_unseen"]) == (max(1, round(held * len(present))) if held else 0)
    if isinstance(unseen, tuple):
        assert names["test_unseen"] == set(unseen)
    else:
        assert len(names["test_unseen"]) == max(1, round(unseen * len(present)))
    assert names["val_seen"] | names["test_seen"] <= names["train"]
    every = sorted(i for rows in parts.values() for i in rows.tolist())
    assert every == [i for i, target in enumerate(targets.tolist()) if target >= 0]
    again = zero_shot(targets, NAMES, held, unseen, seed=seed)
    assert all(parts[part].tolist() == again[part].tolist() for part in PARTS)


def test_zero_shot_leaves_64_percent_of_seen_classes_to_train_on() -> None:
    parts = zero_shot(np.arange(1000) % 10, [f"class {i}" for i in range(10)], 0.3, 0.2)
    assert [len(parts[part]) for part in PARTS] == [320, 80, 300, 100, 200]
    other = zero_shot(np.arange(1000) % 10, [f"class {i}" for i in range(10)], 0.3, 0.2, seed=1)
    assert parts["test_unseen"].tolist() != other["test_unseen"].tolist()


@pytest.mark.parametrize(
    ("held", "unseen", "message"),
    [
        (0.2, ("z",), 'Class "z" cannot be unseen: it has no images'),
        (0.2, 1.0, "The share of unseen classes must be at least 0 and below 1; given 1.0"),
        (-0.1, 0.2, "The share of held-out classes must be at least 0 and below 1; given -0.1"),
        (0.2, 0.0, "At least two to train on and one unseen are needed"),
        (0.5, ("c",), "1 are left to train on, 2 are held out and 1 unseen"),
    ],
)
def test_zero_shot_refuses(held: float, unseen: float | tuple[str, ...], message: str) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        zero_shot(np.arange(40) % 4, ["a", "b", "c", "d", "z"], held, unseen)
