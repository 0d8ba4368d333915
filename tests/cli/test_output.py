"""How a result is shown."""

import json
import warnings

import pytest

from labelwise.cli.options import SharedOptions, with_shared
from labelwise.cli.output import BAR, LEAST_BAR, Bar, one_line, plain_table, show, show_warnings
from labelwise.support.errors import LabelwiseWarning


def test_a_result_is_a_document_or_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    table = plain_table("label", ">share")
    table.add_row("owl", "90.0 %")
    lines = (table, one_line("one line of more than twenty letters"), "a line that is folded at twenty")
    with with_shared(SharedOptions(json=True)):
        show({"label": "\N{OWL}"}, *lines)
    printed = capsys.readouterr().out
    assert json.loads(printed) == {"label": "\N{OWL}"}
    assert "\N{OWL}" in printed
    show({"label": "owl"}, *lines)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["label", "share"],
        ["owl", "90.0", "%"],
        ["one", "line", "of", "more", "than", "twenty", "letters"],
        ["a", "line", "that", "is"],
        ["folded", "at", "twenty"],
    ]


def test_warnings_of_the_library_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """For the user, without the line of code that they come from."""
    with show_warnings():
        warnings.warn("A checkpoint is damaged.", LabelwiseWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: A checkpoint is damaged.\n"


@pytest.mark.parametrize(("columns", "bar"), [(120, BAR), (70, 9), (40, LEAST_BAR)])
def test_bars_give_room_to_long_names(
    columns: int, bar: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "a bird with a name of forty letters here"
    show({}, plain_table("label", "", ">average precision", rows=[(name, Bar(1), "99.0 %")]))
    printed = capsys.readouterr().out
    assert printed.count("█") == bar
    assert (name in printed) == (columns > 40)
    assert ("average precision" in printed) == (columns == 120)
