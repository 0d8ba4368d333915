"""Verbs about data: list, where, get, check, split, encode, zero-shot."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.output import note, out, plain_table, print_json
from labelwise.errors import UsageError

app = typer.Typer(name="data", help="Find, check, split and encode data.", no_args_is_help=True)

Data = Annotated[
    str, typer.Argument(help="A folder, table, pack or feature file, or the name of a set.", show_default=False)
]
Name = Annotated[str, typer.Argument(help="The name of a benchmark.", show_default=False)]
Root = Annotated[
    Path | None, typer.Option("--data-root", help="The folder of all benchmarks; else the variable LABELWISE_DATA.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Size = Annotated[int | None, typer.Option(min=8, help="Side in pixels that pictures are brought to.")]


@app.command("list")
def list_(root: Root = None, json: AsJson = False) -> None:
    """Every set that loads by name, and which of them are here."""
    from labelwise.data import EMBEDDED
    from labelwise.data.benchmarks import list_benchmarks

    rows = list_benchmarks(root)
    if json:
        print_json({"embedded": sorted(EMBEDDED), "benchmarks": [asdict(row) for row in rows]})
        return
    table = plain_table("name", "", ">classes", ">train", ">test", "found")
    for name in sorted(EMBEDDED):
        table.add_row(name, "images", "", "", "", "[green]embedded[/]")
    for row in rows:
        counts = (f"{n:,}" if n else "" for n in (row.classes, row.train, row.test))
        table.add_row(row.name, row.what, *counts, Path(row.found).name if row.found else "[dim]missing[/]")
    out().print(table)
    note("labelwise data where NAME says what to download, where to put it, and the licence.")


@app.command()
def where(name: Name, root: Root = None) -> None:
    """What to download for a benchmark, from where, and where to put it."""
    from labelwise.data.benchmarks import where as run

    print(run(name, root))


@app.command()
def get(name: Name, root: Root = None) -> None:
    """Download a benchmark whose official address is stable; resumes, and checks the checksum."""
    from labelwise.data.benchmarks import data_root, download, find_entry
    from labelwise.data.benchmarks import where as words

    entry = find_entry(name)
    if not entry.remotes:
        raise UsageError(f"{name} cannot be downloaded by itself.\n{words(name, root)}")
    folder = download(entry, data_root(root))
    out().print(f"[bold]{name}[/] is in {folder}. Licence: {entry.licence}. Cite: {entry.citation}")


@app.command()
def check(
    data: Data,
    sheet: Annotated[Path | None, typer.Option(help="A PNG to write with some pictures of each label.")] = None,
    size: Size = None,
    root: Root = None,
    json: AsJson = False,
) -> None:
    """What is in it: counts, sizes, unreadable files, duplicates, leaks, what is known of labels, what can train."""
    from labelwise.data import load
    from labelwise.data.inspect import contact_sheet, inspect, lines, missing_pieces
    from labelwise.methods import METHODS

    dataset = load(data, size=size, root=root)
    found = inspect(dataset)
    needs = {name: method.needs for name, method in METHODS.items()}
    if sheet is not None:
        contact_sheet(dataset, sheet)
        note(f"Wrote {sheet}")
    if json:
        missing = missing_pieces(found, needs)
        print_json({**asdict(found), "methods": {name: list(pieces) for name, pieces in missing.items()}})
        return
    for line in lines(found, needs):
        print(line)


@app.command()
def split(
    data: Data,
    out_csv: Annotated[Path, typer.Option("--out", help="The CSV to write: file, label, split.", show_default=False)],
    kind: Annotated[str, typer.Option(help="stratified, grouped, domain or zero-shot.")] = "stratified",
    held: Annotated[str | None, typer.Option(help="The domain to hold out, for --kind domain.")] = None,
    seed: int = 0,
    root: Root = None,
) -> None:
    """Divide data anew and save the split as a table you can read and edit; use it with fit --split."""
    from labelwise.data import load
    from labelwise.data.resplitting import divide
    from labelwise.data.split_files import write_split

    done = divide(load(data, root=root), kind, held, seed)
    write_split(done, out_csv)
    counts = ", ".join(f"{len(part)} {name}" for name, part in done.splits.items())
    out().print(f"[bold]{out_csv}[/]: {counts}")
