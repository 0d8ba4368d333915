"""Rows in groups, without padding."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def segment_mean(values: ArrayLike, groups: ArrayLike, count: int) -> NDArray[Any]:
    """Return the mean row of each group ``[count, e]``, summed in double precision; zeros for an empty group.

    From values ``[m, e]`` and the group of each ``[m]``, in any order.
    """
    x, own = np.asarray(values), np.asarray(groups)
    order = own.argsort(kind="stable")
    sizes = np.bincount(own, minlength=count)
    some = np.flatnonzero(sizes)
    means = np.zeros((count, x.shape[1]))
    if len(some):
        starts = (sizes.cumsum() - sizes)[some]
        means[some] = np.add.reduceat(x[order], starts, axis=0, dtype=np.float64) / sizes[some, None]
    return means.astype(np.result_type(x.dtype, np.float32), copy=False)


def connected_groups(n: int, first: ArrayLike, second: ArrayLike) -> NDArray[Any]:
    """Return the group of each of n rows ``[n]``, numbered in the order of rows; the rows of each pair ``[p]`` share one.

    By hand: what scipy has for it takes longer to import than a fit of a thousand images.
    """
    one, other = np.asarray(first), np.asarray(second)
    lowest = np.arange(n)  # the lowest known row of each one's group
    while not np.array_equal(a := lowest[one], b := lowest[other]):
        low = np.minimum(a, b)
        np.minimum.at(lowest, a, low)
        np.minimum.at(lowest, b, low)
        while not np.array_equal(lowest, lowest[lowest]):
            lowest = lowest[lowest]
    return np.unique(lowest, return_inverse=True)[1]
