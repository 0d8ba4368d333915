"""What answers to images that training did not use say of a classifier."""

import numpy as np
import pytest

from labelwise.core.metrics import confusion_matrix
from labelwise.fitting.estimate import FEW, FEW_LABELS, SHARES, SLACK, Signs, confused_labels, weigh_signs


def test_confused_labels_are_those_of_the_whole_table() -> None:
    best, targets = np.random.default_rng(0).integers(5, size=(2, 300))
    table = confusion_matrix(best, targets, 5)
    np.fill_diagonal(table, 0)
    places = (-table.ravel()).argsort(kind="stable")[:3].tolist()
    right = [{"label": "abcde"[p // 5], "taken_for": "abcde"[p % 5], "count": int(table.flat[p])} for p in places]
    assert confused_labels(best, targets, tuple("abcde")) == right
    assert confused_labels(best, best, tuple("abcde")) == []


def test_the_weights_of_signs_are_those_of_the_largest_area_by_label_left_out() -> None:
    """Against the plain form: every stranger compared with every known image of another label."""
    rng = np.random.default_rng(0)
    labels, left_out = rng.integers(0, 3, 60), np.repeat([0, 1, 2], [20, 3, 9])
    known, strange = rng.normal(size=(60, 2)), rng.normal([0.9, 0.3], size=(32, 2))
    weights, of_strange = rng.integers(1, 4, 60).astype(float), rng.integers(1, 4, 32).astype(float)
    counts = np.bincount(left_out, of_strange)

    def chosen(known: np.ndarray, strange: np.ndarray) -> tuple[float, float]:
        return weigh_signs(Signs(known, labels, weights), Signs(strange, left_out, of_strange))

    def area(share: float) -> float:
        """Return the mean area over labels, by how many strangers each has."""
        inside, outside = (rows @ [1 - share, share] for rows in (known, strange))
        areas, counted = [], []
        for label in range(3):
            others, own = inside[labels != label], outside[left_out == label]
            pairs = np.outer(of_strange[left_out == label], weights[labels != label])
            areas.append(float(np.average(own[:, None] > others, weights=pairs)))
            counted.append(counts[label] / (counts[label] + FEW))
        return float(np.average(areas, weights=counted))

    areas = {share: area(share) for share in SHARES}
    share = chosen(known, strange)[1] / 2
    counted = float((counts / (counts + FEW)).sum())
    share = round(0.5 + (share - 0.5) * (counted + FEW_LABELS) / counted, 6)  # as before it is drawn towards even ones
    assert areas[share] >= max(areas.values()) - SLACK - 1e-12
    assert max(areas.values()) > areas[0.5] + SLACK, "the even weights are not the best here"
    assert chosen(known[:, ::-1], strange[:, ::-1])[0] == pytest.approx(chosen(known, strange)[1])
    alike = np.repeat(rng.normal(size=(60, 1)), 2, 1)
    assert chosen(alike, alike[:32]) == (1.0, 1.0), "where all do as well, the even ones"
