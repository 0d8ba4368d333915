"""What takes long to make is made once per run of the tests, by the first worker that asks, and read by the others."""

import fcntl
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

FOLDER = "LABELWISE_TESTS_FOLDER"


def begin() -> None:
    """Make the folder of this run; workers inherit its name."""
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="labelwise-tests-")


def end() -> None:
    """Remove the folder of this run, unless it is another process's."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ.pop(FOLDER, ""), ignore_errors=True)


def folder() -> Path:
    """Return the folder that all workers of this run share."""
    begin()
    return Path(os.environ[FOLDER])


def remember(name: str, make: Callable[[], R]) -> R:
    """Return what ``make`` returns, from a pickle where another worker has called it under this name."""
    path = folder() / f"{name.replace('/', '_')}.pickle"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            result = make()
            path.write_bytes(pickle.dumps(result))
            return result
        return pickle.loads(path.read_bytes())  # type: ignore[no-any-return]


def once(make: Callable[P, R]) -> Callable[P, R]:
    """Return a function that keeps what it makes of the same arguments as a pickle for all workers."""

    @cache
    @wraps(make)
    def kept(*words: P.args, **named: P.kwargs) -> R:
        name = "-".join([make.__module__, make.__qualname__, *map(str, words), *map(str, named.items())])
        return remember(name, lambda: make(*words, **named))

    return kept  # type: ignore[return-value]
