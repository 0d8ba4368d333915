"""An image that is none of the labels looks most like one of them, without a probability: on the screen and on the sheet."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import labelwise as lw
from labelwise.cli.classify import _table, answer
from labelwise.core.calibration import OutlierRule
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


def test_a_yes_about_an_unknown_image_says_so(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    classifier = lw.load(model)
    file = next(
        each for each in sorted((pictures / "test" / "blob 1").iterdir()) if classifier.ask(each, "blob 1")[0].yes
    )
    assert "calls it unknown" not in run("ask", model, file, "blob 1")[1]
    rule = OutlierRule(centre=(0.0, 0.0), spread=(1.0, 1.0), limit=-1e9)
    strict = replace(classifier, familiarity=replace(classifier.familiarity, rule=rule))
    strict.save(tmp_path / "strict.lw")
    code, out, err = run("ask", tmp_path / "strict.lw", file, "blob 1")
    assert code == 0, err
    assert "yes" in out
    assert "calls it unknown" in out
    assert "calls it unknown" not in run("ask", tmp_path / "strict.lw", file, "blob 2")[1]
