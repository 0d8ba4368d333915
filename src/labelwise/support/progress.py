"""A bar on standard error while something is gone through, where a person looks at it."""

import sys
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def with_bar(parts: Iterable[T], count: int, words: str) -> Iterable[T]:
    """Return so many parts, with a bar while they are gone through; none for one part alone."""
    if count < 2 or not sys.stderr.isatty():
        return parts
    from rich.console import Console
    from rich.progress import track

    return track(parts, words, count, console=Console(stderr=True), transient=True)
