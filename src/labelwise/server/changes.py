"""Label changes: the rows that a taught label adds, the state after all changes, and the classifier that follows from it.

A taught label is stored as rows of the classifier's arrays, and more examples of a label as its new row. They are copied when they are
read back, never computed again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelwise.core.classifier import Classifier
from labelwise.core.known_examples import KnownExamples
from labelwise.images.describe.labels import Labels
from labelwise.server.errors import HTTPError
from labelwise.server.store import Arrays, Record
from labelwise.support.rows import append_rows

Source = Literal["examples", "texts", "vector"]
Rows = dict[str, Any]
UNDO = 50  # changes that can be undone
MEASURED: tuple[str, ...] = ("count", "mean")  # of the examples of a label
OF_IMAGES = ("memory", "train_digests")  # arrays with a row for each image; the others have one for each label


@dataclass(frozen=True, eq=False, kw_only=True)
class TaughtLabel:
    """A label that a service was taught: ``embedding [1, e]``, ``scale [1]``, ``memory [m, d]`` and the like."""

    name: str
    source: Source
    examples: int  # how many images
    texts: tuple[str, ...]
    arrays: Arrays
    number: int = 0  # of the change that taught it


@dataclass(frozen=True, eq=False, kw_only=True)
class MoreExamples:
    """More examples of a known label: its new row ``embedding [1, e]``, and what they add, such as ``memory [m, d]``."""

    name: str
    examples: int
    arrays: Arrays
    number: int  # of the change


@dataclass(frozen=True, eq=False)
class LabelChange:
    """A label taught, corrected by more examples, or forgotten."""

    action: Literal["teach", "correct", "forget"]
    label: str
    taught: TaughtLabel | None = None  # what was added or removed; None for a label of the saved classifier
    more: tuple[MoreExamples, ...] = ()  # likewise


@dataclass(frozen=True, eq=False)
class State:
    """What follows from all changes."""

    taught: tuple[TaughtLabel, ...] = ()  # in the order in which they were taught
    forgotten: frozenset[str] = field(default_factory=frozenset)  # labels of the saved classifier
    undoable: tuple[LabelChange, ...] = ()  # the last changes, the latest at the end
    more: tuple[MoreExamples, ...] = ()  # of labels that there are, in the order in which they were given

    @property
    def additions(self) -> tuple[TaughtLabel | MoreExamples, ...]:
        """Taught labels and more examples, in the order of their changes."""
        every: tuple[TaughtLabel | MoreExamples, ...] = (*self.taught, *self.more)
        return tuple(sorted(every, key=lambda one: one.number)) if self.more else self.taught

    def last_of(self, label: str) -> int:
        """Return the number of the change that a label was last learned by; 0 for one of the saved classifier."""
        return max((one.number for one in self.additions if one.name == label), default=0)

    def after(self, records: Iterable[Record]) -> "State":
        """Return the state after some more changes."""
        state = self
        for record in records:
            state = state._after(record)
        return state

    def find(self, label: str) -> TaughtLabel | None:
        """Return the taught label of a name; None where there is none."""
        return next((one for one in self.taught if one.name == label), None)

    def has(self, base: Classifier, label: str) -> bool:
        """Return whether there is a label of this name, given the saved classifier."""
        trained = label in base.labels.names and label not in self.forgotten
        return trained or self.find(label) is not None

    def count(self, base: Classifier) -> int:
        """Return how many labels there are, given the saved classifier."""
        return len(base.labels) - len(self.forgotten) + len(self.taught)

    def _after(self, record: Record) -> "State":
        if record.kind == "teach":
            new = _taught(record)
            return replace(self, taught=(*self.taught, new))._noted(LabelChange("teach", new.name, new))
        if record.kind == "forget":
            label = str(record.about["label"])
            gone = self.find(label)
            rest = tuple(one for one in self.taught if one is not gone) if gone else self.taught
            more = tuple(one for one in self.more if one.name == label)
            forgotten = self.forgotten if gone else self.forgotten | {label}
            state = replace(self, taught=rest, forgotten=forgotten, more=_without(self.more, more))
            return state._noted(LabelChange("forget", label, gone, more))
        if record.kind == "correct":
            one = MoreExamples(
                name=str(record.about["label"]),
                examples=record.about["examples"],
                arrays=record.arrays,
                number=record.number,
            )
            return replace(self, more=(*self.more, one))._noted(LabelChange("correct", one.name, more=(one,)))
        assert record.kind == "undo", record.kind
        return self._undone(self.undoable[-1])

    def _undone(self, last: LabelChange) -> "State":
        state = replace(self, undoable=self.undoable[:-1])
        if last.action == "correct":
            return replace(state, more=_without(self.more, last.more))
        if last.action == "teach":
            return replace(state, taught=tuple(one for one in self.taught if one is not last.taught))
        more = tuple(sorted((*self.more, *last.more), key=lambda one: one.number))
        if last.taught is None:
            return replace(state, forgotten=self.forgotten - {last.label}, more=more)
        return replace(state, taught=tuple(sorted((*self.taught, last.taught), key=lambda one: one.number)), more=more)

    def _noted(self, change: LabelChange) -> "State":
        return replace(self, undoable=(*self.undoable, change)[-UNDO:])


def teach_record(before: Classifier, taught: Classifier, source: Source, examples: int = 0) -> Record:
    """Return the change that adds the last label of a classifier to the one it was taught from, from so many images."""
    arrays = _added(before, taught) | _known_examples(taught, taught.labels.names[-1])
    texts = taught.labels.texts[-1] if taught.labels.texts is not None else ()
    about = {
        "label": taught.labels.names[-1],
        "source": source,
        "texts": list(texts),
        "examples": examples,
    }
    return Record("teach", about, arrays)


def correct_record(before: Classifier, taught: Classifier, label: str, examples: int) -> Record:
    """Return the change by which a classifier learned a known label from so many images more."""
    row = taught.label_embeddings[taught.labels.index(label)][None]
    arrays = _added(before, taught) | _known_examples(taught, label) | {"embedding": np.array(row, order="C")}
    return Record("correct", {"label": label, "examples": examples}, arrays)


def _added(before: Classifier, taught: Classifier) -> dict[str, npt.NDArray[Any]]:
    """Return the rows that a classifier has beyond those of another one."""
    known = {name: 0 if rows is None else len(rows) for name, rows in _rows(before).items()}
    known["width"] = len(before.labels)
    return {
        name: np.array(np.asarray(rows[known[name] :]), order="C")
        for name, rows in _rows(taught).items()
        if rows is not None and len(rows) > known[name]
    }


def _known_examples(classifier: Classifier, label: str) -> dict[str, npt.NDArray[Any]]:
    """Return how many examples a label was learned from, and their mean, where the classifier keeps that."""
    examples = classifier.examples
    if examples is None or label not in examples.names:
        return {}
    place = examples.names.index(label)
    return {"count": examples.counts[[place]], "mean": examples.means[[place]]}


def forget_record(state: State, base: Classifier, label: str) -> Record:
    """Return the change that removes a label, or refuse."""
    if not state.has(base, label):
        raise HTTPError(404, f'No label "{label}".')
    if state.count(base) == 1:
        raise HTTPError(409, f'"{label}" is the only label; a classifier needs at least one. Teach another first.')
    return Record("forget", {"label": label})


def undo_record(state: State) -> Record:
    """Return the change that undoes the last one, or refuse."""
    if not state.undoable:
        raise HTTPError(409, f"There is nothing to undo; the last {UNDO} changes can be undone.")
    last = state.undoable[-1]
    return Record("undo", {"label": last.label, "undone": last.action})


def follow(base: Classifier, classifier: Classifier, before: State, after: State) -> Classifier:
    """Return the classifier of a state, given the one of an earlier state; where something was only added, it is added to that one."""
    known, every = before.additions, after.additions
    if before.forgotten == after.forgotten and known == every[: len(known)]:
        return _add(classifier, every[len(known) :])
    left = [name for name in base.labels.names if name not in after.forgotten]
    if len(left) == len(base.labels):
        return _add(base, every)
    return _add(base.select(left), every) if left else _add(base, every, replaces=True)


def _add(
    classifier: Classifier, additions: Sequence[TaughtLabel | MoreExamples], *, replaces: bool = False
) -> Classifier:
    """Return a classifier with taught labels and more examples; ``replaces``: without any label of its own."""
    for teaches, some in groupby(additions, lambda one: isinstance(one, TaughtLabel)):
        if teaches:
            labels = [one for one in some if isinstance(one, TaughtLabel)]
            classifier, replaces = _append(classifier, labels, replaces=replaces), False
        else:
            for one in some:
                assert isinstance(one, MoreExamples)
                classifier = _correct(classifier, one)
    return classifier


def _correct(classifier: Classifier, more: MoreExamples) -> Classifier:
    """Return a classifier that has learned a label from more examples."""
    place, arrays, rows = classifier.labels.index(more.name), more.arrays, _rows(classifier)
    embedding, unseen = classifier.label_embeddings.copy(), classifier.calibration.unseen.copy()
    embedding[place], unseen[place] = arrays["embedding"][0], False
    for name in OF_IMAGES:
        if name in arrays:
            rows[name] = arrays[name] if rows[name] is None else append_rows(rows[name], arrays[name])
    return replace(
        classifier,
        label_embeddings=embedding,
        calibration=replace(classifier.calibration, unseen=unseen),
        familiarity=replace(classifier.familiarity, memory=rows["memory"]),
        origin=replace(classifier.origin, train_digests=rows["train_digests"]),
        examples=_put(classifier.examples, [more.name] if "count" in arrays else [], arrays),
    )


def _put(known: KnownExamples | None, names: Sequence[str], arrays: Arrays) -> KnownExamples | None:
    """Return what is known of examples with those of these labels: ``count [m]`` and ``mean [m, d]``."""
    if not names:
        return known
    counts, means = arrays["count"], arrays["mean"]
    return (known or KnownExamples((), counts[:0], means[:0])).put(names, counts, means)


def _without(some: tuple[MoreExamples, ...], gone: Sequence[MoreExamples]) -> tuple[MoreExamples, ...]:
    return tuple(one for one in some if not any(one is other for other in gone))


def _taught(record: Record) -> TaughtLabel:
    about = record.about
    return TaughtLabel(
        name=about["label"], source=about["source"], examples=about["examples"], texts=tuple(about["texts"]),
        arrays=record.arrays, number=record.number,
    )  # fmt: skip


def _rows(classifier: Classifier) -> Rows:
    """Return the arrays to which a label adds rows."""
    calibration = classifier.calibration
    return {
        "embedding": classifier.label_embeddings,
        "scale": calibration.scale,
        "offset": calibration.offset,
        "unseen": calibration.unseen,
        "prior": calibration.prior,
        "width": classifier.familiarity.width,
        "vector": classifier.labels.vectors,
        "memory": classifier.familiarity.memory,
        "train_digests": classifier.origin.train_digests,
    }


def _append(classifier: Classifier, taught: Sequence[TaughtLabel], *, replaces: bool = False) -> Classifier:
    """Return a classifier with more labels at the end, or with these labels alone."""
    if not taught:
        return classifier
    rows, arrays = _rows(classifier), _stacked(taught)
    if replaces:
        rows |= {name: part[:0] for name, part in rows.items() if part is not None and name not in OF_IMAGES}
    if rows["width"] is not None or "width" in arrays:
        ones = np.ones(1, np.float32)
        known = np.ones(len(rows["embedding"]), np.float32) if rows["width"] is None else rows["width"]
        rows["width"] = append_rows(known, np.concatenate([one.arrays.get("width", ones) for one in taught]))
    vectors, texts = arrays.pop("vector", None), tuple(one.texts for one in taught)
    counted = {name: arrays.pop(name) for name in MEASURED if name in arrays}
    examples = _put(
        None if replaces else classifier.examples, [one.name for one in taught if "count" in one.arrays], counted
    )
    for name, more in arrays.items():
        if name != "width":
            rows[name] = more if rows[name] is None else append_rows(rows[name], more)
    new = Labels(
        names=tuple(one.name for one in taught),
        vectors=None if vectors is None or len(vectors) < len(taught) else vectors,
        texts=texts if all(texts) else None,
    )
    return replace(
        classifier,
        labels=new if replaces else classifier.labels.join(new),
        label_embeddings=rows["embedding"],
        calibration=replace(
            classifier.calibration,
            scale=rows["scale"],
            offset=rows["offset"],
            unseen=rows["unseen"],
            prior=rows["prior"],
        ),
        familiarity=replace(classifier.familiarity, memory=rows["memory"], width=rows["width"]),
        origin=replace(classifier.origin, train_digests=rows["train_digests"]),
        examples=examples,
    )


def _stacked(taught: Sequence[TaughtLabel]) -> dict[str, npt.NDArray[Any]]:
    """Return the rows of all labels, joined by kind."""
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for one in taught:
        for name, rows in one.arrays.items():
            parts.setdefault(name, []).append(rows)
    return {name: some[0] if len(some) == 1 else np.concatenate(some) for name, some in parts.items()}
