"""What a service was taught and has forgotten: the rows that a label adds, the state, and the classifier that follows from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.core.rows import append_rows, drop_rows
from labelwise.images.describe.labels import Labels

Source = Literal["examples", "texts", "vector"]
Action = Literal["teach", "forget"]
UNDO = 50  # changes that can be undone
OF_IMAGES = ("memory", "train_hashes")  # tensors with rows for each image; the others have one for each label


class Place(NamedTuple):
    """Where rows of one kind are in the content of a lesson."""

    begin: int
    end: int
    shape: tuple[int, ...]
    kind: str  # of numbers


@lru_cache(maxsize=256)
def _places(head: bytes) -> dict[str, Place]:
    """Return where each kind of rows is, given the head of a safetensors file; most lessons have the same."""
    at, places = 8 + len(head), {}
    for name, one in json.loads(head).items():
        if name != "__metadata__":
            begin, end = one["data_offsets"]
            places[name] = Place(at + begin, at + end, tuple(one["shape"]), one["dtype"])
    return places


@dataclass(frozen=True, eq=False, kw_only=True)
class Lesson:
    """A taught label: the rows that it adds to tensors of a classifier, so that nothing is computed anew when it is read back.

    They are ``embedding [1, e]``, ``scale [1]``, ``offset [1]``, ``unseen [1]``, and where there are such, ``vector [1, a]``,
    ``width [1]``, ``memory [m, d]``, ``train_hashes [m]``.
    """

    number: int = 0  # the change that taught it
    label: str
    source: Source
    examples: int  # how many pictures
    texts: tuple[str, ...]  # its sentences, if labels have them
    content: bytes  # the rows as safetensors, every bit kept
    places: dict[str, Place] = field(init=False, repr=False)  # of each kind of rows in the content

    def __post_init__(self) -> None:
        head = self.content[8 : 8 + int.from_bytes(self.content[:8], "little")]
        object.__setattr__(self, "places", _places(head))

    @property
    def rows(self) -> dict[str, Tensor]:
        """The rows themselves."""
        return tensors_of(self.content)

    def count(self, name: str) -> int:
        """Return how many rows of a kind it adds."""
        return self.places[name].shape[0] if name in self.places else 0


def unpacked(number: int, label: str, words: str, content: bytes) -> Lesson:
    """Return the lesson of a change that ``Change.packed`` wrote."""
    source, examples, texts = json.loads(words)
    return Lesson(number=number, label=label, source=source, examples=examples, texts=tuple(texts), content=content)


def _stacked(name: str, lessons: Sequence[Lesson]) -> Tensor:
    """Return the rows of a kind of all lessons, at least one; to make a tensor of each, ten thousand, would be felt."""
    places, first = [one.places[name] for one in lessons], lessons[0].rows[name]
    if len({(place.kind, place.shape[1:]) for place in places}) > 1:
        return torch.cat([one.rows[name] for one in lessons])
    parts = (one.content[place.begin : place.end] for one, place in zip(lessons, places, strict=True))
    return torch.frombuffer(bytearray().join(parts), dtype=first.dtype).view(-1, *first.shape[1:])


def lesson_of(before: Classifier, taught: Classifier, source: Source) -> Lesson:
    """Return what a classifier gained by being taught its last label."""
    known = {name: 0 if part is None else len(part) for name, part in _tensors(before).items()}
    known["width"] = len(before.labels)
    parts = {name: part[known[name] :] for name, part in _tensors(taught).items() if part is not None}
    rows = {name: part.to("cpu", copy=True) for name, part in parts.items() if len(part)}
    label, texts = taught.labels.names[-1], () if taught.labels.texts is None else taught.labels.texts[-1]
    count = len(rows.get("memory", ()))
    return Lesson(label=label, source=source, examples=count, texts=texts, content=bytes_of(rows))


def _tensors(classifier: Classifier) -> dict[str, Tensor | None]:
    """Return the tensors to which a label adds rows."""
    calibration = classifier.calibration
    return {
        "embedding": classifier.label_embeddings,
        "scale": calibration.scale,
        "offset": calibration.offset,
        "unseen": calibration.unseen,
        "width": classifier.familiarity.width,
        "vector": None if classifier.labels.vectors is None else torch.as_tensor(classifier.labels.vectors),
        "memory": classifier.familiarity.memory,
        "train_hashes": classifier.origin.train_hashes,
    }


@dataclass(frozen=True, eq=False)
class Change:
    """A label taught or forgotten; the lesson is what that adds or takes away, None for a label of the saved classifier."""

    number: int
    action: Action
    label: str
    lesson: Lesson | None = None

    def packed(self) -> tuple[int, str, str, int | None, str, bytes]:
        """Return it as a row: the lesson that it forgets by its number; one that it teaches as JSON and safetensors."""
        lesson = self.lesson
        if self.action == "forget" or lesson is None:
            return self.number, self.action, self.label, lesson.number if lesson else None, "", b""
        words = json.dumps([lesson.source, lesson.examples, lesson.texts])
        return self.number, self.action, self.label, None, words, lesson.content


@dataclass(frozen=True, eq=False)
class State:
    """What follows from all changes."""

    change: int = 0  # how many there were, undone ones and undoing among them
    settled: int = 0  # the last that cannot be undone
    changes: tuple[Change, ...] = ()  # those that count, in the order of their numbers

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
        change = Change(lesson.number, "teach", lesson.label, lesson)
        return self._after(change)._knowing((*self.taught, lesson), self.forgotten)

    def forget(self, label: str) -> "State":
        """Return the state after a label, taught or not, was forgotten."""
        lesson = next((one for one in self.taught if one.label == label), None)
        taught = self.taught if lesson is None else tuple(one for one in self.taught if one is not lesson)
        forgotten = self.forgotten | {label} if lesson is None else self.forgotten
        return self._after(Change(self.change + 1, "forget", label, lesson))._knowing(taught, forgotten)

    def undo(self) -> "State":
        """Return the state after the last change was taken back, which is one more change."""
        last, taught, forgotten = self.changes[-1], self.taught, self.forgotten
        if last.lesson is None:
            forgotten -= {last.label}
        elif last.action == "teach":
            taught = taught[:-1]
        else:
            taught = tuple(sorted((*taught, last.lesson), key=lambda one: one.number))
        return State(self.change + 1, self.settled, self.changes[:-1])._knowing(taught, forgotten)

    def tidied(self) -> "State":
        """Return it without taught labels that are forgotten for good."""
        pairs = {one.number: one.lesson.number for one in self.changes if one.action == "forget" and one.lesson}
        gone = {number for pair in pairs.items() if pair[0] <= self.settled for number in pair}
        return replace(self, changes=tuple(one for one in self.changes if one.number not in gone))

    def follows(self, earlier: "State") -> bool:
        """Return whether labels were only added at the end since an earlier state."""
        return self.taught[: len(earlier.taught)] == earlier.taught and self.forgotten == earlier.forgotten

    def knows_as(self, other: "State") -> bool:
        """Return whether the labels are those of another state."""
        return self.taught == other.taught and self.forgotten == other.forgotten

    def lacks(self, earlier: "State") -> int | None:
        """Return the place of the one lesson of an earlier state that this one lacks; None where they differ otherwise."""
        old, new = earlier.taught, self.taught
        if len(new) != len(old) - 1 or self.forgotten != earlier.forgotten:
            return None
        place = next((i for i, one in enumerate(new) if one is not old[i]), len(new))
        return place if old[place + 1 :] == new[place:] else None

    def _knowing(self, taught: tuple[Lesson, ...], forgotten: frozenset[str]) -> "State":
        """Return it with what follows from the changes: to look at all of them again, ten thousand, would be felt."""
        vars(self).update(taught=taught, forgotten=forgotten)
        return self

    def _after(self, change: Change) -> "State":
        changes = (*self.changes, change)
        last = changes[-UNDO - 1 : -UNDO]  # the one that can no longer be undone
        state = State(change.number, max([self.settled, *(one.number for one in last)]), changes)
        return state.tidied() if any(one.action == "forget" and one.lesson for one in last) else state


def joined(classifier: Classifier, forgotten: frozenset[str], lessons: Sequence[Lesson]) -> Classifier:
    """Return the classifier without some labels and with taught ones at the end; rows are copied, never computed."""
    if not forgotten and not lessons:
        return classifier
    labels, rows = classifier.labels, _tensors(classifier)
    columns = [i for i, name in enumerate(labels.names) if name not in forgotten]
    if forgotten:
        rows |= {name: part[columns] for name, part in rows.items() if part is not None and name not in OF_IMAGES}
        labels = labels.select([labels.names[i] for i in columns]) if columns else labels
    if lessons:
        known = labels.vectors is not None and all("vector" in one.places for one in lessons)
        new = Labels(
            names=tuple(one.label for one in lessons),
            vectors=_stacked("vector", lessons) if known else None,
            texts=tuple(one.texts for one in lessons) if labels.texts and all(one.texts for one in lessons) else None,
        )
        labels = labels.join(new) if columns else new
    rows["width"] = _with_width(rows["width"], len(labels) - len(lessons), lessons)
    for name, part in rows.items():
        if name != "width" and (several := [one for one in lessons if name in one.places]):
            more = _stacked(name, several)
            rows[name] = more if part is None else append_rows(part, more)
    return _with(classifier, labels, rows)


def _with_width(part: Tensor | None, count: int, lessons: Sequence[Lesson]) -> Tensor | None:
    """Return the widths of so many labels and of those of lessons, see ``Familiarity``; None where none says any, lessons of before among them."""
    several = [one for one in lessons if "width" in one.places]
    if not several:
        return part if part is None else append_rows(part, torch.ones(len(lessons)))
    known = torch.ones(count) if part is None else part
    if len(several) == len(lessons):
        return append_rows(known, _stacked("width", lessons))
    return append_rows(known, torch.cat([one.rows.get("width", torch.ones(1)) for one in lessons]))


def without(classifier: Classifier, column: int, cuts: Mapping[str, slice]) -> Classifier:
    """Return the classifier without the label of a column, and without these rows of tensors that have some for each image."""
    rows = _tensors(classifier)
    for name, part in rows.items():
        cut = cuts.get(name) if name in OF_IMAGES else slice(column, column + 1)
        if part is not None and cut is not None:
            rows[name] = drop_rows(part, cut.start, cut.stop)
    return _with(classifier, classifier.labels.without(column), rows)


def regained(base: Labels, labels: Labels, lessons: Sequence[Lesson]) -> bool:
    """Return whether labels lack what those of the saved classifier and now all lessons have: vectors, or texts."""
    vectors = base.vectors is not None and labels.vectors is None and all("vector" in one.places for one in lessons)
    return vectors or (base.texts is not None and labels.texts is None and all(one.texts for one in lessons))


def cuts_of(classifier: Classifier, lessons: Sequence[Lesson], place: int) -> dict[str, slice]:
    """Return where the rows of a lesson are in those tensors of a classifier that end with the rows of all lessons."""
    cuts = {}
    for name in OF_IMAGES:
        part, own = _tensors(classifier)[name], lessons[place].count(name)
        if part is not None and own:
            begin = len(part) - sum(one.count(name) for one in lessons[place:])
            cuts[name] = slice(begin, begin + own)
    return cuts


def _with(classifier: Classifier, labels: Labels, rows: Mapping[str, Any]) -> Classifier:
    return replace(
        classifier,
        labels=labels,
        label_embeddings=rows["embedding"],
        calibration=replace(classifier.calibration, **{name: rows[name] for name in ("scale", "offset", "unseen")}),
        familiarity=replace(classifier.familiarity, memory=rows["memory"], width=rows["width"]),
        origin=replace(classifier.origin, train_hashes=rows["train_hashes"]),
    )
