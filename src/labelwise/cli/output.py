"""What the command line prints: results on standard output, everything else on standard error."""

import codecs
import io
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from labelwise.cli.options import shared
from labelwise.support.errors import LabelwiseWarning
from labelwise.support.text import as_json, visible

PLOTS = (".png", ".svg", ".pdf")  # what a curve or another plot is written as
BAR = 20  # how wide a bar is


class Terminal(Console):
    """A console that shows text as it is: no word of it is markup, and letters that steer a terminal are spelled out.

    A style is given by ``styled``, the only way here to make rich text.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=not stderr)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a line or a cell as rich text."""
        return super().render_str(visible(text), **options)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return a line of parts, each a text or a text and its style: ``styled((name, "bold"), ": 3 labels")``."""
    return Text.assemble(*(visible(part) if isinstance(part, str) else (visible(part[0]), part[1]) for part in parts))


def escape_unencodable() -> None:
    """Let standard output and error take every sign, in whatever encoding: what one lacks is written out or drawn plainly."""
    codecs.register_error("labelwise", _written_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="labelwise")


def _written_out(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    part = visible(error.object[error.start : error.end])
    plain = ("-" if "\u2500" <= sign <= "\u257f" else "#" if "\u2580" <= sign <= "\u259f" else sign for sign in part)
    return "".join(plain).encode("ascii", "backslashreplace").decode(), error.end


def out() -> Console:
    """Return the console for results."""
    return Terminal()


def note(text: str) -> None:
    """Tell the user something beside the result, unless --quiet."""
    if not shared().quiet:
        warn(text)


def warn(text: str) -> None:
    """Tell the user something that must not be missed."""
    Terminal(stderr=True).print(Text(visible(text, lines=True)))


def fail(error: Exception, code: int) -> int:
    """Print an error and return the exit code."""
    Terminal(stderr=True).print(
        Text("Error: ", style="bold red").append(visible(str(error), lines=True), style="not bold default")
    )
    return code


@contextmanager
def show_warnings() -> Iterator[None]:
    """Show warnings of this library as lines for the user while open, without the line of code they come from."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, LabelwiseWarning):
                warn(f"Warning: {message}")
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


def show(document: Any, *lines: RenderableType) -> None:
    """Print a result: with --json as one document, else as tables and lines for people, those by ``one_line`` not folded."""
    if shared().json:
        print(as_json(document, indent=1, ascii_only=not (sys.stdout.encoding or "").lower().startswith("utf")))
        return
    for line in lines:
        out().print(line, soft_wrap=isinstance(line, Text) and bool(line.no_wrap))


def one_line(text: str) -> Text:
    """Return a line that is printed as one, however long it is."""
    return Text(visible(text), no_wrap=True)


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
    """Return how far probabilities are off, after calibration and before: of the chosen label, or of yes/no answers."""
    kind, whose = ("ece", "Probabilities") if "ece_before" in figures else ("answer_ece", "Probabilities of a yes")
    before, after = (percent(figures[f"{kind}_{when}"]) for when in ("before", "after"))
    if not figures.get("applied", {}).get(kind, True):
        why = "Left uncalibrated: calibration did not help on held-out images"
        return f"{whose} are off by {after} on average (calibration error, ECE). {why}"
    return f"{whose} are off by {after} on average (calibration error, ECE); before calibration by {before}"


def warn_leaked(share: float, advice: str = ".") -> None:
    """Say that a share of the measured images is no test, where there is one."""
    if share:
        warn(f"Warning: {percent(share)} of these images were used to train or calibrate this classifier{advice}")
