"""A session of ``labelwise label`` that is soaked: two browsers answer, take back and correct, and every list and export is compared with that."""

import asyncio
import csv
import json
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from serve import Running
from soak_asking import TOLD, Asking

PAUSE = 0.3  # seconds at most between two requests of a browser
PEOPLE = ("ann", "bob")  # each corrects every second image
LABELS = ("heron", "crane", "a, b", "stork; <b>", "=1+1")
FREE, NONE, UNSURE = "", "none of these", None  # of an image: without an answer, of no label, not known


@dataclass
class Answers:
    """What browsers know of a session: the acknowledged actions about each image, the last one counts."""

    stacks: dict[int, list[tuple[int, str]]] = field(default_factory=dict)  # of each image: number and label of actions
    unsure_rows: set[int] = field(default_factory=set)  # an action about these has no answer
    done: dict[str, list[tuple[int, list[int], str]]] = field(default_factory=dict)  # what each browser can take back
    moved: dict[int, float] = field(
        default_factory=dict
    )  # when an action about an image was last asked for or answered
    acknowledged: int = 0
    unsure: int = 0
    lost: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)

    def label(self, row: int) -> str:
        """Return the label of an image."""
        stack = self.stacks.get(row)
        return stack[-1][1] if stack else FREE

    def begin(self, rows: Sequence[int]) -> None:
        """Note that an action about images is asked for."""
        self.unsure_rows |= set(rows)
        self.moved |= dict.fromkeys(rows, time.monotonic())

    def settle(self, rows: Sequence[int]) -> None:
        """Note that what became of an action about images is known."""
        self.unsure_rows -= set(rows)
        self.moved |= dict.fromkeys(rows, time.monotonic())

    def add(self, number: int, rows: Sequence[int], label: str) -> None:
        """Take in an acknowledged action."""
        for row in rows:
            self.stacks.setdefault(row, []).append((number, label))

    def take_back(self, number: int, rows: Sequence[int]) -> None:
        """Leave an action out."""
        for row in rows:
            self.stacks[row] = [one for one in self.stacks[row] if one[0] != number]

    def copy(self) -> "Answers":
        """Return what is known now, for a time to which the store is set back."""
        done = {person: list(actions) for person, actions in self.done.items()}
        return Answers({row: list(stack) for row, stack in self.stacks.items()}, done=done)

    def set_back(self, earlier: "Answers") -> None:
        """Let what was known earlier be true again: the store was restored from a copy of that time."""
        self.settle([*self.stacks, *earlier.stacks])
        self.stacks, self.done = earlier.stacks, earlier.done

    def check(self, found: Mapping[int, str], rows: Sequence[int], began: float, where: str) -> None:
        """Compare the labels of images with all that was known before they were asked for."""
        for row in rows:
            if (
                row not in self.unsure_rows
                and self.moved.get(row, 0.0) < began
                and found.get(row, FREE) != self.label(row)
            ):
                words = f'image {row} is "{found.get(row, FREE)}" in {where}; acknowledged was "{self.label(row)}"'
                known = any(label == found.get(row, FREE) for _, label in self.stacks.get(row, ()))
                (self.lost if row not in found else self.stale if known else self.invented).append(words)


