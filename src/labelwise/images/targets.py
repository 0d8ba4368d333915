"""Targets of images, an array of either kind, and what is asked of it.

It holds the position of each image's label ``[n]`` (int64), -1 where there is none; or, where several labels may be true of an image,
or none, which of them are ``[n, k]`` (bool). Which of the two it is, is asked here alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def several_true(targets: Any) -> bool:
    """Return whether several labels may be true of one image."""
    return bool(targets.ndim == 2)


def have_label(targets: Any) -> Array:
    """Return which images have a label, or more ``[n]`` (bool)."""
    return np.asarray(targets.any(1) if several_true(targets) else targets >= 0)


def truth_table(targets: Any, k: int) -> Array:
    """Return which of k labels are true of each image ``[n, k]`` (bool)."""
    return np.asarray(targets if several_true(targets) else targets[:, None] == np.arange(k))


def labels_present(targets: Any) -> list[int]:
    """Return the labels that some image has, in order."""
    if several_true(targets):
        return np.flatnonzero(targets.any(0)).tolist()
    return sorted(set(targets.tolist()) - {-1})


def among_labels(targets: Any, labels: Sequence[int], k: int) -> Array:
    """Return the targets of the same images among some of k labels; those of other labels have none."""
    columns = np.asarray(labels, np.int64)
    if several_true(targets):
        return np.asarray(targets[:, columns])
    positions = np.full(k + 1, -1)  # the last is where -1 points
    positions[columns] = np.arange(len(columns))
    return np.asarray(positions[targets])


def strata(targets: Any) -> Array:
    """Return what images are divided by ``[n]``: their label, or of several true ones the rarest, so that it is shared out."""
    if not several_true(targets):
        return np.asarray(targets)
    counts = np.where(targets, targets.sum(0), len(targets) + 1)
    return np.where(targets.any(1), counts.argmin(1), -1)


def label_words(names: Sequence[str], targets: Any) -> list[str]:
    """Return the name of each image's label, several joined by semicolons, blank where there is none."""
    if not several_true(targets):
        return [names[target] if target >= 0 else "" for target in targets.tolist()]
    return [";".join(name for name, true in zip(names, row, strict=True) if true) for row in targets.tolist()]
