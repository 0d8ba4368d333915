"""What the command line prints: results on standard output, everything else on standard error."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from labelwise.errors import LabelwiseWarning


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


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(document, ensure_ascii=False, indent=1))


def plain_table(*columns: str, title: str | None = None) -> Table:
    """Return a table with these column heads; those that start with ``>`` are aligned to the right."""
    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return made


def bar(share: float, width: int = 20) -> Text:
    """Return a share in [0, 1] drawn as a bar."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    body = "█" * (eighths // 8) + ("" if eighths % 8 == 0 else " ▏▎▍▌▋▊▉"[eighths % 8])
    return Text(body.ljust(width), style="cyan")


def percent(share: float) -> str:
    """Return a share as per cent with one digit after the point."""
    return f"{100 * share:.1f} %"
