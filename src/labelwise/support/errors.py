"""Errors shown to users. Each says what is wrong, what was given and what to do; none shows credentials."""

import errno
import re
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

# Errors of disks and limits, which any other file would meet as well; and those of permissions and names besides.
MACHINE = frozenset(
    getattr(errno, f"E{name}")
    for name in ("IO", "SHUTDOWN", "NOSPC", "DQUOT", "ROFS", "MFILE", "NFILE", "NOMEM", "AGAIN")
)
DISK = MACHINE | {errno.EACCES, errno.EPERM, errno.EFBIG, errno.ENAMETOOLONG}
COMPARED, LONGEST = 5_000, 200  # names, and letters of each, that are compared with one that is not known
_HIDDEN = (  # a user and a password, or a token, before the host of an address; entries of queries and of libpq's words
    re.compile(r"(\b[A-Za-z][\w+.-]*:/{1,2})(?:[^\s/:@\"']*:[^\s\"']*|[^\s/:@\"']+)(@)"),
    re.compile(r"(\b\w*(?:password|passwd|secret|token|signature|sig|access_key)=)[^&\s\"']+()", re.IGNORECASE),
)


def without_credentials(text: str) -> str:
    """Replace the credentials of addresses in a text by stars.

    >>> without_credentials('Cannot reach "postgresql://ann:secret@host/birds".')
    'Cannot reach "postgresql://***@host/birds".'
    """
    for pattern in _HIDDEN:
        text = pattern.sub(r"\1***\2", text)
    return text


class LabelwiseError(Exception):
    """Base of all errors that this library raises on purpose; the text is written for the user."""

    def __init__(self, text: str = "", *more: object) -> None:
        super().__init__(without_credentials(text), *more)


class DataError(LabelwiseError):
    """The data cannot be read, or do not fit the request."""


class UsageError(LabelwiseError):
    """The request itself is wrong: an unknown name, an unknown setting, a value out of range."""


class StoreError(LabelwiseError):
    """A saved classifier or checkpoint is missing, damaged, or from another version."""


class UnsupportedError(LabelwiseError):
    """The model does not support this request; the text says why."""


class Interrupted(LabelwiseError):  # noqa: N818 - an interruption is not a fault
    """A signal stopped the work; the text says how to resume."""


class LabelwiseWarning(UserWarning):
    """Base of the library's warnings."""

    def __init__(self, text: str) -> None:
        super().__init__(without_credentials(text))


def is_of_machine(error: BaseException) -> bool:
    """Return whether the machine failed: a disk, the memory, or a limit."""
    if isinstance(error, OSError):
        return error.errno in MACHINE
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "start new thread" in str(error))


def needs_torch(action: str, error: ModuleNotFoundError) -> UsageError:
    """Return the error for features that need torch, if torch is missing; re-raise if another module is missing."""
    if error.name != "torch":
        raise error
    return UsageError(f'{action} needs torch, which is not installed: pip install "labelwise[train]".')


def suggest(given: str, candidates: Iterable[str], cutoff: float = 0.5) -> str:
    """Return ' Did you mean "x"?' for the nearest known name, or nothing if none is as near as ``cutoff`` (1 is equal)."""
    short = [name for name in islice(candidates, COMPARED) if len(name) <= LONGEST]
    near = get_close_matches(given, short, n=1, cutoff=cutoff) if len(given) <= LONGEST else []
    return f' Did you mean "{near[0]}"?' if near else ""


def listing(names: Iterable[str], most: int = 12) -> str:
    """Return the names joined by commas, cut after ``most`` with a count of the rest."""
    every = list(names)
    ending = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + ending
