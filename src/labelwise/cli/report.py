"""The verb report: one page about a classifier."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.markup import escape
from typer import Option

from labelwise.cli.inputs import open_data
from labelwise.cli.options import Data, Measured, Model, SplitName, Unknown, command_line, shared_options
from labelwise.cli.output import one_line, show, styled, warn
from labelwise.support.errors import UsageError, listing
from labelwise.support.text import visible
from labelwise.support.writable import check_writable

if TYPE_CHECKING:
    from labelwise.reporting.case import Saved


def report(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    out_html: Annotated[Path, Option("--out", help="The page to write.")] = Path("report.html"),
    compare: Annotated[list[Path] | None, Option(help="Another classifier to compare with; repeatable.")] = None,
    unknown: Unknown = None,
    split: SplitName = None,
    *,
    measured: Measured,
) -> None:
    """Write one HTML page of figures, curves and examples."""
    from labelwise.images.catalogue import load_unlabelled
    from labelwise.reporting.page import ReportSettings, make_report, open_saved

    options = shared_options()
    if out_html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out takes an .html file; given {out_html}.")
    check_writable(out_html)
    folders = [model, *(compare or [])]
    with Console(stderr=True, quiet=not options.progress).status("report: reading classifiers and data") as status:
        classifiers = dict(zip(_names(folders), [open_saved(folder) for folder in folders], strict=True))
        reader = cache(lambda _: open_data(data, None))
        (name, first), *rivals = classifiers.items()
        settings = ReportSettings(
            split=split,
            unknown=None if unknown is None else lambda _: load_unlabelled(unknown, options.root),
            compare=dict(rivals),
            name=name,
            commands=(*_fit_commands(classifiers.values()), command_line()),
            protocols=measured.protocols,
            seed=options.seed,
            tell=lambda text: status.update(escape(visible(text))),
        )
        page = make_report(first, reader, settings)
        page.write(out_html)
    figures = page.figures
    if figures["leaked"]:
        warn(figures["warnings"][0])
    lines = [one_line(figures["measured"]["words"])]
    if unknown is not None:
        lines.append(one_line(f"As unknown: {figures['measured_unknown']['words']}"))
    description = f": {page.title}, {figures['images']} images ({out_html.stat().st_size / 1000:,.0f} kB)"
    lines.append(styled((str(out_html), "bold"), description))
    show({**figures, "out": str(out_html)}, *lines)


def _names(models: list[Path]) -> list[str]:
    """Return a name per classifier: its folder name, or the whole path if two are equal."""
    resolved = [path.resolve() for path in models]
    if len(set(resolved)) < len(resolved):
        raise UsageError(f"--compare takes other classifiers, each once; given {listing(map(str, models))}.")
    short = [path.name for path in resolved]
    return [str(path) if short.count(name) > 1 else name for path, name in zip(models, short, strict=True)]


def _fit_commands(classifiers: Iterable["Saved"]) -> list[str]:
    """Return the commands that fitted the classifiers, if recorded."""
    commands = []
    for classifier in (entry.classifier for entry in classifiers):
        if command := classifier.origin.summary.get("command"):
            taught_labels = set(classifier.labels.names) - set(classifier.head.labels.names) - classifier.unseen
            commands.append(f"{command}{'  # labels were taught afterwards' if taught_labels else ''}")
    return commands
