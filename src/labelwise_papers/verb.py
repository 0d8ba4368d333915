"""The verbs of papers: reproduce runs their tables and figures, data where and data get are about benchmarks, data zero-shot makes one."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain, groupby, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from typer import Argument, Option

from labelwise.cli.options import Data, Device, EncoderName, Root, Seed
from labelwise.cli.output import note, out, plain_table
from labelwise.errors import DataError, LabelwiseError, UsageError, listing

if TYPE_CHECKING:
    from labelwise_papers.recipe import Recipe
    from labelwise_papers.reproduce.cells import Choice
    from labelwise_papers.reproduce.running import Place
    from labelwise_papers.reproduce.table import Line

Benchmark = Annotated[str, Argument(help="The name of a benchmark.")]
NAME_HELP = "paper/table such as indicator/table2, a paper (all of it), or a .toml file."


def reproduce(  # noqa: PLR0913 - the options of the verb
    name: Annotated[str | None, Argument(help=NAME_HELP)] = None,
    only: Annotated[list[str] | None, Option(help="Only this data set; repeat it for more.")] = None,
    method: Annotated[list[str] | None, Option(help="Only rows of this method or name; repeat it for more.")] = None,
    seeds: Annotated[int | None, Option(min=1, help="Another number of seeds than the recipe's.")] = None,
    quick: Annotated[bool, Option("--quick", help="Tiny data and networks: shows in seconds that it works.")] = False,
    root: Root = None,
    folder: Annotated[
        Path | None,
        Option("--out", help='Results, checkpoints and pictures; left out, "results", and nothing is kept of --quick.'),
    ] = None,
    workers: Annotated[int, Option(min=1, help="Cells run at a time.")] = 1,
    device: Device = "auto",
    list_: Annotated[bool, Option("--list", help="Every recipe, its data, and what has been run.")] = False,
    table: Annotated[bool, Option("--table", help="Print what has been run; run nothing.")] = False,
    markdown: Annotated[bool, Option("--markdown", help="The same as Markdown, for a page.")] = False,
) -> None:
    """Run a table or figure of a paper, and set it beside the paper's; run it again, and it goes on where it was stopped."""
    from labelwise_papers.reproduce.cells import Choice, check_choice
    from labelwise_papers.reproduce.running import Place

    choice = Choice(data=tuple(only or ()), methods=tuple(method or ()), seeds=seeds, quick=quick)
    place = Place(out=folder or Path("results"), root=root, device=device)
    if list_:
        _list(name, place, choice)
        return
    recipes = _recipes(name, place, every=table or markdown)
    if quick:
        from labelwise_papers.reproduce.quick import quick as small

        recipes = [small(recipe) for recipe in recipes]
    check_choice(recipes, choice)
    with TemporaryDirectory() as passing:
        place = replace(place, out=Path(passing)) if quick and folder is None else place
        failures = [] if table or markdown else _run(recipes, place, choice, workers)
        _print(recipes, place, choice, markdown)
    if failures:
        raise LabelwiseError(f"{len(failures)} not done:\n" + "\n".join(failures))


def _recipes(name: str | None, place: "Place", *, every: bool) -> "list[Recipe]":
    """Return the recipes of a name; without one, where results are only shown, all that have some."""
    from labelwise_papers.recipe import find_recipes, recipe_files
    from labelwise_papers.reproduce.results import read_results

    if name is not None:
        return find_recipes(name)
    if not every:
        raise UsageError(f"Which recipe? Give {NAME_HELP} labelwise reproduce --list shows all.")
    measured = {entry["recipe"] for entry in read_results(place.out)}
    return [recipe for each in recipe_files() if each in measured for recipe in find_recipes(each)]


def _run(recipes: "list[Recipe]", place: "Place", choice: "Choice", workers: int) -> list[str]:
    """Run what is not done yet; return what failed or is missing. Data that is missing does not stop other tables."""
    from labelwise_papers.reproduce.cells import cells_of
    from labelwise_papers.reproduce.running import run_cells, run_in_workers
    from labelwise_papers.reproduce.sources import sets_at_hand

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


def _print(recipes: "list[Recipe]", place: "Place", choice: "Choice", as_markdown: bool) -> None:
    """Print the table of each recipe, and draw its picture."""
    from labelwise_papers.reproduce.pictures import draw_recipe
    from labelwise_papers.reproduce.results import read_results
    from labelwise_papers.reproduce.sources import sets_at_hand
    from labelwise_papers.reproduce.table import lines_of, markdown, measured_on

    results = read_results(place.out)
    for recipe in recipes:
        _, gone = sets_at_hand(recipe, choice.data, place.root)
        lines = lines_of(recipe, results, choice, gone)
        if as_markdown:
            print(markdown(recipe, lines, results) + "\n")
            continue
        out().print(f"[bold]{recipe.name}[/]: {recipe.title}", highlight=False)
        for data, own in groupby(lines, lambda line: line.data):
            out().print(_table(data, own))
        file = draw_recipe(recipe, results, choice, place.out / "pictures")
        for words in (recipe.note, measured_on(recipe, results), f"Picture: {file}" if file else ""):
            if words:
                note(words)


