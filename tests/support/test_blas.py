"""Linear algebra on one thread."""

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from labelwise.support.processes import on_one_thread


def threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_threads_are_one_inside_and_as_before_outside() -> None:
    np.linalg.eigh(np.eye(3))
    with threadpool_limits(2, "blas"):
        assert on_one_thread(threads)() == {1}
        assert threads() == {2}
