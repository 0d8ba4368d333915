"""Label changes: the rows that a taught label adds, the state after all changes, and the classifier that follows from it.

A taught label is stored as rows of the classifier's arrays. They are copied when they are read back, never computed again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelwise.core.classifier import Classifier
from labelwise.images.describe.labels import Labels
from labelwise.server.errors import HTTPError
from labelwise.server.store import Arrays, Record
from labelwise.support.rows import append_rows

Source = Literal["examples", "texts", "vector"]
Rows = dict[str, Any]
UNDO = 50  # changes that can be undone
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


@dataclass(frozen=True, eq=False)
class LabelChange:
    """A label taught or forgotten."""

    action: Literal["teach", "forget"]
    label: str
    taught: TaughtLabel | None = None  # what was added or removed; None for a label of the saved classifier


@dataclass(frozen=True, eq=False)
class State:
    """What follows from all changes."""

    taught: tuple[TaughtLabel, ...] = ()  # in the order in which they were taught
    forgotten: frozenset[str] = field(default_factory=frozenset)  # labels of the saved classifier
    undoable: tuple[LabelChange, ...] = ()  # the last changes, the latest at the end

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
            return self._with(LabelChange("teach", new.name, new), (*self.taught, new), self.forgotten)
        if record.kind == "forget":
            label = str(record.about["label"])
            gone = self.find(label)
            rest = tuple(one for one in self.taught if one is not gone) if gone else self.taught
            return self._with(
                LabelChange("forget", label, gone), rest, self.forgotten if gone else self.forgotten | {label}
            )
        assert record.kind == "undo", record.kind
        last, taught, forgotten = self.undoable[-1], self.taught, self.forgotten
        if last.taught is None:
            forgotten -= {last.label}
        elif last.action == "teach":
            taught = tuple(one for one in taught if one is not last.taught)
        else:
            taught = tuple(sorted((*taught, last.taught), key=lambda one: one.number))
        return State(taught, forgotten, self.undoable[:-1])

    def _with(self, change: LabelChange, taught: tuple[TaughtLabel, ...], forgotten: frozenset[str]) -> "State":
        return State(taught, forgotten, (*self.undoable, change)[-UNDO:])


def teach_record(before: Classifier, taught: Classifier, source: Source) -> Record:
    """Return the change that adds the last label of a classifier to the one it was taught from."""
    known = {name: 0 if rows is None else len(rows) for name, rows in _rows(before).items()}
    known["width"] = len(before.labels)
    arrays = {
        name: np.array(np.asarray(rows[known[name] :]), order="C")
        for name, rows in _rows(taught).items()
        if rows is not None and len(rows) > known[name]
    }
    texts = taught.labels.texts[-1] if taught.labels.texts is not None else ()
    about = {
        "label": taught.labels.names[-1],
        "source": source,
        "texts": list(texts),
        "examples": len(arrays.get("memory", ())),
    }
    return Record("teach", about, arrays)


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
    """Return the classifier of a state, given the one of an earlier state; where labels were only added, their rows are appended."""
    known = len(before.taught)
    if before.forgotten == after.forgotten and before.taught == after.taught[:known]:
        return _append(classifier, after.taught[known:])
    columns = [i for i, name in enumerate(base.labels.names) if name not in after.forgotten]
    if len(columns) == len(base.labels):
        return _append(base, after.taught)
    if columns:
        return _append(base.select([base.labels.names[i] for i in columns]), after.taught)
    return _append(base, after.taught, replaces=True)


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
    )


def _stacked(taught: Sequence[TaughtLabel]) -> dict[str, npt.NDArray[Any]]:
    """Return the rows of all labels, joined by kind."""
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for one in taught:
        for name, rows in one.arrays.items():
            parts.setdefault(name, []).append(rows)
    return {name: some[0] if len(some) == 1 else np.concatenate(some) for name, some in parts.items()}
