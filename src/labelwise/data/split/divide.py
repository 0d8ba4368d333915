"""Rows divided into splits: as the data say, else by shares; and put in place without a second copy of the images."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from labelwise.data.dataset import SPLITS, Split
from labelwise.data.split.splits import Shares, grouped, split_off, stratified
from labelwise.errors import DataError

_VAL_SHARE = 0.1
_COLUMN_BLOCKS = 32


def split_rows(
    name: str, targets: Tensor, splits: Sequence[str], groups: Sequence[str], shares: Shares, seed: int
) -> dict[str, Tensor]:
    """Return the rows of each split there is, in the order of ``SPLITS``.

    Args:
        name: of the data, for errors.
        targets: the class of each row ``[n]``.
        splits: the split of each row as the data say, or nothing: then ``shares`` divide each class.
        groups: what each row belongs to, never divided, or nothing.
        shares: how much each split gets.
        seed: of the division.
    """
    if not splits:
        return _grouped(name, groups, targets, shares, seed) if groups else stratified(targets, shares, seed)
    _check_groups(name, groups, splits)
    parts = {split: torch.tensor([i for i, s in enumerate(splits) if s == split]) for split in set(splits)}
    if "train" in parts and "val" not in parts:  # data to test on alone have neither
        train = parts["train"]
        own = [groups[i] for i in train.tolist()] if groups else ()
        parts |= {split: train[rows] for split, rows in _with_val(name, targets[train], own, seed).items()}
    return {split: parts[split] for split in SPLITS if split in parts}


def _with_val(name: str, targets: Tensor, groups: Sequence[str], seed: int) -> dict[str, Tensor]:
    """Return the rows of train and val, a tenth, of training rows; no group is divided."""
    if groups:
        return _grouped(name, groups, targets, Shares(train=1 - _VAL_SHARE, val=_VAL_SHARE, test=0), seed)
    kept, held = split_off(targets, _VAL_SHARE, seed)
    return {"train": kept, "val": held}


def place_splits(whole: Split, parts: Mapping[str, Tensor]) -> dict[str, Split]:
    """Return the splits as views of the images, which are put in their order in place: large data are held once."""
    reorder_rows(whole.images, torch.cat(list(parts.values())))
    images = torch.split(whole.images, [len(part) for part in parts.values()])
    about = replace(whole, images=torch.zeros(len(whole), 1))
    return {
        split: replace(about.select(part), images=held)
        for (split, part), held in zip(parts.items(), images, strict=True)
    }


def joined_images(parts: Sequence[Tensor]) -> Tensor:
    """Return the rows of all parts ``[n, ...]``: a view where they lie one after another, as ``place_splits`` leaves them."""
    first = parts[0]
    end, home = first.data_ptr(), first.untyped_storage().data_ptr()
    for part in parts:
        if not part.is_contiguous() or part.data_ptr() != end or part.untyped_storage().data_ptr() != home:
            return torch.cat(list(parts))
        end += part.nbytes
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())


def reorder_rows(images: Tensor, order: Tensor) -> None:
    """Put the rows ``[n, ...]`` of a contiguous tensor in this order, in place, a few columns at a time.

    No second copy of the data is made: the extra memory is a small share of it.
    """
    if torch.equal(order, torch.arange(len(images))):
        return
    flat = images.view(len(images), -1)
    for block in torch.split(flat, max(1, flat.shape[1] // _COLUMN_BLOCKS), 1):
        block.copy_(block[order])


def _grouped(name: str, groups: Sequence[str], targets: Tensor, shares: Shares, seed: int) -> dict[str, Tensor]:
    try:
        return grouped(groups, targets, shares, seed)
    except DataError as error:
        raise DataError(
            f'"{name}": {error} Data to test on alone need no division: say test in the column "split".'
        ) from None


def _check_groups(name: str, groups: Sequence[str], splits: Sequence[str]) -> None:
    """Raise an error where a group lies in more than one split; a blank is no group."""
    home: dict[str, str] = {}
    for group, split in zip(groups, splits, strict=False):
        first = home.setdefault(group, split)
        if group and first != split:
            raise DataError(
                f'"{name}": group "{group}" lies in {first} and in {split}. What belongs together must be in the same '
                "split, or test results are too good. Move it to one of them."
            )