class Labelling(Asking[Answers]):
    """A service of ``labelwise label`` and its browsers."""

    def __init__(self, photos: Path, project: Path, seed: int) -> None:
        super().__init__(Answers(), seed)
        self.photos, self.project, self.file = photos, project, project / "changes.sqlite"
        self.size, self.number = len(list(photos.iterdir())), 0
        self.start()

    def logged(self, fault: str) -> str:
        """Return what the log says about a fault of the service."""
        return self.service.about(fault)

    def port(self) -> int:
        """Return the port of the service."""
        return self.service.port

    def start(self) -> None:
        """Start the service."""
        self.service = Running(self.photos, "--out", str(self.project), verb="label")

    def clients(self) -> list[Coroutine[Any, Any, None]]:
        """Return what is to run."""
        return [*map(self.browse, PEOPLE), self.look(), self.write_out(), self.annoy()]

    async def browse(self, person: str) -> None:
        """Answer what is asked, correct and take back, as one browser does."""
        while not self.ended:
            await self.resumed.wait()
            self.inside += 1  # until it is known what became of the action
            await self._step(person)
            self.inside -= 1
            await asyncio.sleep(self.drawn.uniform(0, PAUSE))

    async def _step(self, person: str) -> None:
        done, drawn = self.model.done.setdefault(person, []), self.drawn.random()
        if done and drawn < 0.25:
            await self._undo(person, *done.pop())
        elif drawn < 0.5:
            rows = self._own(person)
            await self._act(person, rows, self._other(rows))
        else:
            await self._answer(person)

    def _own(self, person: str) -> list[int]:
        """Return images that have an answer, and that this browser alone corrects."""
        known = [row for row in self.model.stacks if row % 2 == PEOPLE.index(person) and self.model.label(row) != FREE]
        return self.drawn.sample(known, min(len(known), self.drawn.randrange(1, 4)))

    def _other(self, rows: Sequence[int]) -> str:
        now = {self.model.label(row) for row in rows}
        return self.drawn.choice([label for label in (*LABELS, NONE) if label not in now])

    async def _answer(self, person: str) -> None:
        """Answer the next question."""
        answer = await self.ask("POST", "/question", json.dumps({"browser": person}).encode())
        question = answer[1].get("question") if answer is not None and answer[0] == 200 else None
        if isinstance(question, dict):
            rows = [int(row) for row in question["rows"]]
            await self._act(person, rows, self._other(rows))

    async def _act(self, person: str, rows: list[int], label: str) -> None:
        """Say what images are; nothing where another browser is not sure of one of them."""
        if not rows or self.model.unsure_rows & set(rows):
            return
        self.number += 1
        number = self.number
        action = {"kind": "unknown", "rows": rows} if label == NONE else {"kind": "name", "rows": rows, "label": label}
        body = {"actions": [action], "person": person, "browser": person}
        if await self._ask_for("/actions", body, rows, dict.fromkeys(rows, label)):
            self.model.add(number, rows, label)
            self.model.done.setdefault(person, []).append((number, rows, label))

    async def _undo(self, person: str, number: int, rows: list[int], label: str) -> None:
        """Take the last action back."""
        if self.model.unsure_rows & set(rows):
            self.model.done.setdefault(person, []).append((number, rows, label))
            return
        left = {row: [one for one in self.model.stacks[row] if one[0] != number] for row in rows}
        then = {row: stack[-1][1] if stack else FREE for row, stack in left.items()}
        if await self._ask_for("/undo", {"person": person, "browser": person}, rows, then):
            self.model.take_back(number, rows)
        else:
            self.model.done.setdefault(person, []).append((number, rows, label))

    async def _ask_for(self, path: str, body: Mapping[str, Any], rows: list[int], then: Mapping[int, str]) -> bool:
        """Return whether a change was made; one without an answer is looked up: it is there whole, or not at all."""
        before = {row: self.model.label(row) for row in rows}
        self.model.begin(rows)
        answer = await self.ask("POST", path, json.dumps(body).encode())
        made = answer is not None and answer[0] == 200
        self.model.acknowledged += made
        if not made and (answer is None or answer[0] >= 500):
            self.model.unsure += 1
            if then != before:
                found = await self._look_up(rows)
                made = found == then
                if not made and found != before:
                    self.model.invented.append(f"neither {before} nor {then}: {found}")
        self.model.settle(rows)
        return made

    async def _look_up(self, rows: Sequence[int]) -> dict[int, str]:
        """Return the labels that images have now, however long that takes."""
        while (found := await self._listed()) is None:
            await asyncio.sleep(0.3)
        return {row: found.get(row, FREE) for row in rows}

    async def _listed(self) -> dict[int, str] | None:
        """Return the label of each image that a person answered, by the lists of the page; None where that is not known."""
        found: dict[int, str] = {}
        for label in (*LABELS, NONE):
            query = "of=unknown" if label == NONE else f"label={quote(label, safe='')}"
            answer = await self.ask("GET", f"/images?{query}")
            if answer is None or answer[0] >= 500 or TOLD in answer[1]:
                return None
            document: dict[str, Any] = answer[1] if answer[0] == 200 else {}  # 400: nobody has used the label yet
            rows = [one["row"] for one in document.get("images", ()) if one["source"] == "person"]
            rows += [row for group in document.get("groups", ()) for row in group["rows"]]
            if "groups" in document and len(rows) < document["count"]:
                raise ValueError(f"The page lists {len(rows)} of {document['count']} images without a label.")
            found |= dict.fromkeys(rows, label)
        return found

    async def look(self) -> None:
        """Ask for the state and images, and read the lists."""
        while not self.ended:
            await self.resumed.wait()
            await self.ask("GET", "/state")
            await self.check()
            await asyncio.sleep(self.drawn.uniform(0, 4 * PAUSE))

    async def check(self) -> None:
        """Compare the lists of the page with what was acknowledged."""
        began, moved = time.monotonic(), dict(self.model.moved)
        found = await self._listed()
        if found is not None:
            self.model.check(found, self._still(moved), began, "the lists")

    def _still(self, moved: Mapping[int, float]) -> list[int]:
        """Return the images about which nothing was asked for since."""
        return [row for row in range(self.size) if self.model.moved.get(row) == moved.get(row)]

    def wrong(self) -> bool:
        """Return whether anything was lost, stale, invented or a 5xx that is not honest."""
        return bool(self.model.lost or self.model.stale or self.model.invented or self.figures.failures)

    def _exported(self, answer: tuple[int, dict[str, object]] | None) -> list[dict[str, str]] | None:
        """Return the rows of people in an exported table, or None: no export, or the disk failed after it was written."""
        if answer is None or answer[0] != 200:
            return None
        try:
            with Path(str(answer[1]["written"]), "images.csv").open(encoding="utf-8", newline="") as file:
                return [row for row in csv.DictReader(file) if row["source"] == "person"]
        except OSError:
            if not self.fault:
                raise
            return None

    async def write_out(self) -> None:
        """Export the labels as a table, and read it."""
        while not self.ended:
            await self.resumed.wait()
            began, moved = time.monotonic(), dict(self.model.moved)
            answer = await self.ask("POST", "/export", b'{"format": "csv"}')
            rows = self._exported(answer)
            if rows is not None:
                places = {file.name: row for row, file in enumerate(sorted(self.photos.iterdir()))}
                found = {places[Path(row["path"]).name]: row["label"].removeprefix("'") for row in rows}
                found |= {row: NONE for row in range(self.size) if self.model.label(row) == NONE and row not in found}
                self.model.check(found, self._still(moved), began, "the export")
            await asyncio.sleep(self.drawn.uniform(1, 5))
