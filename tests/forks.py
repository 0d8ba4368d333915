"""Processes that begin at once: forked from this one, where torch is imported already; importing it takes longer than most tests."""

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests import once

FORKS = multiprocessing.get_context("fork")


class Fork:
    """A function in a process and session of its own, as far as tests ask what ``subprocess.Popen`` says of one."""

    def __init__(self, work: Callable[[], Any], folder: Path, variables: Mapping[str, str] | None = None) -> None:
        self.errors = once.folder() / f"{uuid4()}.txt"
        self.errors.touch()
        self.process = FORKS.Process(target=self._run, args=(work, folder, variables or {}))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def _run(self, work: Callable[[], Any], folder: Path, variables: Mapping[str, str]) -> None:
        """Work as a command does that was started from a terminal."""
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ.update(variables)
        tempfile.tempdir = None  # asked for anew
        os.chdir(folder)
        os.dup2(os.open(self.errors, os.O_WRONLY), 2)
        sys.stdout, sys.stderr = open(os.devnull, "w"), open(2, "w", buffering=1)  # noqa: SIM115 - as long as the process
        work()

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float) -> int:
        """Return the exit code of a process that ends by then."""
        self.process.join(timeout)
        assert self.process.exitcode is not None, f"it still runs after {timeout} s"
        return self.process.exitcode

    def said(self) -> str:
        """Return what it wrote to standard error so far."""
        return self.errors.read_text()

    def send_signal(self, kind: signal.Signals) -> None:
        os.kill(self.pid, kind)


def shell(*words: object) -> Callable[[], None]:
    """Return what calls the shell with these words."""

    def call() -> None:
        from labelwise import cli

        sys.argv = ["labelwise", *map(str, words)]
        cli.main()

    return call
