"""Every recipe runs from end to end on tiny data, through the code that runs the real one."""

from pathlib import Path
from typing import Any

import pytest

from labelwise_papers.recipe import find_recipes, recipe_files
from labelwise_papers.reproduce.cells import Choice, cells_of
from labelwise_papers.reproduce.pictures import draw_recipe
from labelwise_papers.reproduce.quick import quick
from labelwise_papers.reproduce.results import read_results
from labelwise_papers.reproduce.running import Place, run_cells
from labelwise_papers.reproduce.table import lines_of, markdown


def lengths(settings: Any) -> list[int]:
    """Return every number of epochs or steps of training that settings name, however deep."""
    if isinstance(settings, list | tuple):
        return [length for each in settings for length in lengths(each)]
    if not isinstance(settings, dict):
        return []
    own = [value for key, value in settings.items() if key in ("epochs", "steps", "head_epochs", "encoder_epochs")]
    return own + [length for each in settings.values() for length in lengths(each)]


@pytest.mark.parametrize("name", recipe_files())
def test_no_stage_of_a_quick_run_is_long(name: str) -> None:
    (whole,) = find_recipes(name)
    for row in quick(whole).rows:
        assert max(lengths(row.settings), default=0) <= 2, row.name


@pytest.mark.parametrize("name", recipe_files())
def test_a_recipe_runs(name: str, tmp_path: Path) -> None:
    (whole,) = find_recipes(name)
    recipe, choice = quick(whole), Choice(quick=True)
    assert [row.name for row in recipe.rows] == [row.name for row in whole.rows]
    cells = list(cells_of(recipe, choice, recipe.data))
    assert run_cells(cells, Place(out=tmp_path, device="cpu"), lambda _: None) == []
    results = read_results(tmp_path)
    assert [entry["key"] for entry in results] == [cell.key for cell in cells]
    for entry in results:
        assert entry["quick"]
        assert entry["seconds"] >= 0
        assert entry["peak_mib"] > 0
        assert entry["versions"]["torch"]
        assert entry["configuration"]["measures"]
    lines = lines_of(recipe, results, choice)
    assert {line.row for line in lines} == {row.name for row in recipe.rows}
    assert {line.verdict for line in lines} == {"quick run, no result"}
    measured = {figure for line in lines if line.ours for figure in (line.figure,)}
    titles = {figure.title or key for key, figure in recipe.figures.items()}
    assert measured == titles, "every figure of the table is measured by some row"
    assert markdown(recipe, lines, results).count("\n| ") >= len(recipe.rows)
    drawn = draw_recipe(recipe, results, choice, tmp_path / "pictures")
    assert (drawn is None) == (recipe.picture is None)
    assert drawn is None or drawn.stat().st_size > 1000
    assert not list((tmp_path / "cells").iterdir()), "checkpoints of finished cells are removed"
    real = {cell.key for cell in cells_of(whole, Choice(), whole.data)}
    assert not real & {entry["key"] for entry in results}, "a quick run never counts as a result"
