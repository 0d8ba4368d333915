"""What a service was taught and has forgotten, as plain values: the state, its history, and the classifier that follows."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from labelwise.core import Classifier, Labels
from labelwise.errors import StoreError

Source = Literal["examples", "texts", "vector"]
Action = Literal["teach", "forget"]
UNDO = 50  # changes that can be undone


@dataclass(frozen=True, eq=False, kw_only=True)
class Lesson:
    """A taught label: the rows that it adds to a classifier, so that nothing is computed anew when it is read back.

    Attributes:
        label: its name.
        source: what it was learnt from.
        examples: how many pictures.
        code: ``[e]``.
        scale: of its scores.
        offset: of its scores.
        described: whether it is known from a description alone.
        vector: its attributes ``[a]``, if labels have them.
        texts: its sentences, if labels have them.
        memory: unit codes of its pictures ``[m, d]``.
        seen: their fingerprints ``[m]``.
    """

    label: str
    source: Source
    examples: int
    code: Tensor
    scale: float
    offset: float
    described: bool
    vector: Tensor | None
    texts: tuple[str, ...]
    memory: Tensor | None
    seen: Tensor | None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON values; numbers keep every bit."""
        pieces = {name: getattr(self, name) for name in ("code", "vector", "memory", "seen")}
        words = {name: getattr(self, name) for name in ("label", "source", "examples", "scale", "offset", "described")}
        tensors = {name: _packed(piece) for name, piece in pieces.items() if piece is not None}
        return {**words, "texts": list(self.texts), **tensors}


def lesson_of(plain: Mapping[str, Any]) -> Lesson:
    """Return the lesson that ``Lesson.plain`` wrote."""
    optional = ("vector", "memory", "seen")
    tensors: dict[str, Any] = {name: _unpacked(plain[name]) if name in plain else None for name in optional}
    words: dict[str, Any] = {
        name: plain[name] for name in ("label", "source", "examples", "scale", "offset", "described")
    }
    return Lesson(**words, **tensors, code=_unpacked(plain["code"]), texts=tuple(plain["texts"]))


def lesson_from(before: Classifier, taught: Classifier, source: Source) -> Lesson:
    """Return what a classifier gained by being taught its last label."""
    old = 0 if before.memory is None else len(before.memory)
    seen = 0 if before.seen is None else len(before.seen)
    memory = None if taught.memory is None or len(taught.memory) == old else taught.memory[old:].cpu()
    labels = taught.labels
    return Lesson(
        label=labels.names[-1],
        source=source,
        examples=0 if memory is None else len(memory),
        code=taught.codes[-1].cpu(),
        scale=float(taught.scale[-1]),
        offset=float(taught.offset[-1]),
        described=labels.names[-1] in taught.described,
        vector=None if labels.vectors is None else labels.vectors[-1].cpu(),
        texts=() if labels.texts is None else labels.texts[-1],
        memory=memory,
        seen=None if taught.seen is None or len(taught.seen) == seen else taught.seen[seen:].cpu(),
    )


@dataclass(frozen=True)
class State:
    """Which labels of the saved classifier are forgotten, and the taught ones in their order."""

    forgotten: frozenset[str] = frozenset()
    taught: tuple[Lesson, ...] = ()


@dataclass(frozen=True)
class Change:
    """A change that can be undone, and the state before it."""

    action: Action
    label: str
    before: State


@dataclass(frozen=True)
class Story:
    """How it came to the present state.

    Attributes:
        change: how many changes there were, undone ones and undoing among them.
        state: the present one.
        undoable: the last changes, the latest at the end.
    """

    change: int = 0
    state: State = State()
    undoable: tuple[Change, ...] = ()


