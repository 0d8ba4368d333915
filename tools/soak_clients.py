"""Clients of a service that is soaked, and what they know of it; see ``soak.py`` and ``soak_replicas.py``."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from soak_asking import PATIENCE, TOLD, Asking

PAUSE = 0.2  # seconds at most between two requests of a client
MOST = 100  # labels that classify lists at most
LABELS = 6  # that a writer keeps at most


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


class Clients(Asking[Model]):
    """Clients that teach, correct, forget and read."""

    def __init__(self, folder: Path, pictures: Sequence[bytes], seed: int) -> None:
        about = json.loads((folder / "classifier.json").read_text())
        super().__init__(Model(frozenset(about["labels"]["names"])), seed)
        self.folder, self.pictures = folder, pictures

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
                if before is not None:
                    kind = self.model.lost if before else self.model.invented
                    kind.append(f"{route}: {answer[0]}, although {before} was acknowledged")
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
            self.model.lost.append(f"/correct?label={label}: {answer[0]}, although it was taught")

    async def search(self) -> None:
        """Look for pictures like another."""
        while not self.ended:
            await self.resumed.wait()
            await self.ask("POST", "/retrieve?top=3", self.drawn.choice(self.pictures))
            await asyncio.sleep(self.drawn.uniform(0, 5 * PAUSE))
