"""What is asked of targets, against loops: of one label each, and of several."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from labelwise.images.dataset import (
    among_labels,
    have_label,
    label_words,
    labels_present,
    several_true,
    strata,
    truth_table,
)

NAMES = ("x", "y", "z")


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=9))
def test_several_true_labels_equal_a_loop(rows: list[list[bool]]) -> None:
    targets = np.array(rows)
    assert several_true(targets)
    assert have_label(targets).tolist() == [any(row) for row in rows]
    assert truth_table(targets, 3).tolist() == rows
    assert labels_present(targets) == [i for i in range(3) if any(row[i] for row in rows)]
    assert among_labels(targets, [2, 0], 3).tolist() == [[row[2], row[0]] for row in rows]
    counts = [sum(column) for column in zip(*rows, strict=True)]
    rarest = [min((c, i) for i, c in enumerate(counts) if row[i])[1] if any(row) else -1 for row in rows]
    assert strata(targets).tolist() == rarest
    assert label_words(NAMES, targets) == [
        ";".join(n for n, yes in zip(NAMES, row, strict=True) if yes) for row in rows
    ]


@given(st.lists(st.integers(-1, 2), min_size=1, max_size=9))
def test_one_label_each_equals_a_loop(rows: list[int]) -> None:
    targets = np.array(rows)
    assert not several_true(targets)
    assert have_label(targets).tolist() == [row >= 0 for row in rows]
    assert truth_table(targets, 3).tolist() == [[row == i for i in range(3)] for row in rows]
    assert labels_present(targets) == sorted({row for row in rows if row >= 0})
    assert among_labels(targets, [2, 0], 3).tolist() == [{2: 0, 0: 1}.get(row, -1) for row in rows]
    assert strata(targets).tolist() == rows
    assert label_words(NAMES, targets) == ["" if row < 0 else NAMES[row] for row in rows]
