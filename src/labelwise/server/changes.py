"""Label changes: the rows of a taught label, the state after all changes, and the resulting classifier.

A change that teaches a label holds the rows to add to the classifier's arrays: ``embedding [1, e]``, ``scale [1]``, ``memory [m, d]``
and others. A change with more examples holds the new row of the label and the added rows. Reading a change copies its rows and never
recomputes them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labelwise.core.classifier import Classifier
from labelwise.core.known_examples import KnownExamples
from labelwise.images.describe.labels import Labels
from labelwise.server.errors import HTTPError
from labelwise.server.store import Arrays, Record
from labelwise.support.errors import StoreError, UsageError
from labelwise.support.rows import append_rows

Source = Literal["examples", "texts", "vector"]
Rows = dict[str, Any]
UNDO = 50  # most changes to undo
MEASURED: tuple[str, ...] = ("count", "mean")  # statistics of a label's examples
OF_LABELS = ("embedding", "scale", "offset", "unseen", "prior", "width")  # arrays with one row per label
OF_IMAGES = ("memory", "train_digests")  # arrays with one row per image


@contextmanager
def _fits(number: int) -> Iterator[None]:
    """Raise errors of applying a change as ``StoreError``."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError, UsageError) as error:
        raise StoreError(
            f"Change {number} does not fit this classifier and the changes before it ({error!r}): another version of labelwise "
            "wrote it, or it was altered."
        ) from error


@dataclass(frozen=True, eq=False)
class Step:
    """The effect of a change, for undo."""

    action: Literal["teach", "correct", "forget"]
    label: str
    records: tuple[Record, ...] = ()  # records that it added or removed


@dataclass(frozen=True, eq=False)
class State:
    """The result of all changes."""

    added: tuple[Record, ...] = ()  # changes that taught a label or more examples, in order
    forgotten: frozenset[str] = field(default_factory=frozenset)  # labels of the saved classifier
    undoable: tuple[Step, ...] = ()  # recent changes, the latest last

    @property
    def taught(self) -> list[Record]:
        """The changes that taught a label, in the order of the labels."""
        return [one for one in self.added if one.kind == "teach"]

    def last_of(self, label: str) -> bytes:
        """Return the digest of the last change to a label; empty for a label of the saved classifier."""
        return next((one.digest for one in reversed(self.added) if one.label == label), b"")

    def after(self, records: Iterable[Record]) -> "State":
        """Return the state after more changes."""
        state = self
        for record in records:
            with _fits(record.number):
                state = state._after(record)
        return state

    def names(self, base: Classifier) -> list[str]:
        """Return all labels, given the saved classifier."""
        return [
            *(name for name in base.labels.names if name not in self.forgotten),
            *(one.label for one in self.taught),
        ]

    def _after(self, record: Record) -> "State":
        if record.kind == "undo":
            return self._undone(self.undoable[-1])
        label = record.label
        if record.kind == "forget":
            gone = tuple(one for one in self.added if one.label == label)
            state = replace(self, added=_without(self.added, gone))
            if not _teaches(gone):
                state = replace(state, forgotten=self.forgotten | {label})
            return state._noted(Step("forget", label, gone))
        if record.kind not in ("teach", "correct"):
            raise ValueError(f'its kind "{record.kind}" is unknown')
        kind: Literal["teach", "correct"] = "teach" if record.kind == "teach" else "correct"
        return replace(self, added=(*self.added, record))._noted(Step(kind, label, (record,)))

    def _undone(self, last: Step) -> "State":
        state = replace(self, undoable=self.undoable[:-1])
        if last.action != "forget":
            return replace(state, added=_without(self.added, last.records))
        state = replace(state, added=tuple(sorted((*self.added, *last.records), key=lambda one: one.number)))
        return state if _teaches(last.records) else replace(state, forgotten=self.forgotten - {last.label})

    def _noted(self, step: Step) -> "State":
        return replace(self, undoable=(*self.undoable, step)[-UNDO:])


