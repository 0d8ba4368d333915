"""Ours beside the paper's: what is compared, in which words."""

from pathlib import Path
from typing import Any

import pytest

from labelwise_papers.recipe import Figure, Recipe
from labelwise_papers.reproduce.cells import Choice, cells_of
from labelwise_papers.reproduce.table import HEAD, Line, lines_of, markdown, spread, verdict
from tests.papers.reproduce.tiny_recipes import tiny_recipe


def entries(recipe: Recipe, values: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Results of the row ``eszsl`` on data sets, one value for each seed."""
    found = []
    for cell in cells_of(recipe, Choice(), recipe.data):
        if cell.row.name == "eszsl" and cell.seed < len(values.get(cell.data, [])):
            figures = {"harmonic": values[cell.data][cell.seed]}
            about = {"device": "cpu", "versions": {"torch": "2.11"}, "seconds": 2.0, "commit": "abc"}
            found.append({"key": cell.key, "recipe": "own/one", "quick": False, "figures": figures, **about})
    return found


def line(lines: list[Line], data: str, row: str = "eszsl") -> Line:
    (found,) = [one for one in lines if (one.data, one.row) == (data, row)]
    return found


@pytest.mark.parametrize(
    ("paper", "ours", "better", "words"),
    [
        (95.0, [95.0], "higher", "at or above"),
        (95.0, [96.0, 97.0], "higher", "at or above"),
        (95.0, [93.0, 94.6], "higher", "below by 1.20"),
        (95.0, [94.0, 95.5], "higher", "below by 0.25, within the spread of our seeds"),
        (2.5, [2.0], "lower", "at or below"),
        (2.5, [2.75], "lower", "above by 0.25"),
        (50.0, [40.0], "neither", "below by 10.00"),
        (50.0, [50.001], "neither", "equal"),
        (None, [40.0], "higher", "the paper gives no figure"),
        ("ship", ["ship", "ship", "dog"], "neither", "as in the paper"),
        ("ship", ["dog", "ship", "dog"], "neither", "differs"),
    ],
)
def test_verdicts(paper: float | str | None, ours: list[float | str], better: Any, words: str) -> None:
    assert verdict(paper, ours, Figure(better=better)) == words


def test_spread() -> None:
    assert spread([1.0, 3.0], 2) == "2.00 +- 1.41"
    assert spread([1.0], 1) == "1.0"
    assert spread(["ship", "dog", "ship"], 2) == "ship (2 of 3)"
    assert spread([], 2) == ""


def test_a_table_says_what_was_run_what_is_missing_and_what_compares(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    lines = lines_of(recipe, entries(recipe, {"here": [41.0, 43.0]}), Choice(), gone=["absent"])
    assert line(lines, "Here").words() == (
        "Here", "eszsl", "H", "40.0", "42.0 +- 1.4", "+2.0", "same", "2 of 2", "at or above",
    )  # fmt: skip
    assert line(lines, "Here", "devise").verdict == "not run"
    assert line(lines, "Absent").words()[3:] == ("30.0", "", "", "same", "", "missing data")
    partly = lines_of(recipe, entries(recipe, {"here": [39.0]}), Choice(), gone=["absent"])
    assert line(partly, "Here").words()[4:] == ("39.0", "-1.0", "same", "1 of 2", "below by 1.0")


def test_results_of_other_settings_do_not_count(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    results = entries(recipe, {"here": [41.0, 43.0]})
    changed = [{**entry, "key": entry["key"][::-1]} for entry in results]
    assert line(lines_of(recipe, changed, Choice()), "Here").verdict == "not run"


def test_a_stand_in_is_never_compared(tmp_path: Path) -> None:
    text = (tmp_path / "one.toml", tiny_recipe(tmp_path))[0].read_text()
    (tmp_path / "one.toml").write_text(text.replace('title = "Here"', 'title = "Here"\nstands_for = "absent"'))
    from labelwise_papers.recipe import read_recipe

    recipe = read_recipe(tmp_path / "one.toml")
    results = entries(recipe, {"here": [41.0, 43.0]})
    found = line(lines_of(recipe, results, Choice(), gone=["absent"]), "Here")
    assert found.verdict == "not comparable: stand-in data"
    assert found.words()[5] == ""
    without = lines_of(recipe, [], Choice(), gone=[])
    assert {one.data for one in without} == {"Absent"}, "nothing stands in for what is at hand"


def test_markdown_has_a_line_for_each_figure_and_the_machine(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path)
    results = entries(recipe, {"here": [41.0, 43.0]})
    text = markdown(recipe, lines_of(recipe, results, Choice(), gone=["absent"]), results)
    assert text.splitlines()[0] == "## own/one: A table of our own"
    assert f"| {' | '.join(HEAD)} |" in text
    assert "| Here | eszsl | H | 40.0 | 42.0 +- 1.4 | +2.0 | same | 2 of 2 | at or above |" in text
    assert text.count("devise") == 1
    assert "Not run: devise on Here." in text
    assert "Missing data: Absent." in text
    assert "| Absent" not in text, "only what was measured has a line"
    assert "Measured on cpu, torch 2.11; 2 s a cell; commit abc." in text
