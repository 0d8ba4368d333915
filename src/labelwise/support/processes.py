"""Several processes that share one piece of work: which rows each takes, and how they exchange results.

Rows are shared only inside ``split_rows_across``, which all processes enter and leave together. Outside, a process has all rows.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
ROWS = 2**16  # of a table that are summed in one message


@dataclass(frozen=True)
class ProcessGroup:
    """This process among those that share the work."""

    rank: int = 0
    world: int = 1

    def own(self, total: int) -> slice:
        """Return which of so many rows are this process's, possibly none."""
        return slice(self.rank * total // self.world, (self.rank + 1) * total // self.world)


_GROUP: ContextVar[ProcessGroup | None] = ContextVar("group", default=None)


@contextmanager
def split_rows_across(rank: int, world: int) -> Iterator[None]:
    """Share work on rows among so many processes while open."""
    token = _GROUP.set(ProcessGroup(rank, world))
    try:
        yield
    finally:
        _GROUP.reset(token)


def current_group() -> ProcessGroup:
    """Return this process among those that share the work, by default alone."""
    return _GROUP.get() or ProcessGroup()


def sum_over_processes(table: "Tensor") -> "Tensor":
    """Return a table ``[n, ...]`` summed in place over the processes that share the work."""
    if current_group().world > 1:
        import torch.distributed as dist

        for start in range(0, len(table), ROWS):
            dist.all_reduce(table[start : start + ROWS])
    return table


def all_gather(value: T) -> list[T]:
    """Return the value of each process that shares the work."""
    if current_group().world == 1:
        return [value]
    import torch.distributed as dist

    values: list[T | None] = [None] * current_group().world
    dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]


def is_main_process() -> bool:
    """Return whether this process is the one that writes files and talks to the user."""
    return int(os.environ.get("RANK", "0")) == 0


def is_restarted() -> bool:
    """Return whether torchrun started the processes again because one of them ended (``--max-restarts``)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
