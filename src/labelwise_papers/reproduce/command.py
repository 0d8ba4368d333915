"""The verb reproduce: choose recipes, run them, list them, and print their tables."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, groupby, repeat

from rich.table import Table
from rich.text import Text

from labelwise.cli.output import note, plain_table, stdout, styled
from labelwise.support.errors import DataError, UsageError, listing
from labelwise_papers.recipe import Recipe, find_recipes, read_recipe, recipe_files
from labelwise_papers.reproduce.cells import Choice, cells_of
from labelwise_papers.reproduce.pictures import draw_recipe
from labelwise_papers.reproduce.results import read_results
from labelwise_papers.reproduce.running import Place, run_cells, run_in_workers
from labelwise_papers.reproduce.sources import sets_at_hand
from labelwise_papers.reproduce.table import (
    HEAD,
    SETTINGS_HEAD,
    Line,
    lines_of,
    markdown,
    measured_on,
    page_head,
    settings_of,
)


def recipes_of(name: str | None, place: Place) -> list[Recipe]:
    """Return the recipes of a name; without one, all that have results."""
    if name is not None:
        return find_recipes(name)
    measured = {entry["recipe"] for entry in read_results(place.out)}
    return [read_recipe(path) for each, path in recipe_files().items() if each in measured]


def run_recipes(recipes: list[Recipe], place: Place, choice: Choice, workers: int) -> list[str]:
    """Run what is not done yet; return what failed or is missing. Data that is missing does not stop other tables."""
    cells, without = [], []
    for recipe in recipes:
        here, gone = sets_at_hand(recipe, choice.data, place.root)
        cells += list(cells_of(recipe, choice, here))
        for name, words in gone.items():
            stands = [each for each in here if recipe.data[each].stands_for == name]
            note(f"{recipe.name}, {name}: missing data.{f' {listing(stands)} stands in for it.' if stands else ''}")
            without += [] if here else [words]
    if not cells and without:
        raise DataError("No data of this recipe is at hand.\n" + "\n".join(dict.fromkeys(without)))
    if not cells:
        raise UsageError("No row of the recipe is both of this method and on this data set.")
    return run_cells(cells, place, note) if workers == 1 else run_in_workers(cells, place, workers)


def print_tables(recipes: list[Recipe], place: Place, choice: Choice, as_markdown: bool) -> None:
    """Print the table of each recipe, and draw its plot."""
    results = read_results(place.out)
    page = [page_head(place.out)] if len(recipes) > 1 else []
    for recipe in recipes:
        _, gone = sets_at_hand(recipe, choice.data, place.root)
        lines = lines_of(recipe, results, choice, gone)
        if as_markdown:
            page.append(markdown(recipe, lines, results))
            continue
        stdout().print(styled((recipe.name, "bold"), f": {recipe.title}"), highlight=False)
        for data, own in groupby(lines, lambda line: line.data):
            stdout().print(_table(data, own))
        file = draw_recipe(recipe, results, choice, place.out / "pictures")
        for words in (recipe.note, measured_on(recipe, results), f"Plot: {file}" if file else ""):
            if words:
                note(words)
    if page and as_markdown:
        print("\n\n".join(page))


def print_settings(recipes: list[Recipe], choice: Choice) -> None:
    """Print what the paper's text states, what its authors' code does and what we run, for each row."""
    for recipe in recipes:
        for (data, row), own in groupby(settings_of(recipe, choice), lambda cells: cells[:2]):
            table = plain_table(*SETTINGS_HEAD[2:], title=f"{recipe.name}, {data}, {row}")
            for cells in own:
                table.add_row(*cells[2:])
            stdout().print(table)
    note("* is neither as the paper states nor as its authors' code does.")


def _table(data: str, lines: Iterable[Line]) -> Table:
    """Return the table of one data set, each row's name once."""
    table = plain_table(*HEAD[1:3], *(f">{head}" for head in HEAD[3:6]), *HEAD[6:], title=data)
    for row, own in groupby(lines, lambda line: line.row):
        for first, line in zip(chain([row], repeat("")), own, strict=False):
            table.add_row(first, *line.words()[2:])
    return table


def list_recipes(name: str | None, place: Place, choice: Choice) -> None:
    """Print every recipe: what data it takes, whether that is at hand, how much of it was run."""
    done = {entry["key"] for entry in read_results(place.out)}
    for recipe in find_recipes(name) if name else [read_recipe(path) for path in recipe_files().values()]:
        for line in _listed(recipe, place, choice, done):
            stdout().print(line, highlight=False)
    note(
        "labelwise reproduce NAME runs one or all of a paper; minutes with ~ are estimates. A stand-in replaces data that is "
        "missing; labelwise data where NAME says how to get that."
    )


def _listed(recipe: Recipe, place: Place, choice: Choice, done: set[str]) -> list[Text]:
    """Return the lines of one recipe."""
    _, gone = sets_at_hand(recipe, tuple(recipe.data), place.root)
    lines = [styled((recipe.name, "bold"), f"  {recipe.title}")]
    for name in recipe.data:
        every = list(cells_of(recipe, replace(choice, data=()), [name]))
        run = sum(cell.key in done for cell in every)
        stands = recipe.data[name].stands_for
        state = ("missing", "red") if name in gone else f"stands in for {stands}" if stands else ("at hand", "green")
        lines.append(styled(f"    {name}: ", state, f", {run} of {len(every)} cells run"))
    cost = recipe.cost
    about = "" if cost.measured else "~"
    size = f"{about}{cost.minutes:g} minutes and {about}{cost.memory_mib} MiB a cell"
    return [*lines, styled("    ", (f"{size} on {cost.machine}", "dim"))]