def teach_record(before: Classifier, taught: Classifier, source: Source, examples: int = 0) -> Record:
    """Return the change that adds the last label of a classifier, learned from ``examples`` images, to an earlier classifier."""
    arrays = _added(before, taught) | _known_examples(taught, taught.labels.names[-1])
    texts = taught.labels.texts[-1] if taught.labels.texts is not None else ()
    about = {"label": taught.labels.names[-1], "source": source, "texts": list(texts), "examples": examples}
    if taught.labels.parents is not None and taught.labels.parents[-1]:
        about["parents"] = list(taught.labels.parents[-1])
    return Record("teach", about, arrays)


def correct_record(before: Classifier, taught: Classifier, label: str, examples: int) -> Record:
    """Return the change that teaches a known label more images."""
    row = taught.label_embeddings[taught.labels.index(label)][None]
    arrays = _added(before, taught) | _known_examples(taught, label) | {"embedding": np.array(row, order="C")}
    return Record("correct", {"label": label, "examples": examples}, arrays)


def _added(before: Classifier, taught: Classifier) -> dict[str, npt.NDArray[Any]]:
    """Return the rows that one classifier has in addition to another."""
    known = {name: 0 if rows is None else len(rows) for name, rows in _rows(before).items()}
    known["width"] = len(before.labels)
    return {
        name: np.array(np.asarray(rows[known[name] :]), order="C")
        for name, rows in _rows(taught).items()
        if rows is not None and len(rows) > known[name]
    }


def _known_examples(classifier: Classifier, label: str) -> dict[str, npt.NDArray[Any]]:
    """Return count and mean of a label's examples, if the classifier has them."""
    examples = classifier.examples
    if examples is None or label not in examples.names:
        return {}
    place = examples.names.index(label)
    return {"count": examples.counts[[place]], "mean": examples.means[[place]]}


def forget_record(state: State, base: Classifier, label: str) -> Record:
    """Return the change that removes a label, or refuse it."""
    names = state.names(base)
    if label not in names:
        raise HTTPError(404, f'No label "{label}".')
    if len(names) == 1:
        raise HTTPError(409, f'"{label}" is the only label; a classifier needs at least one. Teach another first.')
    return Record("forget", {"label": label})


def undo_record(state: State) -> Record:
    """Return the change that undoes the last one, or refuse it."""
    if not state.undoable:
        raise HTTPError(409, f"There is nothing to undo. Only the last {UNDO} changes can be undone.")
    last = state.undoable[-1]
    return Record("undo", {"label": last.label, "undone": last.action})


def follow(base: Classifier, classifier: Classifier, before: State, after: State) -> Classifier:
    """Return the classifier of a state; starts from an earlier classifier if changes only added rows."""
    known, every = before.added, after.added
    if before.forgotten == after.forgotten and known == every[: len(known)]:
        return _add(classifier, every[len(known) :])
    left = [name for name in base.labels.names if name not in after.forgotten]
    if len(left) == len(base.labels):
        return _add(base, every)
    return _add(base.select(left), every) if left else _add(base, every, replaces=True)


def _add(classifier: Classifier, added: Sequence[Record], *, replaces: bool = False) -> Classifier:
    """Return a classifier with taught labels and more examples; ``replaces`` drops its own labels."""
    for kind, group in groupby(added, lambda one: one.kind):
        some = list(group)
        with _fits(some[-1].number):
            if kind == "teach":
                classifier, replaces = _append(classifier, some, replaces=replaces), False
            else:
                classifier = reduce(_correct, some, classifier)
    return classifier


def _correct(classifier: Classifier, more: Record) -> Classifier:
    """Return a classifier whose label learned from more examples."""
    place, arrays, rows = classifier.labels.index(more.label), more.arrays, _rows(classifier)
    embedding, unseen = classifier.label_embeddings.copy(), classifier.calibration.unseen.copy()
    embedding[place], unseen[place] = arrays["embedding"][0], False
    for name in OF_IMAGES:
        if name in arrays:
            rows[name] = arrays[name] if rows[name] is None else append_rows(rows[name], arrays[name])
    rows |= {"embedding": embedding, "unseen": unseen}
    examples = _put(classifier.examples, [more.label] if "count" in arrays else [], arrays)
    return _with_rows(classifier, rows, examples, np.full(len(arrays.get("memory", ())), place))


