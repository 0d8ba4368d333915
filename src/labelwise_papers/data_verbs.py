"""Verbs about benchmarks: where they are to be had, getting them, and zero-shot data made of pictures."""

from pathlib import Path
from typing import Annotated

import typer

from labelwise.cli.options import Data, Device, EncoderName, Root, Seed
from labelwise.cli.output import out
from labelwise.errors import UsageError

Name = Annotated[str, typer.Argument(help="The name of a benchmark.", show_default=False)]


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


def zero_shot(  # noqa: PLR0913 - the options of the verb
    data: Data,
    attributes: Annotated[
        Path, typer.Option(help="A CSV: one row per label, one column per attribute.", show_default=False)
    ],
    out_folder: Annotated[Path, typer.Option("--out", help="The folder to write.", show_default=False)],
    encoder: EncoderName = "auto",
    unseen: Annotated[
        list[str] | None, typer.Option(help="A label to keep out of training; repeat it. Else a quarter.")
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
