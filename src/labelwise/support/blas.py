"""Linear algebra on one thread.

Threads of OpenBLAS wait for each other by spinning. On a machine with other work to do, two threads took ten times as long as one for
the eigenvectors of 1280 x 1280 numbers (9 s, and 0.9 s), and twice the processor time for products; and results depend on their number.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

P = ParamSpec("P")
R = TypeVar("R")


def on_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose linear algebra runs on one thread."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with threadpool_limits(1, "blas"):
            return function(*args, **kwargs)

    return limited
