"""Ours beside the paper's: what is compared, in which words."""

from pathlib import Path
from typing import Any

import pytest

from labelwise_papers.recipe import Figure, Recipe, read_recipe
from labelwise_papers.reproduce.cells import Choice, cells_of
from labelwise_papers.reproduce.table import HEAD, Line, lines_of, markdown, spread, verdict
from tests.papers.reproduce.tiny_recipes import tiny_recipe, write_recipe


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
        (95.0, [94.9, 95.5], "higher", "at or above, within the spread of our seeds"),
        (2.5, [2.0], "lower", "at or below"),
        (2.5, [2.0, 2.6], "lower", "at or below, within the spread of our seeds"),
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
        "Here", "eszsl", "H", "40.0", "42.0 +- 1.4", "+2.0", "no difference noted", "2 of 2", "at or above",
    )  # fmt: skip
    assert line(lines, "Here", "devise").verdict == "not run"
    assert line(lines, "Absent").words()[3:] == ("30.0", "", "", "no difference noted", "", "missing data")
    partly = lines_of(recipe, entries(recipe, {"here": [39.0]}), Choice(), gone=["absent"])
    assert line(partly, "Here").words()[4:] == ("39.0", "-1.0", "no difference noted", "1 of 2", "below by 1.0")


def placed(recipe: Recipe, row: str, value: float) -> list[dict[str, Any]]:
    """Results of a row on the data set ``here``, as a run writes them."""
    return [
        {
            "key": cell.key, "recipe": "own/one", "data": "here", "row": row, "seed": cell.seed, "quick": False,
            "configuration": cell.configuration, "figures": {"harmonic": value},
        }
        for cell in cells_of(recipe, Choice(), ["here"]) if cell.row.name == row
    ]  # fmt: skip


def test_results_of_other_settings_are_not_shown(tmp_path: Path) -> None:
    before, today = tiny_recipe(tmp_path, epochs=1), tiny_recipe(tmp_path, epochs=3)
    old = placed(before, "devise", 41.0)
    assert line(lines_of(today, old, Choice()), "Here", "devise").verdict == "not run"
    (one, _) = placed(today, "devise", 43.0)
    assert line(lines_of(today, [*old, one], Choice()), "Here", "devise").ours == (43.0,), "never mixed with today's"


def test_no_verdict_where_the_paper_s_figure_is_of_other_data(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    path.write_text(path.read_text().replace('title = "H"', 'title = "H"\npaper_data = "STL-10"'))
    recipe = read_recipe(path)
    found = line(lines_of(recipe, entries(recipe, {"here": [41.0, 43.0]}), Choice()), "Here")
    assert found.verdict == "no verdict: the paper's figure is of STL-10"
    assert found.words()[3:6] == ("40.0", "42.0 +- 1.4", "")


def test_a_line_names_in_what_it_differs_from_the_paper_s_protocol(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    text = path.read_text().replace("seeds = 2", 'seeds = 2\ndiffers = ["schedule", "Cutout"]')
    path.write_text(text.replace('title = "Here"', 'title = "Here"\nheld = 20'))
    recipe = read_recipe(path)
    found = line(lines_of(recipe, [], Choice()), "Here")
    assert found.protocol == "differs: schedule, Cutout, 20 images calibrate"
    assert line(lines_of(recipe, [], Choice()), "Absent").protocol == "differs: schedule, Cutout"


def test_a_stand_in_is_never_compared(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    path.write_text(path.read_text().replace('title = "Here"', 'title = "Here"\nstands_for = "absent"'))
    recipe = read_recipe(path)
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
    assert "| Here | eszsl | H | 40.0 | 42.0 +- 1.4 | +2.0 | no difference noted | 2 of 2 | at or above |" in text
    assert text.count("devise") == 1
    assert "Not run: Here (devise); Absent." in text
    at_hand = markdown(recipe, lines_of(recipe, results, Choice(), gone=[]), results)
    assert at_hand == text, "a page is the same, whatever data its maker has"
    assert "| Absent" not in text, "only what was measured has a line"
    assert "Measured on cpu, torch 2.11; 2 s a cell; commit abc." in text
