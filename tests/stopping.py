"""Stop training at a step, as a signal would."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from unittest.mock import patch


@contextmanager
def stopped_at(step: int) -> Iterator[None]:
    """While open, runs that keep checkpoints stop at this step, counted from 1 over all of them."""
    steps = count(1)
    with patch("labelwise.train.loop.any_process", lambda flag, device: next(steps) == step):
        yield
