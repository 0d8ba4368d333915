"""What a service was taught and has forgotten: the rows that a label adds, the state, and the classifier that follows from it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from labelwise.classifier import Classifier
from labelwise.labels import Labels

Source = Literal["examples", "texts", "vector"]
Action = Literal["teach", "forget"]
UNDO = 50  # changes that can be undone


@dataclass(frozen=True, eq=False, kw_only=True)
class Lesson:
    """A taught label: the rows that it adds to a classifier, so that nothing is computed anew when it is read back.

    Attributes:
        number: the change that taught it.
        label: its name.
        source: what it was learnt from.
        examples: how many pictures.
        texts: its sentences, if labels have them.
        rows: what is appended to tensors of the classifier: ``embedding [1, e]``, ``scale [1]``, ``offset [1]``, ``unseen [1]``,
            and where there are such, ``vector [1, a]``, ``memory [m, d]``, ``train_hashes [m]``.
    """

    number: int = 0
    label: str
    source: Source
    examples: int
    texts: tuple[str, ...]
    rows: dict[str, Tensor]


def unpacked(number: int, label: str, words: str, rows: bytes) -> Lesson:
    """Return the lesson of a change that ``Change.packed`` wrote."""
    source, examples, texts = json.loads(words)
    return Lesson(
        number=number, label=label, source=source, examples=examples, texts=tuple(texts), rows=tensors_of(rows)
    )


def lesson_of(before: Classifier, taught: Classifier, source: Source) -> Lesson:
    """Return what a classifier gained by being taught its last label."""
    labels, calibration = taught.labels, taught.calibration
    memory, hashes = taught.familiarity.memory, taught.origin.train_hashes
    gained = {
        "embedding": taught.label_embeddings[-1:],
        "scale": calibration.scale[-1:],
        "offset": calibration.offset[-1:],
        "unseen": calibration.unseen[-1:],
        "vector": None if labels.vectors is None else labels.vectors[-1:],
        "memory": None if memory is None else memory[_count(before.familiarity.memory) :],
        "train_hashes": None if hashes is None else hashes[_count(before.origin.train_hashes) :],
    }
    rows = {name: part.to("cpu", copy=True) for name, part in gained.items() if part is not None and len(part)}
    texts = () if labels.texts is None else labels.texts[-1]
    return Lesson(label=labels.names[-1], source=source, examples=_count(rows.get("memory")), texts=texts, rows=rows)


def _count(rows: Tensor | None) -> int:
    return 0 if rows is None else len(rows)


@dataclass(frozen=True, eq=False)
class Change:
    """A label taught or forgotten.

    Attributes:
        number: of the change.
        action: what was done.
        label: to which label.
        lesson: what a teach adds or a forget takes away; None where a label of the saved classifier is forgotten.
    """

    number: int
    action: Action
    label: str
    lesson: Lesson | None = None

    def packed(self) -> tuple[int, str, str, int | None, str, bytes]:
        """Return it as a row: the lesson that it forgets by its number; one that it teaches as JSON and safetensors, every bit kept."""
        lesson = self.lesson
        if self.action == "forget" or lesson is None:
            return self.number, self.action, self.label, lesson.number if lesson else None, "", b""
        words = json.dumps([lesson.source, lesson.examples, lesson.texts])
        return self.number, self.action, self.label, None, words, bytes_of(lesson.rows)


@dataclass(frozen=True, eq=False)
class State:
    """What follows from all changes.

    Attributes:
        change: how many there were, undone ones and undoing among them.
        settled: the last that cannot be undone.
        changes: those that count, in the order of their numbers.
    """

    change: int = 0
    settled: int = 0
    changes: tuple[Change, ...] = ()

    @property
    def undoable(self) -> tuple[Change, ...]:
        """The last changes, the latest at the end."""
        return tuple(one for one in self.changes[-UNDO:] if one.number > self.settled)

    @cached_property
    def taught(self) -> tuple[Lesson, ...]:
        """The taught labels that are not forgotten."""
        forgotten = {one.lesson for one in self.changes if one.action == "forget"}
        lessons = (one.lesson for one in self.changes if one.action == "teach")
        return tuple(one for one in lessons if one is not None and one not in forgotten)

    @cached_property
    def forgotten(self) -> frozenset[str]:
        """Labels of the saved classifier that are forgotten."""
        return frozenset(one.label for one in self.changes if one.lesson is None)

    def teach(self, lesson: Lesson) -> "State":
        """Return the state after a lesson."""
        lesson = replace(lesson, number=self.change + 1)
        return self._after(Change(lesson.number, "teach", lesson.label, lesson))

    def forget(self, label: str) -> "State":
        """Return the state after a label, taught or not, was forgotten."""
        lesson = next((one for one in self.taught if one.label == label), None)
        return self._after(Change(self.change + 1, "forget", label, lesson))

    def undo(self) -> "State":
        """Return the state after the last change was taken back, which is one more change."""
        return replace(self, change=self.change + 1, changes=self.changes[:-1])

    def tidied(self) -> "State":
        """Return it without taught labels that are forgotten for good."""
        pairs = {one.number: one.lesson.number for one in self.changes if one.action == "forget" and one.lesson}
        gone = {number for pair in pairs.items() if pair[0] <= self.settled for number in pair}
        return replace(self, changes=tuple(one for one in self.changes if one.number not in gone))

    def follows(self, earlier: "State") -> bool:
        """Return whether labels were only added at the end since an earlier state."""
        return self.taught[: len(earlier.taught)] == earlier.taught and self.forgotten == earlier.forgotten

    def _after(self, change: Change) -> "State":
        changes = (*self.changes, change)
        settled = max([self.settled, *(one.number for one in changes[-UNDO - 1 : -UNDO])])
        return State(change.number, settled, changes).tidied()


def joined(classifier: Classifier, forgotten: frozenset[str], lessons: Sequence[Lesson]) -> Classifier:
    """Return the classifier without some labels and with taught ones at the end; rows are copied, never computed."""
    if not forgotten and not lessons:
        return classifier
    kept = [i for i, name in enumerate(classifier.labels.names) if name not in forgotten]

    def grown(name: str, own: Tensor | None) -> Any:
        more = [one.rows[name] for one in lessons if name in one.rows]
        return own if not more else torch.cat(more if own is None else [own, *(part.to(own) for part in more)])

    calibration = classifier.calibration.select(kept)
    pieces = {name: grown(name, getattr(calibration, name)) for name in ("scale", "offset", "unseen")}
    labels, names = classifier.labels, [classifier.labels.names[i] for i in kept]
    if not lessons:
        labels = labels.select(names)
    else:
        vectors = labels.vectors if all("vector" in one.rows for one in lessons) else None
        texts = labels.texts if all(one.texts for one in lessons) else None
        labels = Labels(
            names=(*names, *(one.label for one in lessons)),
            vectors=None if vectors is None else grown("vector", vectors[kept]),
            texts=None if texts is None else (*(texts[i] for i in kept), *(one.texts for one in lessons)),
        )
    familiarity, origin = classifier.familiarity, classifier.origin
    return replace(
        classifier,
        labels=labels,
        label_embeddings=grown("embedding", classifier.label_embeddings[kept]),
        calibration=replace(calibration, **pieces),
        familiarity=replace(familiarity, memory=grown("memory", familiarity.memory)),
        origin=replace(origin, train_hashes=grown("train_hashes", origin.train_hashes)),
    )
