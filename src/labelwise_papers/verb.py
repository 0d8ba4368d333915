"""The verbs of papers: reproduce runs their tables and figures, data where and data get are about benchmarks, data zero-shot makes one."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from typer import Argument, Option

from labelwise.cli.options import Data, EncoderName, Workers, shared_options
from labelwise.cli.output import stdout, styled
from labelwise.support.errors import LabelwiseError, UsageError

Benchmark = Annotated[str, Argument(help="The name of a benchmark.")]
NAME_HELP = "paper/table such as indicator/table2, a paper, or a .toml."


def reproduce(  # noqa: PLR0913 - the options of the verb
    name: Annotated[str | None, Argument(help=NAME_HELP)] = None,
    only: Annotated[list[str] | None, Option(help="Only this data set, repeatable.")] = None,
    method: Annotated[list[str] | None, Option(help="Only rows of this method or name, repeatable.")] = None,
    seeds: Annotated[int | None, Option(min=1, help="Another number of seeds than the recipe's.")] = None,
    quick: Annotated[bool, Option("--quick", help="Tiny data and networks, to test that it runs.")] = False,
    folder: Annotated[
        Path | None,
        Option("--out", help="A folder for results and checkpoints."),
    ] = None,
    list_: Annotated[bool, Option("--list", help="Every recipe, its data, and what has been run.")] = False,
    table: Annotated[bool, Option("--table", help="Print what has been run; run nothing.")] = False,
    markdown: Annotated[bool, Option("--markdown", help="The same as Markdown, for a page.")] = False,
    settings: Annotated[
        bool, Option("--settings", help="Settings of paper, authors' code and ours; run nothing.")
    ] = False,
) -> None:
    """Run a table or figure of a paper; resumes where it stopped."""
    from labelwise_papers.reproduce.cells import Choice, check_choice
    from labelwise_papers.reproduce.command import list_recipes, print_settings, print_tables, recipes_of, run_recipes
    from labelwise_papers.reproduce.quick import quick as small
    from labelwise_papers.reproduce.running import Place

    choice = Choice(data=tuple(only or ()), methods=tuple(method or ()), seeds=seeds, quick=quick)
    place = Place(out=folder or Path("results"), root=shared_options().root, device=shared_options().device)
    if list_:
        list_recipes(name, place, choice)
        return
    if name is None and not (table or markdown):
        raise UsageError(f"Which recipe? Give {NAME_HELP} labelwise reproduce --list shows all.")
    recipes = [small(recipe) if quick else recipe for recipe in recipes_of(name, place)]
    check_choice(recipes, choice)
    if settings:
        print_settings(recipes, choice)
        return
    with TemporaryDirectory() as passing:
        place = replace(place, out=Path(passing)) if quick and folder is None else place
        failures = (
            []
            if table or markdown
            else run_recipes(recipes, place, choice, (shared_options().workers or Workers()).count or 1)
        )
        print_tables(recipes, place, choice, markdown)
    if failures:
        raise LabelwiseError(f"{len(failures)} not done:\n" + "\n".join(failures))


def where(name: Benchmark) -> None:
    """Show where to download a benchmark, and its licence."""
    from labelwise_papers.benchmarks import where as run

    print(run(name, shared_options().root))


def get(name: Benchmark) -> None:
    """Download a benchmark; resumes and verifies the checksum."""
    from labelwise_papers.benchmarks import data_root, download, find_entry
    from labelwise_papers.benchmarks import where as words

    root = shared_options().root
    entry = find_entry(name)
    if not entry.remotes:
        raise UsageError(f"{name} cannot be downloaded by itself.\n{words(name, root)}")
    folder = download(entry, data_root(root))
    stdout().print(styled((name, "bold"), f" is in {folder}. Licence: {entry.licence}. Cite: {entry.citation}"))


def zero_shot(
    data: Data,
    attributes: Annotated[Path, Option(help="A CSV: one row per label, one column per attribute.")],
    out_folder: Annotated[Path, Option("--out", help="The folder to write.")],
    encoder: EncoderName = "auto",
    unseen: Annotated[list[str] | None, Option(help="A label kept out of training, repeatable.")] = None,
) -> None:
    """Make a zero-shot data set (.mat) of images and attributes."""
    from labelwise.cli.data import read_features
    from labelwise.images.describe.knowledge import read_knowledge
    from labelwise.support.writable import check_writable
    from labelwise_papers.benchmarks.xlsa17 import build_zero_shot, write_xlsa17

    check_writable(out_folder)
    if out_folder.exists() and any(out_folder.iterdir()):
        raise UsageError(f"{out_folder} exists and is not empty; choose another folder.")
    known = read_knowledge(attributes)
    features = read_features(data, encoder, None)
    result = build_zero_shot(features, known, unseen=unseen or 0.25, seed=shared_options().seed)
    write_xlsa17(out_folder, result)
    counts = ", ".join(f"{len(rows)} {part}" for part, rows in result.rows.items())
    about = f": {len(result.seen)} seen and {len(result.unseen)} unseen labels; images {counts}"
    stdout().print(styled((str(out_folder), "bold"), about))
