"""Thresholds: the probability from which on a label is the answer, where a person chose one.

A label with a threshold is answered where its probability reaches it, and else never; of several the one whose threshold is exceeded
by the largest factor. Otherwise the answer is the most probable of the labels without a threshold. Where several labels may be true,
each is answered yes from its threshold on, one half where none was chosen.
"""

from collections.abc import Mapping

import numpy as np

from labelwise.core.arrays import Array
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UsageError

HALF = 0.5


def check_thresholds(thresholds: Mapping[str, float], labels: Labels) -> dict[str, float]:
    """Return thresholds by label, or raise an error: each is above 0 and at most 1, and its label is known."""
    for name, value in thresholds.items():
        labels.index(name)
        if not 0 < value <= 1:
            raise UsageError(f'A threshold is a probability, above 0 and at most 1; given {value} for "{name}".')
    return {name: float(value) for name, value in thresholds.items()}


def threshold_row(thresholds: Mapping[str, float], labels: Labels, default: float = float("nan")) -> Array:
    """Return the threshold of each label ``[k]``; ``default`` where none was chosen."""
    return np.array([thresholds.get(name, default) for name in labels.names])


def choose(probabilities: Array, thresholds: Array) -> Array:
    """Return the position of the answer ``[n]`` from probabilities ``[n, k]`` and thresholds ``[k]``, NaN where there is none.

    >>> choose(np.array([[0.7, 0.3], [0.9, 0.1]]), np.array([np.nan, 0.25]))
    array([1, 0])
    """
    chosen = ~np.isnan(thresholds)
    share = np.where(chosen, probabilities / np.where(chosen, thresholds, 1), 0)
    others = share if chosen.all() else np.where(chosen, -1.0, probabilities)
    answers: Array = np.where(share.max(1) >= 1, share.argmax(1), others.argmax(1))
    return answers
