"""Coarser answers if the label is too uncertain: a parent of the label, or a parent of that.

Probabilities are summed up the tree. The path of an image starts with the most probable of the broadest groups, goes on with the most
probable part of it, and ends with a label. So once a step is wrong, all later steps are, and no step is more probable than the one before.
An answer is the last step whose probability is above a limit.
"""

from dataclasses import dataclass

import numpy as np

from labelwise.core.arrays import Array
from labelwise.images.describe.labels import Labels

Path = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Steps:
    """The paths of n images down a label tree of T steps."""

    groups: Array  # group at each step [n, T]: its position in that step
    probabilities: Array  # of these groups [n, T], never increasing


@dataclass(frozen=True, eq=False)
class Tree:
    """Labels and their parents as nested groups, from the broadest to the labels themselves."""

    order: Array  # label order in which each group is contiguous [k]
    groups: tuple[Array, ...]  # for each step, the group of each label [k], in the order of ``labels``
    paths: tuple[tuple[Path, ...], ...]  # for each step, the names from the broadest parent to each group

    @classmethod
    def of(cls, labels: Labels) -> "Tree":
        """Return the tree of labels; a single step without parents."""
        parents = labels.parents or ((),) * len(labels)
        paths = [(*reversed(above), name) for above, name in zip(parents, labels.names, strict=True)]
        order = sorted(range(len(paths)), key=paths.__getitem__)
        groups, names = [], []
        for step in range(1, max(map(len, paths)) + 1):
            places: dict[tuple[Path, bool], int] = {}
            of_label = np.empty(len(paths), np.int64)
            for row in order:  # a label may be the parent of others: on its own, it is a leaf
                of_label[row] = places.setdefault((paths[row][:step], len(paths[row]) < step), len(places))
            groups.append(of_label)
            names.append(tuple(path for path, _ in places))
        return cls(np.array(order), tuple(groups), tuple(names))

    def steps(self, probabilities: Array) -> Steps:
        """Return the paths of images with label probabilities ``[n, k]``."""
        rows, sorted_columns = np.arange(len(probabilities)), probabilities[:, self.order]
        columns_by_step: list[Array] = []
        values: list[Array] = []
        for step, of_label in enumerate(self.groups):
            groups = of_label[self.order]
            first = np.flatnonzero(np.diff(groups, prepend=-1))
            sums = np.add.reduceat(sorted_columns, first, axis=1)
            if step:
                inside = self.groups[step - 1][self.order][first]
                sums = np.where(inside == columns_by_step[-1][:, None], sums, -1)
            columns_by_step.append(sums.argmax(1))
            values.append(np.minimum(sums[rows, columns_by_step[-1]], values[-1] if step else 1))
        return Steps(np.stack(columns_by_step, 1), np.stack(values, 1))

    def mistakes(self, probabilities: Array, targets: Array) -> Array:
        """Return the probability of the first wrong step of each image ``[n]``, 0 if all are right."""
        steps = self.steps(probabilities)
        right = np.stack([of_label[targets] for of_label in self.groups], 1)
        values: Array = np.where(steps.groups != right, steps.probabilities, 0).max(1)
        return values

    def answers(self, probabilities: Array, limit: float) -> list[tuple[Path, float]]:
        """Return the names from the broadest parent to the answer of each image, and its probability; no name if even the broadest is uncertain."""
        steps = self.steps(probabilities)
        sure = (steps.probabilities > limit).sum(1).tolist()
        return [
            (self.paths[count - 1][groups[count - 1]], values[count - 1]) if count else ((), 1.0)
            for count, groups, values in zip(sure, steps.groups.tolist(), steps.probabilities.tolist(), strict=True)
        ]
