"""How much memory the content of a file may take, asked of its headers before anything is unpacked; and how many threads compute."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from threadpoolctl import threadpool_limits

from labelwise.support.errors import DataError, LabelwiseError, UsageError

VARIABLE = "LABELWISE_MAX_GB"
SHARE = 0.5  # of this machine's memory, where nothing else is said
CHUNK = 1 << 20  # bytes unpacked at a time
_THREADS = [0]  # of this process; 0 is not set
_MAX_GB: ContextVar[float | None] = ContextVar("max_gb", default=None)


class Stream(Protocol):
    """What is read from."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, so many at most."""


def check_size(file: str | Path, size: float, error: type[LabelwiseError] = DataError) -> None:
    """Raise an error if what a file holds would take more bytes of memory than is allowed, see ``max_bytes``."""
    if size > (most := max_bytes()):
        raise error(
            f'"{file}" would take {size / 1e9:.3g} GB of memory, and {most / 1e9:.3g} GB are allowed. Where you trust the file, '
            f"allow more: labelwise --max-gb {max(1, -int(-size // 1e9))}, max_gb= in Python, or the variable {VARIABLE}."
        )


def max_bytes() -> float:
    """Return how many bytes may be taken: as ``at_most`` says, or the variable ``LABELWISE_MAX_GB``, or half of the memory."""
    limit = _MAX_GB.get()
    if limit is None and (words := os.environ.get(VARIABLE)):
        with suppress(ValueError):
            limit = float(words)
        if limit is None or not limit > 0:
            raise UsageError(f"{VARIABLE} must be a number of gigabytes above 0; given {words!r:.40}.")
    return SHARE * memory() if limit is None else limit * 1e9


def threads() -> int:
    """Return how many threads this process computes with: as ``set_threads`` says, by default one for each core it may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _THREADS[0] or cores


def set_threads(count: int) -> None:
    """Let this process compute with so many threads, as where several processes share the cores."""
    _THREADS[0] = count


@contextmanager
def at_most(max_gb: float | None) -> Iterator[None]:
    """While open, files may take so many gigabytes of memory; None leaves the limit as it is."""
    if max_gb is not None and not max_gb > 0:
        raise UsageError(f"max_gb must be a number of gigabytes above 0; given {max_gb}.")
    token = _MAX_GB.set(_MAX_GB.get() if max_gb is None else max_gb)
    try:
        yield
    finally:
        _MAX_GB.reset(token)


def unpack(stream: Stream, file: str | Path) -> bytes:
    """Return all that a stream unpacks to; counted on the way, for what headers say of it may be a lie."""
    content = bytearray()
    while part := stream.read(CHUNK):
        content += part
        check_size(file, len(content))
    return bytes(content)


@cache
def memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its container's where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # none there, or "max"
            total = min(total, int(Path(file).read_text()))
    return total


P = ParamSpec("P")
R = TypeVar("R")


def on_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose linear algebra runs on one thread."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with threadpool_limits(1, "blas"):
            return function(*args, **kwargs)

    return limited
