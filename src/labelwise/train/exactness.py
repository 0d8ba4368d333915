"""Bit-exact reproducibility: one thread, and deterministic algorithms."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exact(wanted: bool = True) -> Iterator[None]:
    """While open, results are independent of the number and order of threads.

    Sums of floating-point numbers depend on their order in the last digits, and threads divide a sum by how many they are. So one
    thread works, and on a GPU algorithms that are deterministic; where torch has none, it raises an error.

    >>> with lw.exact():
    ...     classifier = lw.fit(data)
    """
    if not wanted:
        yield
        return
    import torch
    from threadpoolctl import threadpool_limits

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # otherwise cuBLAS is not deterministic
    threads, algorithms = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(algorithms)
