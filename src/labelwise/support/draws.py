"""Seeded random draws in NumPy, the same as those of ``torch.Generator().manual_seed(seed)`` on the CPU.

Both run the Mersenne Twister, so what is drawn here without torch equals what torch drew for the same seed.
"""

import numpy as np
from numpy.typing import NDArray

WORD = 2**32
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

    def _words(self, count: int) -> NDArray[np.int64]:
        return self._source.randint(0, WORD, count, np.uint32).astype(np.int64)
