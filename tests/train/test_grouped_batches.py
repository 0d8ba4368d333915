"""Batches of groups: what a group is, that every image comes, the same for a seed, resumed and shared."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from labelwise.support.errors import UsageError
from labelwise.train.augment import Augment
from labelwise.train.batches import GroupedBatches, Shard
from labelwise.train.train_data import TensorSplit
from tests.epochs import batches_of


def split_of(counts: list[int], seed: int = 0) -> TensorSplit:
    """So many images of each label, mixed; an image's pixels are its row."""
    targets = torch.repeat_interleave(torch.arange(len(counts)) * 3, torch.tensor(counts))
    targets = targets[torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))]
    images = torch.arange(len(targets), dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2).contiguous()
    return TensorSplit(images=images, targets=targets)


def groups_of(targets: Tensor) -> list[tuple[int, int]]:
    """The label and the length of each stretch of one label."""
    labels, lengths = torch.unique_consecutive(targets, return_counts=True)
    return list(zip(labels.tolist(), lengths.tolist(), strict=True))


@given(
    counts=st.lists(st.integers(0, 13), min_size=1, max_size=6).filter(any),
    group=st.integers(1, 6),
    size=st.integers(1, 30),
    seed=st.integers(0, 1000),
)
def test_images_come_once_in_the_fewest_equal_groups(counts: list[int], group: int, size: int, seed: int) -> None:
    split = split_of(counts)
    batches = GroupedBatches(split=split, size=size, group=group)
    plan = batches.plan(seed)
    assert len(plan) == len(batches)
    rows = torch.cat(plan)
    assert len(rows) == len(set(rows.tolist()))
    pieces = [-(-count // group) for count in counts]
    step = max(2, size // group)
    assert len(batches) == max(1, sum(pieces) // step)
    if sum(pieces) <= step or sum(pieces) % step == 0:
        assert len(rows) == len(split)
    for label, (count, parts) in enumerate(zip(counts, pieces, strict=True)):
        for batch in plan:
            found = int((split.targets[batch] == 3 * label).sum())
            most, least = (-(-count // parts), count // parts) if parts else (0, 0)
            assert any(least * k <= found <= most * k for k in range(step + 1)), "a group was split"


def test_groups_stand_together_and_are_divided_anew() -> None:
    split = split_of([10, 12, 3, 1])
    batches = GroupedBatches(split=split, size=100)
    found = sorted(groups_of(split.targets[batches.plan(4)[0]]))
    joined = {label: sum(length for own, length in found if own == label) for label, _ in found}
    assert joined == {0: 10, 3: 12, 6: 3, 9: 1}
    spread = GroupedBatches(split=split, size=10)  # two groups a batch
    pairs: set[tuple[int, int]] = set()
    for seed in range(40):
        for batch in spread.plan(seed):
            assert all(length in (1, 3, 4, 5, 8, 10) for _, length in groups_of(split.targets[batch]))
            first = batch[split.targets[batch] == 0].tolist()
            pairs |= {(a, b) for a in first for b in first if a < b}
    assert len(pairs) == 45, "the same images always stand together"


def test_images_are_seen_equally_often() -> None:
    split = split_of([10, 11, 4, 1, 7])
    batches = GroupedBatches(split=split, size=15)
    seen = torch.zeros(len(split))
    for seed in range(600):
        for batch in batches.plan(seed):
            seen[batch] += 1
    share = seen / 600
    assert float(share.min()) > 0.7
    assert float(share.max() - share.min()) < 0.1


def test_an_epoch_is_the_same_for_a_seed_resumed_and_shared() -> None:
    split = split_of([12, 9, 20, 6])
    batches = GroupedBatches(split=split, size=15, augment=Augment(noise=0.1, flip=True))
    whole = list(batches_of(batches, 7))
    assert len(whole) == len(batches) > 2
    assert not torch.equal(whole[0].rows, next(iter(batches_of(batches, 8))).rows)
    for start in (0, 1, len(batches) - 1):
        again = list(batches_of(batches, 7, start))
        assert len(again) == len(whole) - start
        for one, other in zip(whole[start:], again, strict=True):
            assert torch.equal(one.rows, other.rows)
            assert torch.equal(one.images, other.images)
    for one, *parts in zip(whole, *(batches_of(batches, 7, 0, Shard(rank, 3)) for rank in range(3)), strict=True):
        for piece in ("rows", "targets", "images"):
            assert torch.equal(torch.cat([getattr(part, piece) for part in parts]), getattr(one, piece))
        assert torch.equal(one.targets, split.targets[one.rows])


def test_images_are_those_of_their_rows() -> None:
    split = split_of([7, 8])
    for batch in batches_of(GroupedBatches(split=split, size=10), 1):
        assert torch.equal((batch.images[:, 0, 0, 0] * 255).round().long(), batch.rows)


def test_wrong_sizes() -> None:
    with pytest.raises(UsageError, match="A group needs at least one image; given 0"):
        GroupedBatches(split=split_of([3]), size=4, group=0)
    with pytest.raises(UsageError, match="A batch needs"):
        GroupedBatches(split=split_of([3]), size=0)
    assert len(GroupedBatches(split=split_of([3]).select([]), size=4)) == 0
