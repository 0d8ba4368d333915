"""How far images of a taught label may be is stored with its change: read back, forgotten, and beside labels without it."""

import numpy as np

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.server.changes import State, follow, teach_record
from labelwise.server.store import Record
from tests.methods.discriminant.test_method import CPU, narrow_data, wide_label


def width_of(classifier: Classifier) -> list[float]:
    width = classifier.familiarity.width
    assert width is not None
    return [round(value) for value in width.tolist()]


def test_changes_store_how_far_images_may_be() -> None:
    base = lw.fit(narrow_data(), run=CPU)
    first = lw.teach(base, "wide", examples=wide_label(5, 0))
    second = lw.teach(first, "one", examples=wide_label(1, 2))
    records = [teach_record(base, first, "examples"), teach_record(first, second, "examples")]
    assert width_of(first)[-1] > 1
    assert width_of(second) == [*width_of(first), 1]
    one, both = State().after(records[:1]), State().after(records)
    assert width_of(follow(base, base, State(), both)) == width_of(second)
    assert width_of(follow(base, first, one, both)) == width_of(second)
    less = both.after([Record("forget", {"label": "label 0"})])
    assert width_of(follow(base, second, both, less)) == width_of(second)[1:]
    undone = both.after([Record("undo", {})])
    assert width_of(follow(base, second, both, undone)) == width_of(first)
    assert width_of(second.select(["one", "wide", "label 0"])) == [1, width_of(first)[-1], 1]
    unknown = follow(base, base, State(), both).scores(wide_label(9, 3)).unknown
    assert np.array_equal(np.asarray(unknown), np.asarray(second.scores(wide_label(9, 3)).unknown))
