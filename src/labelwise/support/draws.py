"""Seeded random draws in NumPy, the same as those of ``torch.Generator().manual_seed(seed)`` on the CPU.

Both run the Mersenne Twister, so what is drawn here without torch equals what torch drew for the same seed.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

WORD = 2**32
BLOCK = 16  # normal numbers that torch makes together
WIDE = 2**28  # from here on torch draws two words for an integer


class Draws:
    """A stream of draws; the same seed gives the same stream.

    >>> Draws(0).permutation(5)
    array([4, 0, 1, 3, 2])
    """

    def __init__(self, seed: int) -> None:
        self._source = np.random.RandomState(seed % WORD)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """Return the numbers from 0 to n - 1 in random order, as ``torch.randperm`` does."""
        order = list(range(n))
        steps = self._words(max(n - 1, 0)) % np.arange(n, 1, -1) if n > 1 else ()
        for here, step in enumerate(map(int, steps)):
            order[here], order[here + step] = order[here + step], order[here]
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
        whole = count - count % BLOCK
        flat[:whole] = _box_muller(flat[:whole].reshape(-1, BLOCK)).ravel()
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
    """Return one seed in [0, 2**63) made of several whole numbers."""
    digest = blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
