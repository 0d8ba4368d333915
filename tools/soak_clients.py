"""Clients of a service that is soaked: what they ask, what they know of it, and what is counted; see ``soak.py`` and ``soak_replicas.py``."""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from serve import Talk

PAUSE = 0.2  # seconds at most between two requests of a client
MOST = 100  # labels that classify lists at most
LABELS = 6  # that a writer keeps at most
LOST = (OSError, EOFError, asyncio.IncompleteReadError, asyncio.TimeoutError)
TOLD = "told stale"  # in a document: its head says that it may be out of date
PATIENCE = 60  # seconds after which an answer is lost


@dataclass
class Model:
    """What clients know of the service: nothing else may be true of it."""

    base: frozenset[str]
    present: dict[str, bool | None] = field(default_factory=dict)  # of each label ever asked for; None: not known
    more: dict[str, int | None] = field(default_factory=dict)  # images that a label was corrected by; None: not known
    moved: dict[str, float] = field(default_factory=dict)  # when a change of it was last asked for or answered
    gone: set[str] = field(default_factory=set)  # forgotten so long ago that no request is older
    change: int = 0  # the largest number in any answer so far
    acknowledged: int = 0
    unsure: int = 0
    lost: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)

    def settle(self, label: str, present: bool | None) -> None:
        """Note what is known of a label from now on."""
        now = time.monotonic()
        self.present[label], self.moved[label] = present, now
        if not present:
            self.more.pop(label, None)
        old = [one for one, there in self.present.items() if there is False and self.moved[one] < now - 2 * PATIENCE]
        self.gone.update(old)
        for one in old:
            del self.present[one], self.moved[one]

    def copy(self) -> "Model":
        """Return what is known now, for a time to which the store is set back."""
        return Model(self.base, dict(self.present), dict(self.more), change=self.change)

    def set_back(self, earlier: "Model") -> None:
        """Let what was known earlier be true again: the store was restored from a copy of that time."""
        for label in set(self.present) | set(earlier.present):
            self.settle(label, earlier.present.get(label, False))
        self.more = earlier.more
        self.gone -= set(earlier.present)
        self.change = earlier.change

    def check(self, names: set[str], change: int, least: int, began: float) -> None:
        """Compare an answer with all that was known before it was asked."""
        if change < least:
            self.stale.append(f"change {change} after {least}")
        if old := names & self.gone:
            self.stale.append(f"{sorted(old)[:3]} at change {change}, forgotten long ago")
        if strange := names - self.base - set(self.present) - self.gone:
            self.invented.append(str(sorted(strange)[:3]))
        for label in self.base - names:
            self.lost.append(f"{label} of the model, change {change}")
        for label, present in self.present.items():
            if present is not None and self.moved[label] < began and (label in names) != present:
                (self.lost if present else self.stale).append(f"{label} at change {change}, {present} was acknowledged")
        self.change = max(self.change, change)

    def check_more(self, more: Mapping[str, int], change: int, began: float) -> None:
        """Compare how many images labels were corrected by with what was acknowledged before the answer was asked."""
        for label, count in self.more.items():
            if count is not None and label in more and self.moved[label] < began and more[label] != count:
                there = f"{label} at change {change} was corrected by {more[label]} images, {count} were acknowledged"
                (self.lost if more[label] < count else self.invented).append(there)


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


class Clients(ABC):
    """Clients that teach, correct, forget, read and annoy, and check every answer against what they know."""

    def __init__(self, folder: Path, pictures: Sequence[bytes], seed: int) -> None:
        self.folder, self.pictures, self.drawn = folder, pictures, random.Random(seed)
        about = json.loads((folder / "classifier.json").read_text())
        self.model = Model(frozenset(about["labels"]["names"]))
        self.figures, self.fault, self.ended, self.began = Figures(), "", False, time.monotonic()
        self.resumed, self.inside = (
            asyncio.Event(),
            0,
        )  # whether clients may ask, and how many of them wait for an answer
        self.resumed.set()

    @abstractmethod
    def port(self) -> int:
        """Return the port of a service to ask."""

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
        if b"labelwise-stale" in talk.head.lower():
            self.figures.told += 1
            document[TOLD] = True
        if status == 200:
            self.figures.seconds["fault" if fault else "quiet"].append(time.monotonic() - began)
        return status, document

    async def read(self) -> None:
        """Ask what the labels are, by one of two ways, and check the answer."""
        while not self.ended:
            await self.resumed.wait()
            least, began = self.model.change, time.monotonic()
            direct = self.drawn.random() < 0.3
            path = ("GET", "/labels") if direct else ("POST", f"/classify?top={MOST}")
            answer = await self.ask(*path, b"" if direct else self.drawn.choice(self.pictures))
            if answer is not None and answer[0] == 200:
                document: dict[str, object] = answer[1]
                rows, key = (document["labels"], "name") if direct else (document["top"], "label")
                assert isinstance(rows, list)
                change = document["change"]
                assert isinstance(change, int)
                if TOLD not in document and (direct or len(rows) < MOST):
                    self.model.check({row[key] for row in rows}, change, least, began)
                    if direct:
                        self.model.check_more({row["name"]: row.get("more", 0) for row in rows}, change, began)
            await asyncio.sleep(self.drawn.uniform(0, PAUSE))

    async def write(self, own: int) -> None:
        """Teach and forget labels that nobody else changes."""
        # a change of these was asked for, and nobody knows what came of it: forgotten once more
        doubtful: set[str] = set()
        for number in range(10**9):
            if self.ended:
                return
            await self.resumed.wait()
            labels = [name for name, there in self.model.present.items() if name.startswith(f"w{own}-") and there]
            if labels and not doubtful and self.drawn.random() < 0.25:
                await self.correct(self.drawn.choice(labels))
                continue
            teach = not doubtful and (len(labels) < 2 or (len(labels) < LABELS and self.drawn.random() < 0.5))
            label = f"w{own}-{number}" if teach else doubtful.pop() if doubtful else self.drawn.choice(labels)
            before = self.model.present.get(label, False)
            self.model.settle(label, None)
            route = f"/{'teach' if teach else 'forget'}?label={quote(label)}"
            answer = await self.ask("POST", route, self.drawn.choice(self.pictures) if teach else b"")
            if answer is not None and answer[0] == 200:
                change = answer[1]["change"]
                assert isinstance(change, int)
                self.model.change = max(self.model.change, change)
                self.model.acknowledged += 1
                self.model.settle(label, teach)
            elif answer is not None and 400 <= answer[0] < 500:
                self.model.settle(label, before)
            else:
                self.model.unsure += 1
                doubtful.add(label)
            await asyncio.sleep(self.drawn.uniform(0, 2 * PAUSE))

    async def correct(self, label: str) -> None:
        """Teach a label that nobody else changes one more image."""
        before, self.model.more[label] = self.model.more.get(label, 0), None
        self.model.settle(label, True)
        answer = await self.ask("POST", f"/correct?label={quote(label)}", self.drawn.choice(self.pictures))
        self.model.settle(label, True)
        if answer is not None and answer[0] == 200 and before is not None:
            change = answer[1]["change"]
            assert isinstance(change, int)
            self.model.change = max(self.model.change, change)
            self.model.acknowledged += 1
            self.model.more[label] = before + 1
        elif answer is not None and 400 <= answer[0] < 500:
            self.model.more[label] = before

    async def search(self) -> None:
        """Look for pictures like another."""
        while not self.ended:
            await self.resumed.wait()
            await self.ask("POST", "/retrieve?top=3", self.drawn.choice(self.pictures))
            await asyncio.sleep(self.drawn.uniform(0, 5 * PAUSE))

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
