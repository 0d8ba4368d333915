"""What a service was taught and has forgotten: the rows that a label adds, the state, and the classifier that follows from it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
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

    def packed(self) -> tuple[str, bytes]:
        """Return its words as JSON and its rows as safetensors; numbers keep every bit."""
        return json.dumps([self.source, self.examples, self.texts]), bytes_of(self.rows)


def unpacked(number: int, label: str, words: str, rows: bytes) -> Lesson:
    """Return the lesson that ``Lesson.packed`` wrote."""
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


@dataclass(frozen=True, eq=False)
class State:
    """What follows from all changes.

    Attributes:
        change: how many there were, undone ones and undoing among them.
        forgotten: labels of the saved classifier that are forgotten.
        taught: the taught ones, in the order of their numbers.
        undoable: the last changes, the latest at the end.
    """

    change: int = 0
    forgotten: frozenset[str] = frozenset()
    taught: tuple[Lesson, ...] = ()
    undoable: tuple[Change, ...] = ()

    def after(self, *changes: Change, settled: int = 0) -> "State":
        """Return the state after more changes; those up to the number ``settled`` cannot be undone."""
        taught, forgotten = {one.number: one for one in self.taught}, set(self.forgotten)
        for change in changes:
            if change.action == "teach" and change.lesson is not None:
                taught[change.number] = change.lesson
            elif change.lesson is None:
                forgotten.add(change.label)
            else:
                del taught[change.lesson.number]
        undoable = [one for one in (*self.undoable, *changes) if one.number > settled][-UNDO:]
        number = changes[-1].number if changes else self.change
        return State(number, frozenset(forgotten), tuple(taught.values()), tuple(undoable))

    def teaching(self, lesson: Lesson) -> Change:
        """Return the change that a lesson would be."""
        return Change(self.change + 1, "teach", lesson.label, replace(lesson, number=self.change + 1))

    def forgetting(self, label: str) -> Change:
        """Return the change that forgets a label, taught or not."""
        return Change(self.change + 1, "forget", label, next((one for one in self.taught if one.label == label), None))

    def undone(self) -> "State":
        """Return the state after the last change was taken back, which is one more change."""
        last = self.undoable[-1]
        taught, forgotten = {one.number: one for one in self.taught}, self.forgotten
        if last.action == "teach":
            del taught[last.number]
        elif last.lesson is None:
            forgotten -= {last.label}
        else:
            taught[last.lesson.number] = last.lesson
        return State(self.change + 1, forgotten, tuple(taught[i] for i in sorted(taught)), self.undoable[:-1])

    def follows(self, earlier: "State") -> bool:
        """Return whether labels were only added at the end since an earlier state."""
        same = zip(self.taught, earlier.taught, strict=False)
        added = len(self.taught) >= len(earlier.taught) and all(one is other for one, other in same)
        return added and self.forgotten == earlier.forgotten


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
