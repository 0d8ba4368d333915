import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labelwise.images.dataset import Split
from labelwise.images.split.divide import place_splits, reorder_rows


@settings(deadline=None)
@given(st.permutations(range(7)), st.sampled_from([(7, 1), (7, 33), (7, 100), (7, 3, 5, 4)]))
def test_rows_are_reordered_in_place(order: list[int], shape: tuple[int, ...]) -> None:
    rows = torch.arange(torch.tensor(shape).prod().item(), dtype=torch.int32).view(shape)
    expected, at = rows[order], rows.data_ptr()
    reorder_rows(rows, torch.tensor(order))
    assert torch.equal(rows, expected)
    assert rows.data_ptr() == at


@settings(deadline=None)
@given(st.permutations(range(9)), st.integers(1, 4), st.integers(5, 8))
def test_placed_splits_are_the_selected_ones(order: list[int], first: int, second: int) -> None:
    images, targets = torch.randn(9, 40), torch.arange(9)
    whole = Split(images=images, targets=targets, files=tuple("abcdefghi"), texts=tuple((str(i),) for i in range(9)))
    rows = np.array(order)
    parts = {"train": rows[:first], "val": rows[first:second], "test": rows[second:]}
    expected = {name: whole.select(part) for name, part in parts.items()}
    for name, split in place_splits(whole, parts).items():
        assert torch.equal(split.images, expected[name].images)
        assert split.targets.tolist() == parts[name].tolist()
        assert (split.files, split.texts) == (expected[name].files, expected[name].texts)
        assert split.images.untyped_storage().data_ptr() == images.untyped_storage().data_ptr()
