"""Verbs about benchmarks: where they are to be had, and getting them."""

from typing import Annotated

from typer import Argument

from labelwise.cli.options import Root
from labelwise.cli.output import out
from labelwise.errors import UsageError

Name = Annotated[str, Argument(help="The name of a benchmark.")]


def where(name: Name, root: Root = None) -> None:
    """What to download for a benchmark, from where, and where to put it."""
    from labelwise_papers.benchmarks import where as run

    print(run(name, root))


def get(name: Name, root: Root = None) -> None:
    """Download a benchmark whose official address is stable; resumes, and checks the checksum."""
    from labelwise_papers.benchmarks import data_root, download, find_entry
    from labelwise_papers.benchmarks import where as words

    entry = find_entry(name)
    if not entry.remotes:
        raise UsageError(f"{name} cannot be downloaded by itself.\n{words(name, root)}")
    folder = download(entry, data_root(root))
    out().print(f"[bold]{name}[/] is in {folder}. Licence: {entry.licence}. Cite: {entry.citation}")
