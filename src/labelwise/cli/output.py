"""Print results on standard output and everything else on standard error."""

import codecs
import io
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from labelwise.cli.options import shared_options
from labelwise.support.errors import LabelwiseWarning
from labelwise.support.text import as_json, visible

PLOTS = (".png", ".svg", ".pdf")  # file formats of plots
BAR, LEAST_BAR = 20, 4  # width of a bar in characters, and on a narrow terminal
LONG_HEAD = 12  # characters of a head of numbers that is broken where room is short
WIDEST = 10_000  # to measure the natural width of a table


class Terminal(Console):
    """A console that prints text literally: it reads no markup and escapes control characters.

    Use ``styled`` to give text a style; it is the only way to make rich text here.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=not stderr)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a line or a cell as rich text."""
        return super().render_str(visible(text), **options)


def styled(*parts: str | tuple[str, str]) -> Text:
    """Return a line of parts, each a text or a pair of text and style: ``styled((name, "bold"), ": 3 labels")``."""
    return Text.assemble(*(visible(part) if isinstance(part, str) else (visible(part[0]), part[1]) for part in parts))


def escape_unencodable() -> None:
    """Make standard output and error accept every character: escape or simplify what their encoding lacks."""
    codecs.register_error("labelwise", _written_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="labelwise")


def _written_out(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    part = visible(error.object[error.start : error.end])
    plain = ("-" if "\u2500" <= sign <= "\u257f" else "#" if "\u2580" <= sign <= "\u259f" else sign for sign in part)
    return "".join(plain).encode("ascii", "backslashreplace").decode(), error.end


def stdout() -> Console:
    """Return the console for results."""
    return Terminal()


def note(text: str) -> None:
    """Print a note on standard error, unless --quiet."""
    if not shared_options().quiet:
        warn(text)


def warn(text: str) -> None:
    """Print a warning on standard error, also with --quiet."""
    Terminal(stderr=True).print(Text(visible(text, lines=True)))


def fail(error: Exception, code: int) -> int:
    """Print an error and return the exit code."""
    Terminal(stderr=True).print(
        Text("Error: ", style="bold red").append(visible(str(error), lines=True), style="not bold default")
    )
    return code


@contextmanager
def show_warnings() -> Iterator[None]:
    """Print warnings of this library as plain lines while open, without their code location."""
    with warnings.catch_warnings():
        previous = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **rest_of_arguments: Any) -> None:
            if issubclass(category, LabelwiseWarning):
                warn(f"Warning: {message}")
            else:
                previous(message, category, *place, **rest_of_arguments)

        warnings.showwarning = show
        yield


class Bar:
    """A share in [0, 1], drawn as a bar that becomes narrower if the table does not fit."""

    def __init__(self, share: float) -> None:
        self.share = max(0.0, min(1.0, share))
        self.width = BAR

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        eighths = round(self.share * self.width * 8)
        body = "█" * (eighths // 8) + ("" if eighths % 8 == 0 else " ▏▎▍▌▋▊▉"[eighths % 8])
        yield Text(body.ljust(self.width), style="cyan")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self.width, self.width)


def fit_table(table: Table, console: Console) -> None:
    """Give names more room in a table that is too wide: shorten its bars and break the heads of its numbers."""
    excess = Measurement.get(console, console.options.update(max_width=WIDEST), table).maximum - console.width
    for column in table.columns if excess > 0 else ():
        if column.justify == "right" and isinstance(column.header, str) and len(column.header) > LONG_HEAD:
            column.header = Text(visible(column.header).replace(" ", "\n"))
        for cell in column.cells:
            if isinstance(cell, Bar):
                cell.width = max(LEAST_BAR, BAR - excess)


def show(document: Any, *lines: RenderableType) -> None:
    """Print a result: one JSON document with --json, otherwise tables and lines."""
    if shared_options().json:
        print(as_json(document, indent=1, ascii_only=not (sys.stdout.encoding or "").lower().startswith("utf")))
        return
    for line in lines:
        if isinstance(line, Table):
            fit_table(line, stdout())
        stdout().print(line, soft_wrap=isinstance(line, Text) and bool(line.no_wrap))


def one_line(text: str) -> Text:
    """Return a line that is never wrapped."""
    return Text(visible(text), no_wrap=True)


def plain_table(*columns: str, title: str | None = None, rows: Iterable[Sequence[RenderableType]] = ()) -> Table:
    """Return a table; columns whose head starts with ``>`` are right-aligned."""
    table = Table(
        title=title, title_justify="left", header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def percent(share: float) -> str:
    """Format a share as a percentage with one decimal."""
    return f"{100 * share:.1f} %"


def calibration_line(figures: Mapping[str, Any]) -> str:
    """Describe the calibration error before and after calibration."""
    kind, whose = ("ece", "Probabilities") if "ece_before" in figures else ("answer_ece", "Probabilities of a yes")
    before, after = (percent(figures[f"{kind}_{moment}"]) for moment in ("before", "after"))
    if not figures.get("applied", {}).get(kind, True):
        reason = "Left uncalibrated: calibration did not help on held-out images"
        return f"{whose} are off by {after} on average (calibration error, ECE). {reason}"
    return f"{whose} are off by {after} on average (calibration error, ECE); before calibration by {before}"


def warn_leaked(share: float, advice: str = ".") -> None:
    """Warn if some of the measured images were used in training."""
    if share:
        warn(f"Warning: {percent(share)} of these images were used to train or calibrate this classifier{advice}")
