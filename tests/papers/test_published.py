"""Settings that papers state and their authors' code has, beside ours."""

from pathlib import Path

import pytest

from labelwise.support.settings import to_plain
from labelwise_papers.published import compare_settings, differing, flatten, read_published
from labelwise_papers.recipe import find_recipes, read_recipe, recipe_files
from labelwise_papers.reproduce.cells import Choice
from labelwise_papers.reproduce.table import settings_of

PAPERS = sorted({name.partition("/")[0] for name in recipe_files()})


@pytest.mark.parametrize("paper", PAPERS)
def test_every_published_setting_is_ours_or_named_as_absent(paper: str) -> None:
    ours, published = set[str](), set[str]()
    for recipe in find_recipes(paper):
        for row in recipe.rows:
            for data in recipe.sets(row):
                if method := recipe.method(row, data):
                    ours |= set(flatten(to_plain(method)))
                    published |= {setting.name for setting in compare_settings(recipe, row, data)}
    assert published - ours == set(read_published(paper).without)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_entry_names_tables_methods_and_rows_that_there_are(paper: str) -> None:
    recipes = find_recipes(paper)
    tables = {recipe.table for recipe in recipes}
    for entry in read_published(paper).stated:
        assert set(entry.tables) <= tables
        asked = [recipe for recipe in recipes if not entry.tables or recipe.table in entry.tables]
        rows = [row for recipe in asked for row in recipe.rows]
        assert set(entry.methods) <= {row.method for row in rows}
        assert set(entry.rows) <= {row.name for row in rows}
        assert set(entry.data) <= {name for recipe in asked for name in recipe.data}


def test_what_differs_follows_the_settings_of_the_row(tmp_path: Path) -> None:
    file = recipe_files()["prototype/table1"]
    (row,) = [row for row in read_recipe(file).rows if row.name == "SIM, MNIST"]
    assert {"clip", "group", "pair_smoothing", "training_noise"} <= set(differing(read_recipe(file), row, "mnist"))
    assert "smoothing" not in differing(read_recipe(file), row, "mnist")
    other = tmp_path / "table1.toml"
    settings = 'name = "SIM, MNIST"\nmethod = "prototype"\nsettings = { head = "sim", group = 5 }'
    changed = settings.replace("group = 5", "group = 1, smoothing = 0.3, start = 'uniform'")
    assert settings in file.read_text()
    other.write_text(file.read_text().replace(settings, changed))
    (row,) = [row for row in read_recipe(other).rows if row.name == "SIM, MNIST"]
    found = differing(read_recipe(other), row, "mnist")
    assert "smoothing" in found
    assert not {"group", "start"} & set(found)  # as the authors' code has them


def test_three_settings_stand_side_by_side() -> None:
    (recipe,) = find_recipes("zero_label/table1")
    rows = {cells[1:] for cells in settings_of(recipe, Choice(data=("cifar10",)))}
    assert ("zero labels", "clustering.lr", "0.1", "0.01", "0.01") in rows
    assert ("zero labels", "matching.gradient", "unrolled", "unrolled", "implicit *") in rows
