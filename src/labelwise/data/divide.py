"""Which rows go to which split where groups must stay together, and rows put in order without a second copy."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from labelwise.data.splits import Shares, split_off, stratified
from labelwise.errors import DataError

_COLUMN_BLOCKS = 32


def divide(targets: Tensor, groups: Sequence[str], shares: Shares, seed: int) -> dict[str, Tensor]:
    """Return the rows of each split, see ``splits.stratified``; the rows of a group go to the same one."""
    if not groups:
        return stratified(targets, shares, seed)
    units, unit_targets = _units(targets, groups)
    return {name: _rows(units, part) for name, part in stratified(unit_targets, shares, seed).items()}


def hold_out(targets: Tensor, groups: Sequence[str], share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the rows that stay and the rows held out, see ``splits.split_off``; groups are not torn apart."""
    if not groups:
        return split_off(targets, share, seed)
    units, unit_targets = _units(targets, groups)
    kept, held = split_off(unit_targets, share, seed)
    return _rows(units, kept), _rows(units, held)


def check_groups(groups: Sequence[str], splits: Sequence[str], name: str) -> None:
    """Raise an error where a group lies in more than one split."""
    home: dict[str, str] = {}
    for group, split in zip(groups, splits, strict=bool(groups and splits)):
        first = home.setdefault(group, split)
        if first != split:
            raise DataError(
                f'"{name}": group "{group}" lies in {first} and in {split} (column "group"). What belongs together must '
                "be in the same split, or test results are too good. Move its rows to one of them."
            )


def reorder_rows(images: Tensor, order: Tensor) -> None:
    """Put the rows ``[n, ...]`` of a contiguous tensor in this order, in place, a few columns at a time.

    No second copy of the data is made: the extra memory is a small share of it.
    """
    if torch.equal(order, torch.arange(len(images))):
        return
    flat = images.view(len(images), -1)
    for block in flat.split(max(1, flat.shape[1] // _COLUMN_BLOCKS), 1):
        block.copy_(block[order])


def _units(targets: Tensor, groups: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the group of each row as a number ``[n]``, and one target for each group ``[g]``.

    The target of a group is the one of its labels that fewest groups have, so that a rare label reaches train.
    """
    position = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    units = [position[group] for group in groups]
    held = sorted(set(zip(units, targets.tolist(), strict=True)))
    spread = Counter(target for _, target in held)
    rarest: dict[int, int] = {}
    for unit, target in sorted(held, key=lambda pair: (pair[0], spread[pair[1]], pair[1])):
        rarest.setdefault(unit, target)
    return torch.tensor(units), torch.tensor([rarest[unit] for unit in range(len(position))])


def _rows(units: Tensor, part: Tensor) -> Tensor:
    return torch.isin(units, part).nonzero()[:, 0]