def _put(known: KnownExamples | None, names: Sequence[str], arrays: Arrays) -> KnownExamples | None:
    """Return the statistics of examples with these labels added: ``count [m]`` and ``mean [m, d]``."""
    if not names:
        return known
    counts, means = arrays["count"], arrays["mean"]
    return (known or KnownExamples((), counts[:0], means[:0])).put(names, counts, means)


def _teaches(records: Iterable[Record]) -> bool:
    return any(one.kind == "teach" for one in records)


def _without(records: tuple[Record, ...], gone: Sequence[Record]) -> tuple[Record, ...]:
    return tuple(one for one in records if not any(one is other for other in gone))


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


def _with_rows(
    classifier: Classifier, rows: Rows, examples: KnownExamples | None, targets: npt.NDArray[Any]
) -> Classifier:
    """Return a classifier with these arrays; ``targets`` are the labels of the images that it remembers more."""
    known, memory = classifier.familiarity.targets, rows["memory"]
    before = np.full(0 if memory is None else len(memory) - len(targets), -1)
    targets = np.concatenate([before if known is None else known, targets])
    of_labels = {name: rows[name] for name in OF_LABELS if rows[name] is not None}
    if {len(one) for one in of_labels.values()} != {len(classifier.labels)}:
        raise ValueError(f"{len(classifier.labels)} labels have a row each of {', '.join(of_labels)}")
    part = {name: rows[name] for name in ("scale", "offset", "unseen", "prior")}
    count, later = len(rows["unseen"]), classifier.calibration.later
    if count != len(classifier.calibration.unseen):
        before = np.zeros(len(classifier.calibration.unseen), bool) if later is None else later
        part["later"] = np.concatenate([before, np.ones(max(0, count - len(before)), bool)])[:count]
    return replace(
        classifier,
        label_embeddings=rows["embedding"],
        calibration=replace(classifier.calibration, **part),
        familiarity=replace(classifier.familiarity, memory=rows["memory"], targets=targets, width=rows["width"]),
        origin=replace(classifier.origin, train_digests=rows["train_digests"]),
        examples=examples,
    )


def _append(classifier: Classifier, taught: Sequence[Record], *, replaces: bool = False) -> Classifier:
    """Return a classifier with labels appended, or with these labels only."""
    rows, arrays = _rows(classifier), _stacked(taught)
    if replaces:
        rows |= {name: part[:0] for name, part in rows.items() if part is not None and name not in OF_IMAGES}
    if rows["width"] is not None or "width" in arrays:
        ones = np.ones(1, np.float32)
        known = np.ones(len(rows["embedding"]), np.float32) if rows["width"] is None else rows["width"]
        rows["width"] = append_rows(known, np.concatenate([one.arrays.get("width", ones) for one in taught]))
    vectors, texts = arrays.pop("vector", None), tuple(tuple(one.about["texts"]) for one in taught)
    counted = {name: arrays.pop(name) for name in MEASURED if name in arrays}
    examples = _put(
        None if replaces else classifier.examples, [one.label for one in taught if "count" in one.arrays], counted
    )
    for name, more in arrays.items():
        if name != "width":
            rows[name] = more if rows[name] is None else append_rows(rows[name], more)
    parents = tuple(tuple(one.about.get("parents", ())) for one in taught)
    new = Labels(
        names=tuple(one.label for one in taught),
        parents=parents if any(parents) else None,
        vectors=None if vectors is None or len(vectors) < len(taught) else vectors,
        texts=texts if all(texts) else None,
    )
    labels = new if replaces else classifier.labels.join(new)
    places = np.arange(len(labels) - len(taught), len(labels))
    targets = np.repeat(places, [len(one.arrays.get("memory", ())) for one in taught])
    if replaces and classifier.familiarity.targets is not None:
        classifier = replace(classifier, familiarity=replace(classifier.familiarity, targets=None))
    return _with_rows(replace(classifier, labels=labels), rows, examples, targets)


def _stacked(taught: Sequence[Record]) -> dict[str, npt.NDArray[Any]]:
    """Return the rows of all labels, joined by kind."""
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for one in taught:
        for name, rows in one.arrays.items():
            parts.setdefault(name, []).append(rows)
    return {name: some[0] if len(some) == 1 else np.concatenate(some) for name, some in parts.items()}
