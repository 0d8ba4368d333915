"""The same tables in the shell and in Python."""

import numpy as np

import labelwise as lw
from labelwise.evaluation.tables import FigureTable, as_text, tables
from tests.contract.subjects import trained
from tests.evaluation.test_evaluate import DATA, NAMES


def test_numbers_stand_to_the_right_and_notes_below() -> None:
    rows = [("owl", "7"), ("tawny owl", "12")]
    one = FigureTable(heads=("label", ">images"), rows=rows, title="birds", notes=["and 3 labels more"])
    expected = ["birds", "label      images", "owl             7", "tawny owl      12", "and 3 labels more"]
    assert as_text([one]).splitlines() == expected


def test_the_confusion_matrix_and_each_protocol_is_a_table() -> None:
    figures = lw.evaluate(trained("softmax"), DATA, protocols=["retrieval"])
    parts = list(tables(figures))
    assert figures.confusion is not None
    (matrix,) = (one for one in parts if one.heads[0] == "true label, by answer")
    assert np.array_equal(np.array([row[1:] for row in matrix.rows], int), figures.confusion)
    assert [row[0] for row in matrix.rows] == [f"{i} {name}" for i, name in enumerate(NAMES, 1)]
    assert "search for others" in parts[-1].title
    assert all(len(row) == len(one.heads) for one in parts for row in one.rows)
    assert str(figures) == as_text(parts)
