"""What the command line prints: results on standard output, everything else on standard error."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from json import dumps
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from labelwise.errors import LabelwiseWarning
from labelwise.settings import describe

PLOTS = (".png", ".svg", ".pdf")  # what a curve or another plot is written as
BAR = 20  # how wide a bar is


def out() -> Console:
    """Return the console for results."""
    return Console(soft_wrap=False)


def note(text: str) -> None:
    """Tell the user something beside the result."""
    Console(stderr=True, highlight=False).print(Text(text))


def fail(error: Exception, code: int) -> int:
    """Print an error and return the exit code."""
    Console(stderr=True, highlight=False).print(
        Text("Error: ", style="bold red").append(str(error), style="not bold default")
    )
    return code


@contextmanager
def show_warnings() -> Iterator[None]:
    """Show warnings of this library as lines for the user while open, without the line of code they come from."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, LabelwiseWarning):
                note(f"Warning: {message}")
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


def show(document: Any, *lines: RenderableType, json: bool) -> None:
    """Print a result: as one JSON document if asked for, or as tables and lines for people, those by ``unbroken`` not folded."""
    if json:
        print(dumps(document, ensure_ascii=False, indent=1))
        return
    for line in lines:
        out().print(line, soft_wrap=isinstance(line, Text) and bool(line.no_wrap))


def unbroken(text: str) -> Text:
    """Return a line that is printed as one, however long it is."""
    return Text(text, no_wrap=True)


def plain_table(*columns: str, title: str | None = None, rows: Iterable[Sequence[RenderableType]] = ()) -> Table:
    """Return a table with these column heads and rows; columns that start with ``>`` are aligned to the right."""
    table = Table(
        title=title, title_justify="left", header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def bar(share: float) -> Text:
    """Return a share in [0, 1] drawn as a bar."""
    eighths = round(max(0.0, min(1.0, share)) * BAR * 8)
    body = "█" * (eighths // 8) + ("" if eighths % 8 == 0 else " ▏▎▍▌▋▊▉"[eighths % 8])
    return Text(body.ljust(BAR), style="cyan")


def percent(share: float) -> str:
    """Return a share as per cent with one digit after the point."""
    return f"{100 * share:.1f} %"


def calibration_line(figures: Mapping[str, Any]) -> str:
    """Return the calibration error before and after, of the chosen label, or of yes/no answers where several may be true."""
    kind = "ece" if "ece_before" in figures else "answer_ece"
    words = " before, ".join(percent(figures[f"{kind}_{when}"]) for when in ("before", "after")) + " after"
    kept = not figures.get("applied", {}).get(kind, True)
    return words + (
        " (calibration would not help on images it was not fitted on: plain scores are kept)" if kept else ""
    )


def settings_table(settings: Any) -> Table:
    """Return the settings of a method and their defaults."""
    return plain_table("setting", "default", rows=describe(settings))


def warn_leaked(share: float, advice: str = ".") -> None:
    """Say that a share of the measured images is no test, where there is one."""
    if share:
        note(f"Warning: {percent(share)} of these images were used to train or calibrate this classifier{advice}")
