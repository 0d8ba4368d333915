"""The errors a user can meet. Each says what is wrong, what was given and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

COMPARED, LONGEST = 5_000, 200  # names, and letters of each, that are compared with one that is not known


class LabelwiseError(Exception):
    """Root of every error this library raises on purpose; its text is written for the user."""


class DataError(LabelwiseError):
    """The data cannot be read or does not fit what is asked of it."""


class UsageError(LabelwiseError):
    """The request itself is wrong: an unknown name, an unknown setting, a value out of range."""


class StoreError(LabelwiseError):
    """A saved classifier or checkpoint is missing, damaged, or from another version."""


class UnsupportedError(LabelwiseError):
    """This model cannot answer this question; the text says why."""


class Interrupted(LabelwiseError):  # noqa: N818 - an interruption is not a fault
    """A signal stopped it; the text says how to go on."""


class LabelwiseWarning(UserWarning):
    """Something a user should know, though it is no error."""


def needs_torch(what: str, error: ModuleNotFoundError) -> UsageError:
    """Return the error for what needs torch, which is not installed; a module that is missing otherwise is raised as it is."""
    if error.name != "torch":
        raise error
    return UsageError(f'{what} needs torch, which is not installed: pip install "labelwise[train]".')


def suggest(given: str, known: Iterable[str]) -> str:
    """Return ' Did you mean "x"?' for the nearest known name, or an empty string."""
    short = [name for name in islice(known, COMPARED) if len(name) <= LONGEST]
    near = get_close_matches(given, short, n=1, cutoff=0.5) if len(given) <= LONGEST else []
    return f' Did you mean "{near[0]}"?' if near else ""


def listing(names: Iterable[str], most: int = 12) -> str:
    """Return the names joined by commas, cut after ``most`` with a count of the rest."""
    every = list(names)
    rest = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + rest
