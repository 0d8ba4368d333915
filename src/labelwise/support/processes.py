"""Several processes that do one piece of work: which rows are whose, and how results come together.

Rows are shared only inside ``together``, which all processes enter and leave alike: whoever asks outside has all rows.
"""

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
class Crowd:
    """This process among those that work together."""

    rank: int = 0
    world: int = 1

    def own(self, total: int) -> slice:
        """Return which of so many rows are this process's; of few it may be none."""
        return slice(self.rank * total // self.world, (self.rank + 1) * total // self.world)


_CROWD: ContextVar[Crowd | None] = ContextVar("crowd", default=None)


@contextmanager
def together(rank: int, world: int) -> Iterator[None]:
    """While open, work on rows is shared by so many processes, all of which are here."""
    token = _CROWD.set(Crowd(rank, world))
    try:
        yield
    finally:
        _CROWD.reset(token)


def crowd() -> Crowd:
    """Return this process among those that share the work; one alone where none do."""
    return _CROWD.get() or Crowd()


def total(table: "Tensor") -> "Tensor":
    """Return a table ``[n, ...]``, summed in place over the processes that share the work, some rows at a time."""
    if crowd().world > 1:
        import torch.distributed as dist

        for start in range(0, len(table), ROWS):
            dist.all_reduce(table[start : start + ROWS])
    return table


def of_each(value: T) -> list[T]:
    """Return the value of each process that shares the work."""
    if crowd().world == 1:
        return [value]
    import torch.distributed as dist

    values: list[T | None] = [None] * crowd().world
    dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]
