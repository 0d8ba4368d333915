"""The count and mean of each label's examples: all that a head needs to learn the label again with more examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from labelwise.core.arrays import Array
from labelwise.support.settings import brief

MOST_ROWS = 1_000  # rows that represent the examples of a label; a head reads their mean, and counts up to this many


@dataclass(frozen=True, eq=False)
class KnownExamples:
    """The examples of some labels."""

    names: tuple[str, ...]
    counts: Array  # [m]
    means: Array  # of their embeddings [m, d]

    __repr__ = brief

    @classmethod
    def of(cls, names: Sequence[str], embeddings: Array, targets: Array, weights: Sequence[float] = ()) -> Self:
        """Return those of embeddings ``[n, d]`` and the positions of their labels ``[n]``; labels without an image are left out.

        ``weights [n]`` say how many images each counts as; () is one.
        """
        counts_of_rows = np.array(weights) if weights else np.ones(len(targets))
        counts = np.bincount(targets, counts_of_rows, minlength=len(names))
        places = np.flatnonzero(counts).tolist()
        means = np.stack([np.average(embeddings[targets == row], 0, counts_of_rows[targets == row]) for row in places])
        return cls(tuple(names[row] for row in places), counts[places].astype(np.float32), means.astype(np.float32))

    def rows(self, name: str) -> Array:
        """Return embeddings ``[m, d]`` with the mean and count of a label's examples; empty for a label without any."""
        if name not in self.names:
            return self.means[:0]
        place = self.names.index(name)
        return np.repeat(self.means[place][None], min(int(self.counts[place]), MOST_ROWS), 0)

    def add(self, name: str, embeddings: Array) -> Self:
        """Return a copy with more examples ``[n, d]`` of a label, new or existing."""
        old = self.names.index(name) if name in self.names else None
        count, total = float(len(embeddings)), embeddings.sum(0, dtype=np.float64)
        if old is not None:
            count, total = (
                count + float(self.counts[old]),
                total + self.counts[old] * self.means[old].astype(np.float64),
            )
        other_rows = [row for row in range(len(self.names)) if row != old]
        return type(self)(
            (*(self.names[row] for row in other_rows), name),
            np.append(self.counts[other_rows], np.float32(count)).astype(np.float32),
            np.concatenate([self.means[other_rows], (total / count)[None]]).astype(np.float32),
        )

    def put(self, names: Sequence[str], counts: Array, means: Array) -> Self:
        """Return a copy with these labels last, replacing their old examples."""
        new = set(names)
        other_rows = [row for row, name in enumerate(self.names) if name not in new]
        return type(self)(
            (*(self.names[row] for row in other_rows), *names),
            np.concatenate([self.counts[other_rows], counts]).astype(np.float32),
            np.concatenate([self.means[other_rows], means]).astype(np.float32),
        )

    def select(self, names: Sequence[str]) -> Self:
        """Return the examples of these labels only."""
        rows = [row for row, name in enumerate(self.names) if name in set(names)]
        return type(self)(tuple(self.names[row] for row in rows), self.counts[rows], self.means[rows])
