"""Rows of a tensor: added in time that does not grow with it, taken out in one copy, drawn at random."""

from threading import Lock
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

LEAST = 64  # rows from which on room is kept for more
_ROOM = "_labelwise_room"


class _Room:
    """Memory with more rows than are in use; who is first to add rows behind the last one in use may write them there."""

    def __init__(self, tensor: Tensor, rows: Tensor) -> None:
        self.used, self.lock = len(tensor) + len(rows), Lock()
        self.memory = tensor.new_empty((self.used + self.used // 2, *tensor.shape[1:]))
        self.memory[: len(tensor)], self.memory[len(tensor) : self.used] = tensor, rows

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Return what a copy has in its place: nothing."""
        return type(None), ()

    def claim(self, begin: int, end: int) -> bool:
        """Return whether the rows from ``begin`` to ``end`` are free and now the caller's."""
        with self.lock:
            free = self.used == begin and end <= len(self.memory)
            self.used = end if free else self.used
        return free


def as_rows(array: npt.NDArray[Any]) -> Tensor:
    """Return rows that were stored as an array as those of a classifier."""
    return torch.tensor(array)


def append_rows(tensor: Tensor, rows: Tensor | npt.NDArray[Any]) -> Tensor:
    """Return both ``[n + m, ...]``, as ``torch.cat`` does, of the first one's kind and device; neither changes.

    A tensor that came from here has room behind it, so that its rows are not copied again each time.
    """
    rows = rows if isinstance(rows, Tensor) else as_rows(rows)
    begin, end = len(tensor), len(tensor) + len(rows)
    if tensor.requires_grad or end < LEAST:
        return torch.cat([tensor, rows.to(tensor)])
    with torch.no_grad():
        room: _Room | None = getattr(tensor, _ROOM, None)
        if room is not None and room.claim(begin, end):
            room.memory[begin:end] = rows
        else:
            room = _Room(tensor, rows.to(tensor))
        longer = room.memory[:end]
    setattr(longer, _ROOM, room)
    return longer


def drop_rows(tensor: Tensor, begin: int, end: int) -> Tensor:
    """Return a tensor without the rows from ``begin`` to ``end``, with room behind it for rows to come; it does not change."""
    before, behind = tensor[:begin], tensor[end:]
    if tensor.requires_grad or len(before) + len(behind) < LEAST:
        return torch.cat([before, behind])
    with torch.no_grad():
        room = _Room(before, behind)
        shorter = room.memory[: room.used]
    setattr(shorter, _ROOM, room)
    return shorter


def drawn_rows(count: int, most: int, seed: int = 0) -> Tensor:
    """Return at most so many rows of ``count``, drawn at random, in their order ``[m]``."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most].sort().values
