"""An image that is none of the labels looks most like one of them, without a probability: on the screen and on the sheet."""

import re
from io import StringIO

import numpy as np
from rich.console import Console

from labelwise.cli.classify import _table, answer
from labelwise.reporting.answer_sheet import Sheet
from labelwise.tasks.classify import Prediction

TOP = (("howler", 0.805), ("saki", 0.1))


def prediction(*, known: bool) -> Prediction:
    label = "howler" if known else "unknown"
    return Prediction(label, ("howler",) if known else (), 0.805, 0.9, 1.0, TOP)


def test_the_screen_names_the_nearest_label_of_an_unknown_image() -> None:
    console = Console(width=200, record=True, file=StringIO())
    console.print(
        _table([answer("a.jpg", prediction(known=False), 0.5), answer("b.jpg", prediction(known=True), 0.5)], False)
    )
    first, *others = [line for line in console.export_text().splitlines() if "howler" in line or "saki" in line]
    assert re.search(r"a\.jpg +unknown +looks most like howler\s*$", first)
    assert "80.5 %" in others[0]
    assert len(others) == 2, "the labels of an unknown image are not listed"


def test_the_sheet_names_the_nearest_label_of_an_unknown_image() -> None:
    image = np.zeros((3, 8, 8), np.uint8)
    sheet = Sheet()
    sheet.add("unknown", "a.jpg", prediction(known=False), image)
    page = sheet.page("m.lw", ["a"])
    assert "looks most like howler" in page
    assert "80.5" not in page
    sheet.add("howler", "b.jpg", prediction(known=True), image)
    assert "80.5" in sheet.page("m.lw", ["a"])
