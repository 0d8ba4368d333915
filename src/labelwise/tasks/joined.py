"""Join the answers of boxes: one answer per image, and one per event.

An answer is the label with the highest probability, averaged over the boxes that are known, each weighted by the confidence of its
detector. It is "unknown" if unknown boxes have more than half of the weight. Without a box to classify, it is what the detector saw
("person"), or "empty".
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from labelwise.core.scores import UNKNOWN
from labelwise.images.decode.crops import file_of
from labelwise.images.formats.annotations import Record
from labelwise.tasks.classify import Prediction

EMPTY = "empty"  # an image without a box
Answers = Mapping[str, tuple[Prediction, Any]]  # by address: the answer, and the probability of each label ``[k]``
Member = tuple[str, Record]


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The answer to all boxes of an image or of an event."""

    level: Literal["image", "event"]
    name: str  # the file of the image, or the event
    label: str
    probability: float | None  # of the label; of an image without a box None
    boxes: int
    counts: tuple[tuple[str, int], ...]  # how many boxes have which answer, the most frequent first


def join(records: Mapping[str, Record], answers: Answers, labels: Sequence[str]) -> list[Joined]:
    """Return the joined answers of each image, and then of each event that has a name.

    Args:
        records: what an annotation file says, by address.
        answers: the answers to the boxes that were classified.
        labels: the labels, in the order of the probabilities.
    """
    images: dict[str, list[Member]] = {}
    events: dict[str, list[Member]] = {}
    for address, record in records.items():
        images.setdefault(file_of(address), []).append((address, record))
        if record.group:
            events.setdefault(record.group, []).append((address, record))
    levels: tuple[tuple[Literal["image", "event"], dict[str, list[Member]]], ...] = (
        ("image", images),
        ("event", events),
    )
    every = [_joined(level, name, own, answers, labels) for level, groups in levels for name, own in groups.items()]
    return [one for one in every if one is not None]


def _joined(
    level: Literal["image", "event"], name: str, members: Sequence[Member], answers: Answers, labels: Sequence[str]
) -> Joined | None:
    """Return the answer to some boxes; None if none of them could be read."""
    boxes = [(address, record) for address, record in members if record.box is not None]
    seen = [(*answers[address], _weight(record)) for address, record in boxes if address in answers]
    others = [record for _, record in boxes if record.detected]
    words = [*(prediction.label for prediction, _, _ in seen), *(record.detected for record in others)]
    about = {"level": level, "name": name, "boxes": len(boxes), "counts": tuple(Counter(words).most_common())}
    if seen:
        return Joined(**about, **_best(seen, labels))  # type: ignore[arg-type]
    if others:
        surest = max(others, key=_weight)
        return Joined(**about, label=surest.detected, probability=surest.confidence)  # type: ignore[arg-type]
    whole = [answers[address] for address, _ in members if address in answers]
    if whole:
        return Joined(**about, **_best([(*one, 1.0) for one in whole], labels))  # type: ignore[arg-type]
    return None if boxes else Joined(**about, label=EMPTY, probability=None)  # type: ignore[arg-type]


def _best(seen: Sequence[tuple[Prediction, Any, float]], labels: Sequence[str]) -> dict[str, Any]:
    known = [(values, weight) for prediction, values, weight in seen if prediction.label != UNKNOWN]
    unknown = sum(weight for prediction, _, weight in seen if prediction.label == UNKNOWN)
    used = known or [(values, weight) for _, values, weight in seen]
    mean = np.average([values for values, _ in used], axis=0, weights=[weight for _, weight in used])
    best = int(mean.argmax())
    label = UNKNOWN if unknown > sum(weight for _, weight in known) else labels[best]
    return {"label": label, "probability": float(mean[best])}


def _weight(record: Record) -> float:
    return max(record.confidence or 1.0, 1e-6)
