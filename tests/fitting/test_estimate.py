"""What answers to images that training did not use say of a classifier."""

import numpy as np

from labelwise.core.metrics import confusion_matrix
from labelwise.fitting.estimate import confused_labels


def test_confused_labels_are_those_of_the_whole_table() -> None:
    best, targets = np.random.default_rng(0).integers(5, size=(2, 300))
    table = confusion_matrix(best, targets, 5)
    np.fill_diagonal(table, 0)
    places = (-table.ravel()).argsort(kind="stable")[:3].tolist()
    right = [{"label": "abcde"[p // 5], "taken_for": "abcde"[p % 5], "count": int(table.flat[p])} for p in places]
    assert confused_labels(best, targets, tuple("abcde")) == right
    assert confused_labels(best, best, tuple("abcde")) == []
