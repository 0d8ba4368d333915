"""Join the answers of boxes and of frames: one answer per image or video, and one per event.

An answer is the label with the highest probability, averaged over the boxes (or frames) that are known, each weighted by the confidence of its
detector. With ``max_error`` it is a parent, or "unsure", where the mean is below the limit for single images. It is "unknown" if unknown boxes have more than half of the weight. Without a box to classify, it is what the detector saw
("person"), or "empty".
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.core.coarser import Tree
from labelwise.core.scores import UNKNOWN, UNSURE
from labelwise.images.decode.crops import file_of, is_video
from labelwise.images.formats.annotations import Record

EMPTY = "empty"  # an image without a box
Answers = Mapping[str, tuple[str, Array]]  # by address: the answer, and the probability of each label ``[k]``
Decide = Callable[[Array], tuple[str, float]]  # the answer to mean probabilities ``[k]``, and its own
Member = tuple[str, Record]
Level = Literal["image", "video", "event"]


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The answer to all boxes of an image, to all frames of a video, or to both of an event."""

    level: Level
    name: str  # the file of the image or the video, or the event
    label: str
    probability: float | None  # of the label; of an image without a box None
    boxes: int
    counts: tuple[tuple[str, int], ...]  # how many boxes or frames have which answer, the most frequent first


def decider(classifier: Classifier, max_error: float | None = None) -> Decide:
    """Return how a classifier answers mean probabilities."""
    names, tree = classifier.labels.names, Tree.of(classifier.labels)
    limit = None if max_error is None else classifier.error_limit(max_error)

    def decide(mean: Array) -> tuple[str, float]:
        best = int(mean.argmax())
        if limit is None:
            return names[best], float(mean[best])
        ((path, probability),) = tree.answers(mean[None], limit)
        return (path[-1], probability) if path else (UNSURE, float(mean[best]))

    return decide


def join(records: Mapping[str, Record], answers: Answers, decide: Decide) -> list[Joined]:
    """Return the joined answers of each image, and then of each event that has a name.

    Args:
        records: what an annotation file says, by address.
        answers: the answers to the boxes that were classified.
        decide: see ``decider``.
    """
    images: dict[str, list[Member]] = {}
    events: dict[str, list[Member]] = {}
    for address, record in records.items():
        images.setdefault(file_of(address), []).append((address, record))
        if record.group:
            events.setdefault(record.group, []).append((address, record))
    every = [
        _join_group("video" if is_video(name) else "image", name, own, answers, decide) for name, own in images.items()
    ]
    every += [_join_group("event", name, own, answers, decide) for name, own in events.items()]
    return [answer for answer in every if answer is not None]


def _join_group(level: Level, name: str, members: Sequence[Member], answers: Answers, decide: Decide) -> Joined | None:
    """Return the answer to some boxes; None if none of them could be read."""
    boxes = [(address, record) for address, record in members if record.box is not None]
    box_answers = [(*answers[address], _weight(record)) for address, record in boxes if address in answers]
    others = [record for _, record in boxes if record.detected]
    words = [*(label for label, _, _ in box_answers), *(record.detected for record in others)]
    summary = {"level": level, "name": name, "boxes": len(boxes), "counts": tuple(Counter(words).most_common())}
    if box_answers:
        return Joined(**summary, **_best(box_answers, decide))  # type: ignore[arg-type]
    if others:
        surest = max(others, key=_weight)
        return Joined(**summary, label=surest.detected, probability=surest.confidence)  # type: ignore[arg-type]
    image_answers = [answers[address] for address, _ in members if address in answers]
    if image_answers:
        summary["counts"] = tuple(Counter(label for label, _ in image_answers).most_common())
        return Joined(**summary, **_best([(*answer, 1.0) for answer in image_answers], decide))  # type: ignore[arg-type]
    return None if boxes else Joined(**summary, label=EMPTY, probability=None)  # type: ignore[arg-type]


def _best(answers: Sequence[tuple[str, Array, float]], decide: Decide) -> dict[str, Any]:
    known_answers = [(values, weight) for label, values, weight in answers if label != UNKNOWN]
    unknown = sum(weight for label, _, weight in answers if label == UNKNOWN)
    relevant = known_answers or [(values, weight) for _, values, weight in answers]
    mean = np.average([values for values, _ in relevant], axis=0, weights=[weight for _, weight in relevant])
    label, probability = decide(mean)
    return {
        "label": UNKNOWN if unknown > sum(weight for _, weight in known_answers) else label,
        "probability": probability,
    }


def _weight(record: Record) -> float:
    return max(record.confidence or 1.0, 1e-6)
