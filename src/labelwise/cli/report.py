"""The verb report: one page about a classifier."""

import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console
from rich.markup import escape
from typer import Option

from labelwise.cli.inputs import open_data
from labelwise.cli.options import Data, Model, SplitName, Unknown, shared
from labelwise.cli.output import one_line, show, styled, warn
from labelwise.support.display import visible
from labelwise.support.errors import UsageError, listing

if TYPE_CHECKING:
    from labelwise.reporting.case import Saved


def report(
    model: Model,
    data: Data,
    out_html: Annotated[Path, Option("--out", help="The page to write.")] = Path("report.html"),
    compare: Annotated[list[Path] | None, Option(help="Another classifier to compare with; repeatable.")] = None,
    unknown: Unknown = None,
    split: SplitName = None,
) -> None:
    """Write one HTML page of figures, curves and examples."""
    from labelwise.images.catalogue import load_unlabelled
    from labelwise.reporting.page import ReportSettings, make_report, open_saved

    options = shared()
    if out_html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"A report is written as .html; given {out_html}.")
    folders = [model, *(compare or [])]
    with Console(stderr=True, quiet=not options.progress).status("report: reading classifiers and data") as status:
        saved = dict(zip(_names(folders), [open_saved(folder) for folder in folders], strict=True))
        reader = cache(lambda _: open_data(data, None))
        dataset = reader(next(iter(saved.values())).classifier)
        places = _options(data_root=options.root, splits=options.splits)
        words = [word for folder in folders[1:] for word in _options(compare=folder)]
        words += _options(unknown=unknown, split=split, seed=options.seed or None)
        again = shlex.join(["labelwise", "report", str(model), data, "--out", str(out_html), *words, *places])
        (name, first), *others = saved.items()
        settings = ReportSettings(
            split=split,
            unknown=None if unknown is None else lambda _: load_unlabelled(unknown, options.root),
            compare=dict(others),
            name=name,
            commands=(*_fit_commands(folders, list(saved.values()), (data, dataset.name), places), again),
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
    about = f": {page.title}, {figures['images']} images ({out_html.stat().st_size / 1000:,.0f} kB)"
    lines.append(styled((str(out_html), "bold"), about))
    show({**figures, "out": str(out_html)}, *lines)


def _names(models: list[Path]) -> list[str]:
    """Return a name for each classifier: that of its folder, or the whole path where two folders have one name."""
    whole = [path.resolve() for path in models]
    if len(set(whole)) < len(whole):
        raise UsageError(f"A classifier is compared with others, not with itself; given {listing(map(str, models))}.")
    short = [path.name for path in whole]
    return [str(path) if short.count(name) > 1 else name for path, name in zip(models, short, strict=True)]


def _options(**values: object) -> list[str]:
    """Return options as words of a command; those that are None are left out."""
    pairs = ((f"--{name.replace('_', '-')}", str(value)) for name, value in values.items() if value is not None)
    return [word for pair in pairs for word in pair]


def _fit_commands(folders: list[Path], saved: list["Saved"], data: tuple[str, str], places: list[str]) -> list[str]:
    """Return the commands that fitted the classifiers, as far as they know their settings.

    ``data`` is their name in the shell, and their own name; a classifier of other data is fitted on those.
    """
    from labelwise.reporting.repeat import fit_command

    commands = []
    for folder, one in zip(folders, saved, strict=True):
        classifier = one.classifier
        trained = str(classifier.origin.summary.get("training", {}).get("data", data[1]))
        command = fit_command(classifier, data[0] if trained == data[1] else trained, str(folder), places)
        if command is not None:
            taught = set(classifier.labels.names) - set(classifier.head.labels.names) - classifier.unseen
            commands.append(command + ("  # and labels were taught afterwards" if taught else ""))
    return commands
