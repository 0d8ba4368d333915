"""Spread answers over neighbours: local and global consistency in closed form (Zhou et al., NeurIPS 2003), a series of a few steps.

F = sum over steps t of a^t P^t Y, with P the row-normalised kernel of neighbours and Y the answers. F is linear in Y, so one more answer
adds to one column, and an answer that is undone is subtracted.
"""

import numpy as np
import scipy.sparse as sp

from labelwise.label.space import Floats, Ints, Space

NEAR = 10  # neighbours that an answer spreads to directly
STEPS, STAY = 12, 0.8  # steps of the series, and the decay from one to the next


class Spread:
    """The labels spread to each image ``[n, k]``."""

    def __init__(self, space: Space) -> None:
        n = len(space)
        near = min(NEAR, space.neighbours.shape[1])
        weights = space.kernel[:, :near] ** 2 + 1e-6
        weights = weights / weights.sum(1, keepdims=True)
        columns = space.neighbours[:, :near].ravel()
        self._steps = sp.csr_matrix((weights.ravel(), (np.repeat(np.arange(n), near), columns)), (n, n))
        self.values: Floats = np.zeros((n, 0), np.float32)

    def widen(self, labels: int) -> None:
        """Add columns for new labels."""
        missing = labels - self.values.shape[1]
        if missing > 0:
            self.values = np.concatenate([self.values, np.zeros((len(self.values), missing), np.float32)], 1)

    def add(self, rows: Ints, targets: Ints, sign: float = 1.0) -> None:
        """Add answers, or subtract them."""
        present, columns = np.unique(targets, return_inverse=True)
        if len(present):
            self.values[:, present] += sign * self.reach(rows, columns, len(present))

    def reach(self, rows: Ints, targets: Ints, labels: int) -> Floats:
        """Spread some answers; return the result ``[n, labels]``."""
        step = np.zeros((len(self.values), labels), np.float32)
        step[rows, targets] = 1
        total = step.copy()
        for _ in range(STEPS):
            step = STAY * self.step(step)
            total += step
        return total

    def step(self, values: Floats) -> Floats:
        """Return the kernel-weighted mean over each image's neighbours ``[n, k]``."""
        return np.asarray(self._steps @ values, np.float32)
