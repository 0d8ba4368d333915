"""What clients of a service that is soaked ask, under a fault or not, and what is counted; see ``soak.py`` and ``soak_replicas.py``."""

import argparse
import asyncio
import contextlib
import json
import random
import re
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from serve import Talk

LOST = (OSError, EOFError, asyncio.IncompleteReadError, asyncio.TimeoutError)
TOLD = "told stale"  # in a document: its head says that it may be out of date
PATIENCE = 60  # seconds after which an answer is lost


class Known(Protocol):
    """What clients know of a service: nothing else may be true of it."""

    acknowledged: int
    unsure: int
    lost: list[str]
    stale: list[str]
    invented: list[str]

    def copy(self) -> Self:
        """Return what is known now, for a time to which the store is set back."""

    def set_back(self, earlier: Self) -> None:
        """Let what was known earlier be true again: the store was restored from a copy of that time."""


M = TypeVar("M", bound=Known)


@dataclass
class Figures:
    """What is counted."""

    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    # 503 with Retry-After under a fault, by the fault and the text
    refusals: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)  # other 5xx and lost connections, by what was wrong then
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"quiet": [], "fault": []})
    told: int = 0  # answers that say that they may be out of date
    rss: int = 0
    rss_now: int = 0
    processes: int = 0
    flips: Counter[str] = field(default_factory=Counter)


class Asking(ABC, Generic[M]):
    """Clients that ask, are rude, and check every answer against what they know."""

    def __init__(self, model: M, seed: int) -> None:
        self.model, self.drawn = model, random.Random(seed)
        self.figures, self.fault, self.ended, self.began = Figures(), "", False, time.monotonic()
        self.resumed, self.inside = asyncio.Event(), 0  # whether clients may ask, and how many wait for an answer
        self.resumed.set()

    @abstractmethod
    def port(self) -> int:
        """Return the port of a service to ask."""

    @abstractmethod
    def logged(self, fault: str) -> str:
        """Return what the log says about a fault of the service."""

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """While open, no client waits for an answer, and none asks."""
        self.resumed.clear()
        try:
            while self.inside:
                await asyncio.sleep(0.02)
            yield
        finally:
            self.resumed.set()

    async def restore(self, copy: Callable[[], None], bring_back: Callable[[], None]) -> None:
        """Copy the store, let clients change it for a while, and bring the copy back under the running services."""
        async with self.paused():
            await asyncio.to_thread(copy)
            earlier = self.model.copy()
        await asyncio.sleep(self.drawn.uniform(1, 4))
        async with self.paused():
            await asyncio.to_thread(bring_back)
            self.model.set_back(earlier)

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, object]] | None:
        """Return the status and the document of an answer, or None where the connection was lost."""
        self.inside += 1
        try:
            return await self._ask(method, path, body)
        finally:
            self.inside -= 1

    async def _ask(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, object]] | None:
        fault, began, route = self.fault, time.monotonic(), path.partition("?")[0]
        try:
            async with asyncio.timeout(PATIENCE), Talk(self.port()) as talk:
                status, document = await talk.ask(method, path, body)
        except LOST:
            self.figures.requests[f"{route} lost"] += 1
            if not (fault or self.fault):
                self.figures.failures["connection lost while quiet"] += 1
            await asyncio.sleep(0.2)
            return None
        self.figures.requests[f"{route} {status}"] += 1
        fault = fault or self.fault
        if status >= 500:
            honest = status == 503 and fault and b"retry-after" in talk.head.lower()
            where = self.figures.refusals if honest else self.figures.failures
            where[f"{status} {fault or 'quiet'}: {str(document)[:120]}"] += 1
            if not honest and (number := re.search(r"see (\w{8}) in the log", str(document))):
                print(self.logged(number[1]), file=sys.stderr, flush=True)
        if b"labelwise-stale" in talk.head.lower():
            self.figures.told += 1
            document[TOLD] = True
        if status == 200:
            self.figures.seconds["fault" if fault else "quiet"].append(time.monotonic() - began)
        return status, document

    async def annoy(self) -> None:
        """Send halves of requests, none at all, and what is no request; take no answer."""
        halves = (b"", b"POST /classify HTTP/1.1\r\nHost: 127.", b"\x16\x03\x01\0\xff" * 40, b"GET / HTTP/9.9\r\n\r\n")
        body = b"POST /teach?label=half HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\nContent-Length: 9999\r\n\r\nab"
        while not self.ended:
            with contextlib.suppress(*LOST):
                _, writer = await asyncio.open_connection("127.0.0.1", self.port())
                writer.write(self.drawn.choice((*halves, body)))
                await asyncio.sleep(self.drawn.uniform(0, 7))
                writer.close()
            self.figures.requests["rude"] += 1
            await asyncio.sleep(0.1)

    def summary(self) -> dict[str, object]:
        """Return all figures as one document."""
        model, figures = self.model, self.figures
        times = {kind: sorted(values) for kind, values in figures.seconds.items() if values}
        return {
            "minutes": round((time.monotonic() - self.began) / 60, 1),
            "requests": figures.requests.total(),
            "by route and status": dict(sorted(figures.requests.items())),
            "faults": dict(figures.faults),
            "acknowledged": model.acknowledged,
            "not known": model.unsure,
            "lost": model.lost[:20],
            "stale": model.stale[:20],
            "invented": model.invented[:20],
            "counts": {"lost": len(model.lost), "stale": len(model.stale), "invented": len(model.invented)},
            "answers that say that they may be out of date": figures.told,
            "503 with Retry-After under a fault": dict(figures.refusals),
            "5xx": dict(figures.failures),
            "milliseconds": {
                f"{kind} {name}": round(1000 * values[min(len(values) - 1, int(part * len(values)))], 1)
                for kind, values in times.items()
                for name, part in (("p50", 0.5), ("p99", 0.99))
            },
        }


def options(doc: str | None, minutes: float) -> argparse.ArgumentParser:
    """Return the options that every soak takes; a SIGTERM ends it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path, help="a saved classifier; otherwise one is fitted to the drawn finches")
    parser.add_argument("--json", type=Path)
    return parser


def conclude(figures: dict[str, object], file: Path | None, wrong: Sequence[str] = ()) -> None:
    """Print the figures, and exit with 1 where something was lost, stale, invented or broken, or 5xx."""
    text = json.dumps(figures, indent=1)
    print(text)
    if file:
        file.write_text(text + "\n")
    wrong = [*(key for key in ("lost", "stale", "invented", "5xx", "broken") if figures[key]), *wrong]
    sys.exit(f"Wrong: {', '.join(wrong)}" if wrong else 0)