def follow(story: Story, record: Mapping[str, Any]) -> Story:
    """Return the story after one more record of the journal."""
    state, action, change = story.state, record["action"], int(record["change"])
    match action:
        case "teach":
            lesson = lesson_of(record["lesson"])
            after, label = replace(state, taught=(*state.taught, lesson)), lesson.label
        case "forget":
            label = record["label"]
            taught = tuple(one for one in state.taught if one.label != label)
            gone = frozenset() if len(taught) < len(state.taught) else frozenset([label])
            after = State(state.forgotten | gone, taught)
        case "undo":
            return Story(change, story.undoable[-1].before, story.undoable[:-1])
        case "start":
            lessons = tuple(lesson_of(one) for one in record["taught"])
            return Story(change, State(frozenset(record["forgotten"]), lessons))
        case "count":
            return replace(story, change=change)
        case _:
            raise StoreError(f'The journal has a record "{action}", which this version does not know.')
    return Story(change, after, (*story.undoable, Change(action, label, state))[-UNDO:])


def shortened(story: Story) -> list[dict[str, Any]]:
    """Return the fewest records that lead to the same story."""
    first = story.undoable[0].before if story.undoable else story.state
    start = {"action": "start", "forgotten": sorted(first.forgotten), "taught": [one.plain() for one in first.taught]}
    afters = [one.before for one in story.undoable[1:]] + [story.state]
    steps = [_record(one, after) for one, after in zip(story.undoable, afters, strict=True)]
    return [{**record, "change": story.change} for record in (start, *steps, {"action": "count"})]


def _record(change: Change, after: State) -> dict[str, Any]:
    if change.action == "teach":
        return {"action": "teach", "lesson": after.taught[-1].plain()}
    return {"action": "forget", "label": change.label}


def classifier_after(base: Classifier, state: State) -> Classifier:
    """Return the saved classifier without what was forgotten and with what was taught; rows are copied, never computed."""
    if state == State():
        return base
    kept = [name for name in base.labels.names if name not in state.forgotten]
    rows = torch.tensor([base.labels.index(name) for name in kept], dtype=torch.int64, device=base.codes.device)
    taught = state.taught
    pieces: dict[str, Any] = {
        "codes": torch.cat([base.codes[rows], *(one.code[None].to(base.codes) for one in taught)]),
        "scale": torch.cat([base.scale[rows], base.scale.new_tensor([one.scale for one in taught])]),
        "offset": torch.cat([base.offset[rows], base.offset.new_tensor([one.offset for one in taught])]),
    }
    for name in ("memory", "seen"):
        own, more = getattr(base, name), [getattr(one, name) for one in taught if getattr(one, name) is not None]
        if more:
            pieces[name] = torch.cat(
                [*([] if own is None else [own]), *(m.to(more[0] if own is None else own) for m in more)]
            )
    described = (base.described & set(kept)) | {one.label for one in taught if one.described}
    return replace(base, labels=_labels(base.labels, kept, taught), described=frozenset(described), **pieces)


def _labels(base: Labels, kept: list[str], taught: tuple[Lesson, ...]) -> Labels:
    labels = None
    if kept:
        labels = base if len(kept) == len(base) else base.select(kept)
    for one in taught:
        if labels is None:
            vectors = None if one.vector is None else one.vector[None]
            labels = Labels(names=(one.label,), vectors=vectors, texts=(one.texts,) if one.texts else None)
        else:
            labels = labels.add(one.label, vector=one.vector, texts=one.texts)
    if labels is None:
        raise StoreError("The journal leaves no label at all; a classifier needs at least one.")
    return labels


def _packed(tensor: Tensor) -> dict[str, Any]:
    array = tensor.detach().cpu().contiguous().numpy()
    return {"type": array.dtype.str, "shape": list(array.shape), "data": b64encode(array.tobytes()).decode()}


def _unpacked(plain: Mapping[str, Any]) -> Tensor:
    if plain["type"] not in ("<f4", "<f8", "<i8", "<f2"):
        raise StoreError(f"The journal holds numbers of type {plain['type']}, which this version does not read.")
    flat = np.frombuffer(b64decode(plain["data"]), plain["type"])
    return torch.from_numpy(flat.reshape(plain["shape"]).copy())
