"""The examples that labels were learnt from, as a count and a mean each: all that a head needs to learn a label again with more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from labelwise.core.arrays import Array
from labelwise.support.settings import brief

MOST_ROWS = 1_000  # rows that stand for the examples of a label; a head reads their mean and, up to here, their count


@dataclass(frozen=True, eq=False)
class KnownExamples:
    """Examples of some labels."""

    names: tuple[str, ...]
    counts: Array  # [m]
    means: Array  # of their embeddings [m, d]

    __repr__ = brief

    @classmethod
    def of(cls, names: Sequence[str], embeddings: Array, targets: Array, weights: Sequence[float] = ()) -> Self:
        """Return those of embeddings ``[n, d]`` and the positions of their labels ``[n]``; labels without an image are left out.

        ``weights [n]`` say how many images each counts as; () is one.
        """
        counted = np.array(weights) if weights else np.ones(len(targets))
        counts = np.bincount(targets, counted, minlength=len(names))
        here = np.flatnonzero(counts).tolist()
        means = np.stack([np.average(embeddings[targets == row], 0, counted[targets == row]) for row in here])
        return cls(tuple(names[row] for row in here), counts[here].astype(np.float32), means.astype(np.float32))

    def rows(self, name: str) -> Array:
        """Return embeddings ``[m, d]`` that say the same as the examples of a label, none where it has none."""
        if name not in self.names:
            return self.means[:0]
        place = self.names.index(name)
        return np.repeat(self.means[place][None], min(int(self.counts[place]), MOST_ROWS), 0)

    def add(self, name: str, embeddings: Array) -> Self:
        """Return it with more examples ``[n, d]`` of a label, new or known."""
        old = self.names.index(name) if name in self.names else None
        count, total = float(len(embeddings)), embeddings.sum(0, dtype=np.float64)
        if old is not None:
            count, total = (
                count + float(self.counts[old]),
                total + self.counts[old] * self.means[old].astype(np.float64),
            )
        kept = [row for row in range(len(self.names)) if row != old]
        return type(self)(
            (*(self.names[row] for row in kept), name),
            np.append(self.counts[kept], np.float32(count)).astype(np.float32),
            np.concatenate([self.means[kept], (total / count)[None]]).astype(np.float32),
        )

    def put(self, names: Sequence[str], counts: Array, means: Array) -> Self:
        """Return it with these labels at the end, in place of what was known of them."""
        new = set(names)
        kept = [row for row, name in enumerate(self.names) if name not in new]
        return type(self)(
            (*(self.names[row] for row in kept), *names),
            np.concatenate([self.counts[kept], counts]).astype(np.float32),
            np.concatenate([self.means[kept], means]).astype(np.float32),
        )

    def select(self, names: Sequence[str]) -> Self:
        """Return the examples of these labels alone."""
        rows = [row for row, name in enumerate(self.names) if name in set(names)]
        return type(self)(tuple(self.names[row] for row in rows), self.counts[rows], self.means[rows])
