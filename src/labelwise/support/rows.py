"""Operations on rows of arrays: amortised append, removal, random draws, means of groups."""

from hashlib import blake2b
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

WORD = 2**32
BLOCK = 16  # normal numbers that torch makes together
SHORTEST = 1e-12  # what rows are divided by at least
WIDE = 2**28  # from here on torch draws two words for an integer


class Draws:
    """A reproducible random stream, compatible with torch; the same seed gives the same draws.

    >>> Draws(0).permutation(5)
    array([4, 0, 1, 3, 2])
    """

    def __init__(self, seed: int) -> None:
        self._source = np.random.RandomState(seed % WORD)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return the numbers from 0 to n - 1 in random order, as ``torch.randperm`` does."""
        order = list(range(n))
        steps = self._words(max(n - 1, 0)) % np.arange(n, 1, -1) if n > 1 else ()
        for place, step in enumerate(map(int, steps)):
            order[place], order[place + step] = order[place + step], order[place]
        return np.array(order, np.int64)

    def integers(self, high: int, count: int) -> NDArray[np.int64]:
        """Return ``count`` numbers from 0 to ``high`` - 1, as ``torch.randint`` does."""
        if high < WIDE:
            return self._words(count) % high
        words = self._words(2 * count).astype(np.uint64).reshape(count, 2)
        return ((words[:, 0] << np.uint64(32) | words[:, 1]) % np.uint64(high)).astype(np.int64)

    def uniform(self, *shape: int) -> NDArray[np.float32]:
        """Return numbers from 0 to 1 of a shape, as ``torch.rand`` does."""
        words = self._words(int(np.prod(shape))) & (2**24 - 1)
        return (words.astype(np.float32) / np.float32(2**24)).reshape(shape)

    def normal(self, *shape: int) -> NDArray[np.float32]:
        """Return standard normal numbers of a shape, as ``torch.randn`` does to the last digits."""
        count = int(np.prod(shape))
        if count < BLOCK:
            return self._pairs(count).astype(np.float32).reshape(shape)
        flat = self.uniform(count)
        full_blocks = count - count % BLOCK
        flat[:full_blocks] = _box_muller(flat[:full_blocks].reshape(-1, BLOCK)).ravel()
        if count % BLOCK:
            flat[-BLOCK:] = _box_muller(self.uniform(1, BLOCK))[0]
        return flat.reshape(shape)

    def _pairs(self, count: int) -> NDArray[np.float64]:
        """Return few normal numbers, drawn two at a time in double precision."""
        words = self._words(4 * -(-count // 2)).astype(np.uint64).reshape(-1, 2, 2)
        wide = (words[..., 0] << np.uint64(32) | words[..., 1]) & np.uint64(2**53 - 1)
        angles, sizes = (wide.astype(np.float64) / 2.0**53).T
        radii = np.sqrt(-2 * np.log1p(-sizes))
        pairs = np.stack([radii * np.cos(2 * np.pi * angles), radii * np.sin(2 * np.pi * angles)], 1)
        return pairs.flatten()[:count]

    def _words(self, count: int) -> NDArray[np.int64]:
        return self._source.randint(0, WORD, count, np.uint32).astype(np.int64)


def _box_muller(uniform: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return as many normal numbers as uniform ones ``[n, BLOCK]``: radii from the first half of each row, angles from the second."""
    half = BLOCK // 2
    radii = np.sqrt(-2 * np.log(1 - uniform[:, :half]))
    angles = np.float32(2 * np.pi) * uniform[:, half:]
    return np.concatenate([radii * np.cos(angles), radii * np.sin(angles)], 1)


def mix(*numbers: int) -> int:
    """Mix several integers into a seed in [0, 2**63)."""
    digest = blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


LEAST = 64  # rows from which on spare room is reserved


class _Memory:
    """Memory with spare rows. It is the base of the base of its arrays.

    Only the first append after the last used row writes in place, so no array ever changes.
    """

    def __init__(self, first: NDArray[Any], second: NDArray[Any]) -> None:
        self.used, self.lock = len(first) + len(second), Lock()
        self.rows = np.empty((self.used + self.used // 2, *first.shape[1:]), first.dtype)
        self.rows[: len(first)], self.rows[len(first) : self.used] = first, second

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.rows.__array_interface__

    @classmethod
    def of(cls, array: NDArray[Any]) -> "_Memory | None":
        """Return the memory of an array that is its first rows, or None."""
        memory = getattr(array.base, "base", None)
        if not isinstance(memory, cls):
            return None
        own, theirs = array.__array_interface__, memory.rows[: len(array)].__array_interface__
        return memory if own == theirs else None

    def append(self, begin: int, rows: NDArray[Any]) -> bool:
        """Write rows after the first ``begin`` ones; return False if these places are taken or there is no room."""
        with self.lock:
            end = begin + len(rows)
            if self.used != begin or end > len(self.rows):
                return False
            self.rows[begin:end], self.used = rows, end
            return True

    def first(self, count: int) -> NDArray[Any]:
        """Return the first rows, as an array that keeps this memory."""
        return np.asarray(self)[:count]


def append_rows(array: NDArray[Any], rows: ArrayLike) -> NDArray[Any]:
    """Concatenate arrays to ``[n + m, ...]``, in the dtype of the first; neither changes.

    The result has spare room, so repeated appends do not copy its rows each time.
    """
    added_rows = np.asarray(rows, array.dtype)
    end = len(array) + len(added_rows)
    if end < LEAST:
        return np.concatenate([array, added_rows])
    memory = _Memory.of(array)
    if memory is None or not memory.append(len(array), added_rows):
        memory = _Memory(array, added_rows)
    return memory.first(end)


def drop_rows(array: NDArray[Any], begin: int, end: int) -> NDArray[Any]:
    """Return a copy without the rows from ``begin`` to ``end``, with spare room for appends."""
    before, behind = array[:begin], array[end:]
    count = len(before) + len(behind)
    return np.concatenate([before, behind]) if count < LEAST else _Memory(before, behind).first(count)


def draw_rows(count: int, most: int, seed: int = 0) -> NDArray[Any]:
    """Draw at most ``most`` of ``count`` rows at random; return them sorted ``[m]``."""
    return np.arange(count) if count <= most else np.sort(Draws(seed).permutation(count)[:most])


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

    Implemented here because importing scipy takes longer than a fit of a thousand images.
    """
    left, right = np.asarray(first), np.asarray(second)
    lowest = np.arange(n)  # the lowest known row of each one's group
    while not np.array_equal(a := lowest[left], b := lowest[right]):
        low = np.minimum(a, b)
        np.minimum.at(lowest, a, low)
        np.minimum.at(lowest, b, low)
        while not np.array_equal(lowest, lowest[lowest]):
            lowest = lowest[lowest]
    return np.unique(lowest, return_inverse=True)[1]


def as_frequent(values: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """Return as many values as there are, sorted, so that each occurs as often as its weight says."""
    order = values.argsort(kind="stable")
    ends = weights[order].cumsum()
    places = np.searchsorted(ends, (np.arange(len(values)) + 0.5) / len(values) * ends[-1])
    return np.asarray(values[order][np.minimum(places, len(values) - 1)])


def unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Scale rows ``[n, d]`` to unit length; zeros stay zeros."""
    unit: NDArray[Any] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), SHORTEST)
    return unit