def _table(data: str, lines: Iterable["Line"]) -> Table:
    """Return the table of one data set, each row's name once."""
    from labelwise_papers.reproduce.table import HEAD

    table = plain_table(*HEAD[1:3], *(f">{head}" for head in HEAD[3:6]), *HEAD[6:], title=data)
    for row, own in groupby(lines, lambda line: line.row):
        for first, line in zip(chain([row], repeat("")), own, strict=False):
            table.add_row(first, *line.words()[2:])
    return table


def _list(name: str | None, place: "Place", choice: "Choice") -> None:
    """Print every recipe: what data it takes, whether that is at hand, how much of it was run."""
    from labelwise_papers.recipe import find_recipes, recipe_files
    from labelwise_papers.reproduce.results import read_results

    done = {entry["key"] for entry in read_results(place.out)}
    for recipe in find_recipes(name) if name else [recipe for each in recipe_files() for recipe in find_recipes(each)]:
        for line in _listed(recipe, place, choice, done):
            out().print(line, highlight=False)
    note(
        "labelwise reproduce NAME runs one or all of a paper; minutes with ~ are estimates. A stand-in replaces data that is "
        "missing; labelwise data where NAME says how to get that."
    )


def _listed(recipe: "Recipe", place: "Place", choice: "Choice", done: set[str]) -> list[str]:
    """Return the lines of one recipe."""
    from labelwise_papers.reproduce.cells import cells_of
    from labelwise_papers.reproduce.sources import sets_at_hand

    _, gone = sets_at_hand(recipe, tuple(recipe.data), place.root)
    lines = [f"[bold]{recipe.name}[/]  {recipe.title}"]
    for name in recipe.data:
        every = list(cells_of(recipe, replace(choice, data=()), [name]))
        run = sum(cell.key in done for cell in every)
        stands = recipe.data[name].stands_for
        words = "[red]missing[/]" if name in gone else f"stands in for {stands}" if stands else "[green]at hand[/]"
        lines.append(f"    {name}: {words}, {run} of {len(every)} cells run")
    cost = recipe.cost
    about = "" if cost.measured else "~"
    size = f"{about}{cost.minutes:g} minutes and {about}{cost.memory_mib} MiB a cell"
    return [*lines, f"    [dim]{size} on {cost.machine}[/]"]


def where(name: Benchmark, root: Root = None) -> None:
    """What to download for a benchmark, from where, and where to put it."""
    from labelwise_papers.benchmarks import where as run

    print(run(name, root))


def get(name: Benchmark, root: Root = None) -> None:
    """Download a benchmark whose official address is stable; resumes, and checks the checksum."""
    from labelwise_papers.benchmarks import data_root, download, find_entry
    from labelwise_papers.benchmarks import where as words

    entry = find_entry(name)
    if not entry.remotes:
        raise UsageError(f"{name} cannot be downloaded by itself.\n{words(name, root)}")
    folder = download(entry, data_root(root))
    out().print(f"[bold]{name}[/] is in {folder}. Licence: {entry.licence}. Cite: {entry.citation}")


def zero_shot(  # noqa: PLR0913 - the options of the verb
    data: Data,
    attributes: Annotated[Path, Option(help="A CSV: one row per label, one column per attribute.")],
    out_folder: Annotated[Path, Option("--out", help="The folder to write.")],
    encoder: EncoderName = "auto",
    unseen: Annotated[
        list[str] | None, Option(help="A label to keep out of training; repeat it. Else a quarter.")
    ] = None,
    seed: Seed = 0,
    root: Root = None,
    device: Device = "auto",
) -> None:
    """Make a zero-shot data set of pictures and one table of attributes, as the .mat files that other codes read too."""
    from labelwise.cli.data import read_features
    from labelwise.data.labels.knowledge import read_knowledge
    from labelwise.writable import check_writable
    from labelwise_papers.benchmarks.xlsa17 import build_zero_shot, write_xlsa17

    check_writable(out_folder)
    if out_folder.exists() and any(out_folder.iterdir()):
        raise UsageError(f"{out_folder} exists and is not empty; choose another folder.")
    known = read_knowledge(attributes)
    features = read_features(data, encoder, None, root, device)
    result = build_zero_shot(features, known, unseen=unseen or 0.25, seed=seed)
    write_xlsa17(out_folder, result)
    counts = ", ".join(f"{len(rows)} {part}" for part, rows in result.rows.items())
    out().print(
        f"[bold]{out_folder}[/]: {len(result.seen)} seen and {len(result.unseen)} unseen labels; images {counts}"
    )
