"""Stopping: Ctrl-C (SIGINT) and SIGTERM end a command within two seconds, whatever runs, and never amid a write.

A signal raises ``KeyboardInterrupt`` between two steps of Python code, and all that is open is closed on the way out. Three things
need more, and all three are here: steps of training after which a checkpoint is written (``noted``), writes that must be
finished (``unbroken``), and long calls into C, during which Python raises nothing (``stopping``, which ends the process).
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 1.0  # seconds from a signal until a process that has not ended is ended
LONGEST_WRITE = 60.0  # seconds that a write which must be finished is waited for
PAUSE = 0.02  # seconds between two looks

Pool = TypeVar("Pool", bound=Executor)


class Note:
    """A handler that notes signals, and raises ``KeyboardInterrupt`` only where they are let through, and once."""

    def __init__(self, *, finish: bool = False, through: bool = False) -> None:
        self.kind: int | None = None  # the last that came
        self.finish = finish  # whether what runs meanwhile is to be finished before the process is ended
        self._open = through
        handlers = {kind: signal.getsignal(kind) for kind in SIGNALS}  # None: not Python's
        self._before = {kind: one for kind, one in handlers.items() if one not in (None, signal.SIG_IGN)}

    def __call__(self, kind: int, _: FrameType | None) -> None:
        """Handle a signal."""
        self.hear(kind)
        if self._open:
            self._open = False  # later ones do not disturb what is closed
            raise KeyboardInterrupt

    def hear(self, kind: int) -> None:
        """Note a signal, here and where it would have gone."""
        self.kind = kind
        before = self._before.get(signal.Signals(kind))
        if isinstance(before, Note):
            before.hear(kind)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle signals while open, in place of whoever did before."""
        for kind in self._before:
            signal.signal(kind, self)
        try:
            yield
        finally:
            for kind, handler in self._before.items():
                signal.signal(kind, handler)

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """While open a signal raises ``KeyboardInterrupt`` at once, and one that came before does so here."""
        self._open = True
        try:
            if self.kind is not None:
                raise KeyboardInterrupt
            yield
        finally:
            self._open = False


@contextmanager
def noted(*, active: bool = True, finish: bool = False) -> Iterator[Note]:
    """Yield a note of the signals that come while open; one that stopped nothing is raised again where the block ends well.

    Where it is not ``active``, signals do what they did before; ``finish`` means that the block must be finished.
    """
    note = Note(finish=finish)
    if not active or threading.current_thread() is not threading.main_thread():
        yield note
        return
    with note.installed():
        yield note
    if note.kind is not None:
        signal.raise_signal(note.kind)


@contextmanager
def unbroken() -> Iterator[None]:
    """Finish the block before a signal stops a command: for what must be written whole, and is written in seconds."""
    with noted(active=isinstance(signal.getsignal(signal.SIGTERM), Note), finish=True):
        yield


@contextmanager
def stopping(words: str = "Stopped.") -> Iterator[None]:
    """Let SIGINT and SIGTERM stop the block and end the process: when all is closed, or by force where that takes too long.

    The exit code is 130 after SIGINT and 143 after SIGTERM. A SIGINT that is ignored, as in the background of a script, stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals, wake = os.pipe()
    os.set_blocking(wake, False)
    former = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(signals, words), name="stop", daemon=True).start()
    stop = Note(through=True)
    try:
        with stop.installed():
            try:
                yield
            except SystemExit as end:  # the user was told why
                if stop.kind is not None and end.code:
                    _end(stop.kind)
                raise
            except BaseException:
                if stop.kind is not None:
                    _end(stop.kind, words)
                raise
    finally:
        signal.set_wakeup_fd(former)
        os.close(wake)


def _watch(signals: int, words: str) -> None:
    """End the process ``GRACE`` seconds after a signal (a byte in the pipe), later where a write must be finished.

    Runs in a thread of its own: a long call into C keeps the main one from handling anything. Signals that somebody else
    handles by then, such as a service that finishes its requests, are left to them.
    """
    with os.fdopen(signals, "rb", buffering=0) as pipe:
        while kinds := pipe.read(1):
            begun = late = time.monotonic()
            while time.monotonic() - late < GRACE:
                time.sleep(PAUSE)
                handler = signal.getsignal(kinds[0])
                if isinstance(handler, Note) and handler.finish and late - begun < LONGEST_WRITE:
                    late = time.monotonic()
            if isinstance(handler, Note):
                _end(kinds[0], words)


def _end(kind: int, words: str = "") -> None:
    """End this process and those it started, without waiting for anything; the exit code says by which signal."""
    for child in multiprocessing.active_children():
        child.kill()
    if threading.current_thread() is threading.main_thread():  # another might wait for it here
        with suppress(OSError, ValueError):
            sys.stdout.flush()
    with suppress(OSError):
        cursor = "\x1b[?25h\n" if os.isatty(2) else ""  # a progress bar may have hidden it
        os.write(2, f"{cursor}{words}\n".encode() if words else cursor.encode())
    os._exit(128 + kind)


@contextmanager
def stoppable(pool: Pool) -> Iterator[Pool]:
    """Yield a pool whose work is dropped when the block is left by an error or a signal: nothing is waited for."""
    try:
        yield pool
    except BaseException:
        workers = list((getattr(pool, "_processes", None) or {}).values())  # none where they are threads
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
        raise
    pool.shutdown()


def leave_to_parent() -> None:
    """Make this worker process ignore Ctrl-C, which reaches it, too: the process that started it ends it, also by ending."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()


def end_with_parent() -> None:
    """Send this worker process a SIGTERM when the process that started it has ended, in whatever way."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
