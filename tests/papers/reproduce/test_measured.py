"""The page of tables says what the results that lie beside it say."""

from pathlib import Path

import pytest

from labelwise_papers.recipe import find_recipes
from labelwise_papers.reproduce.cells import Choice, cells_of
from labelwise_papers.reproduce.results import read_results

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results" / "measured"
PAGE = ROOT / "docs" / "results" / "tables.md"

if not RESULTS.exists():
    pytest.skip("the documents are not here", allow_module_level=True)

PAGES = {"izf.md": ("izf/gzsl", "izf/flow"), "clarel.md": ("clarel/table1",)}


@pytest.mark.parametrize("page", PAGES)
def test_tables_of_a_page_are_made_of_the_results(page: str) -> None:
    from labelwise_papers.reproduce.table import compact, lines_of

    results, lines = read_results(RESULTS), (RESULTS.parent / page).read_text().splitlines()
    for name in PAGES[page]:
        (recipe,) = find_recipes(name)
        made = compact(lines_of(recipe, results, Choice()))
        assert len(made) > 2
        assert set(made) <= set(lines), f"{name}: put the table of compact() into {page} again"


def test_every_result_belongs_to_a_cell_of_today_s_recipes() -> None:
    old = set()
    for entry in read_results(RESULTS):
        (recipe,) = find_recipes(entry["recipe"])
        every = cells_of(recipe, Choice(), [entry["data"]])
        (cell,) = [cell for cell in every if (cell.row.name, cell.seed) == (entry["row"], entry["seed"])]
        old |= {(recipe.name, cell.data, cell.row.name, cell.seed)} if cell.key != entry["key"] else set()
        assert not entry["quick"]
    assert not old, "results of other settings: run these cells again"


def test_no_cell_is_there_twice() -> None:
    keys = [entry["key"] for entry in read_results(RESULTS)]
    assert len(keys) == len(set(keys))


def test_the_page_is_made_of_the_results() -> None:
    from labelwise_papers.reproduce.table import lines_of, markdown, page_head

    page = PAGE.read_text()
    assert page.startswith(page_head(RESULTS.relative_to(ROOT)) + "\n\n## ")
    results = read_results(RESULTS)
    for name in dict.fromkeys(entry["recipe"] for entry in results):
        (recipe,) = find_recipes(name)
        made = markdown(recipe, lines_of(recipe, results, Choice()), results)
        lines = [line for line in made.splitlines() if line.startswith("| ")]
        assert len(lines) > 1
        assert set(lines) <= set(page.splitlines()), f"{name}: make the page again"
