"""Threads and processes that share work, and how a signal stops them.

Rows are shared only inside ``split_rows_across``, which all processes enter and leave together. Outside, a process has all rows.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
ROWS = 2**16  # rows of a table summed in one message
MOST_THREADS = 8  # that ``parallel_map`` starts
_THREADS = [0]  # of this process; 0 is not set


@dataclass(frozen=True)
class ProcessGroup:
    """The position of this process among those that share the work."""

    rank: int = 0
    world: int = 1

    def own(self, total: int) -> slice:
        """Return this process's share of this many rows, possibly none."""
        return slice(self.rank * total // self.world, (self.rank + 1) * total // self.world)


_GROUP: ContextVar[ProcessGroup | None] = ContextVar("group", default=None)


def threads() -> int:
    """Return the number of computing threads: from ``set_threads``, by default one for each available core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _THREADS[0] or cores


def set_threads(count: int) -> None:
    """Set the number of computing threads, for example when several processes share the cores."""
    _THREADS[0] = count


def on_one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose linear algebra runs on one thread."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with threadpool_limits(1, "blas"):
            return function(*args, **kwargs)

    return limited


@contextmanager
def split_rows_across(rank: int, world: int) -> Iterator[None]:
    """Share work on rows among this many processes within the block."""
    token = _GROUP.set(ProcessGroup(rank, world))
    try:
        yield
    finally:
        _GROUP.reset(token)


def current_group() -> ProcessGroup:
    """Return the group of processes that share the work; by default this process is alone."""
    return _GROUP.get() or ProcessGroup()


def sum_over_processes(table: "Tensor") -> "Tensor":
    """Sum a table ``[n, ...]`` in place over the processes that share the work."""
    if current_group().world > 1:
        import torch.distributed as dist

        for start in range(0, len(table), ROWS):
            dist.all_reduce(table[start : start + ROWS])
    return table


def all_gather(value: T) -> list[T]:
    """Return the value of each process that shares the work."""
    if current_group().world == 1:
        return [value]
    import torch.distributed as dist

    values: list[T | None] = [None] * current_group().world
    dist.all_gather_object(values, value)
    return values  # type: ignore[return-value]


def is_main_process() -> bool:
    """Return whether this process writes files and prints messages."""
    return int(os.environ.get("RANK", "0")) == 0


def is_restarted() -> bool:
    """Return whether torchrun started the processes again because one of them ended (``--max-restarts``)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


SIGNALS = (signal.SIGINT, signal.SIGTERM)

Pool = TypeVar("Pool", bound=Executor)


class SignalHandler:
    """Raise ``KeyboardInterrupt`` on the first signal; if ``deferred``, only record it."""

    def __init__(self, *, deferred: bool = False) -> None:
        self.received: int | None = None
        self.deferred = deferred
        handlers = {kind: signal.getsignal(kind) for kind in SIGNALS}  # None: not installed from Python
        self._before = {kind: handler for kind, handler in handlers.items() if handler not in (None, signal.SIG_IGN)}

    def __call__(self, kind: int, _: FrameType | None) -> None:
        """Handle a signal."""
        if self.received is not None:
            signal.signal(kind, signal.SIG_DFL)
            signal.raise_signal(kind)
        self.received = kind
        outer = self._before[signal.Signals(kind)]
        if isinstance(outer, SignalHandler):
            outer.received = kind
        if not self.deferred:
            raise KeyboardInterrupt

    @contextmanager
    def install(self) -> Iterator[None]:
        """Handle signals within the block; an ignored SIGINT, as in a background script, stays ignored."""
        for kind in self._before:
            signal.signal(kind, self)
        try:
            yield
        finally:
            for kind, handler in self._before.items():
                signal.signal(kind, handler)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise ``KeyboardInterrupt`` for a signal within the block or before it."""
        self.deferred = False
        try:
            self.check()
            yield
        finally:
            self.deferred = True

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if a signal came."""
        if self.received is not None:
            raise KeyboardInterrupt


@contextmanager
def stop_on_signals() -> Iterator[SignalHandler]:
    """Raise ``KeyboardInterrupt`` in the block on the first signal; SIGTERM counts as SIGINT does."""
    handler = SignalHandler()
    if threading.current_thread() is not threading.main_thread():
        yield handler
        return
    with handler.install():
        yield handler


def check_signals() -> None:
    """Raise ``KeyboardInterrupt`` if a signal came; Python drops the one that it raised in a callback from C, or while it frees an object."""
    for kind in SIGNALS:
        handler = signal.getsignal(kind)
        if isinstance(handler, SignalHandler):
            handler.check()


def is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error is a ``KeyboardInterrupt``, or came while one was handled: a lock that it hits half-way raises another."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or is_interrupt(error.__context__))


@contextmanager
def deferred_signals(*, active: bool = True) -> Iterator[SignalHandler]:
    """Record the first signal for the block to act on; raise ``KeyboardInterrupt`` at its end if it did not."""
    handler = SignalHandler(deferred=True)
    if not active or threading.current_thread() is not threading.main_thread():
        yield handler
        return
    with handler.install():
        yield handler
    handler.check()


@contextmanager
def cancel_on_error(pool: Pool) -> Iterator[Pool]:
    """Yield a pool; an error in the block cancels its work and kills its processes instead of waiting for them."""
    before = multiprocessing.active_children()
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child not in before:
                child.kill()
        raise
    pool.shutdown()


def parallel_map(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Map ``work`` over items in parallel."""
    if len(items) < 2:
        return [work(item) for item in items]
    with cancel_on_error(ThreadPoolExecutor(min(MOST_THREADS, threads()))) as pool:
        return [future.result() for future in begin_all(pool, work, items)]


def begin_all(pool: Executor, work: Callable[[T], R], items: Sequence[T]) -> list[Future[R]]:
    """Give a pool its work. A signal waits meanwhile: one that hits the locks with which threads start may leave them held for ever."""
    with deferred_signals():
        return [pool.submit(work, item) for item in items]


def leave_to_parent() -> None:
    """Make this worker process ignore Ctrl-C, which reaches it too; it ends with the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()


def end_with_parent() -> None:
    """Send this worker process a SIGTERM when the process that started it has ended."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
