"""Services in processes of their own, which are forked from this one: a service that is started anew takes seconds to import torch."""

import signal
import sys
import time
from pathlib import Path

from tests.forks import Fork, shell

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import serve

SERVING = "on http://"  # what each worker says once it has loaded the model and opened the store


class Running(serve.Running):
    """``labelwise serve``; with several workers these are started as ever."""

    process: Fork  # type: ignore[assignment]

    def __init__(self, model: Path, *options: str) -> None:
        self.process = Fork(shell("serve", model, "--port", "0", *options), Path.cwd())
        self.port = self._port()

    def said(self) -> str:
        return self.process.said()

    def waits_for(self, text: str, times: int, seconds: float = 60) -> bool:
        """Return whether the log says something so many times before that time is over."""
        end = time.monotonic() + seconds
        while (count := self.said().count(text)) < times and time.monotonic() < end:
            time.sleep(0.05)
        return count >= times

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.wait(60)
