"""How far pictures of a taught label may be goes with its lesson: told again, forgotten, and beside lessons of before."""

from dataclasses import replace

import torch
from safetensors.torch import save as bytes_of

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.server.lessons import joined, lesson_of, without
from tests.methods.test_discriminant import CPU, narrow_data, wide_label


def width_of(classifier: Classifier) -> list[float]:
    width = classifier.familiarity.width
    assert width is not None
    return [round(value) for value in width.tolist()]


def test_lessons_keep_how_far_pictures_may_be() -> None:
    base = lw.fit(narrow_data(), run=CPU)
    first = lw.teach(base, "wide", examples=wide_label(5, 0))
    second = lw.teach(first, "one", examples=wide_label(1, 2))
    lessons = [lesson_of(base, first, "examples"), lesson_of(first, second, "examples")]
    assert width_of(first)[-1] > 1
    assert width_of(second) == [*width_of(first), 1]
    assert width_of(joined(base, frozenset(), lessons)) == width_of(second)
    assert width_of(joined(first, frozenset(), lessons[1:])) == width_of(second)
    assert width_of(joined(base, frozenset({"label 0"}), lessons)) == width_of(second)[1:]
    assert width_of(without(second, 9, {})) == width_of(first)
    old = replace(lessons[1], content=bytes_of({k: v for k, v in lessons[1].rows.items() if k != "width"}))
    assert width_of(joined(base, frozenset(), [lessons[0], old])) == width_of(second)
    assert joined(base, frozenset(), [old]).familiarity.width is None
    assert width_of(second.select(["one", "wide", "label 0"])) == [1, width_of(first)[-1], 1]
    assert torch.equal(
        joined(base, frozenset(), lessons).scores(wide_label(9, 3)).unknown, second.scores(wide_label(9, 3)).unknown
    )
