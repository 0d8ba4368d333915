"""What Python shows of an object is a line or two: no dumped tensors, no printed networks."""

import pytest
import torch

import labelwise as lw
from labelwise.tasks.gallery import make_gallery
from tests.conftest import blobs
from tests.contract.subjects import trained

CLASSIFIER, DATA = trained("softmax"), blobs()
TEST = DATA.splits["test"]
PART = lw.evaluate.choose_part(CLASSIFIER, DATA, "test")
MANY = lw.Labels(names=tuple(f"a label of many, number {i}" for i in range(500)), vectors=torch.ones(500, 3))
OBJECTS = {
    "classifier": CLASSIFIER,
    "data": DATA,
    "split": TEST,
    "train data": lw.data.TrainData(train=TEST, val=TEST, labels=MANY),
    "labels": MANY,
    "scores": CLASSIFIER.scores(TEST.images),
    "prediction": lw.classify(CLASSIFIER, TEST.images[:1])[0],
    "calibration": CLASSIFIER.calibration,
    "familiarity": CLASSIFIER.familiarity,
    "origin": CLASSIFIER.origin,
    "verifier": CLASSIFIER.verifier,
    "spec": CLASSIFIER.model.spec,
    "explanation": lw.explain(CLASSIFIER, TEST.images[:1]),
    "gallery": make_gallery(CLASSIFIER, TEST.images, [f"{i}.png" for i in range(len(TEST))]),
    "part": PART,
    "tested": PART.tested(CLASSIFIER),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_is_shown_in_a_line_or_two(name: str) -> None:
    shown = repr(OBJECTS[name])
    assert len(shown) < 700 if name == "train data" else len(shown) < 400
    assert "\n" not in shown
    assert "tensor(" not in shown


def test_what_is_shown() -> None:
    assert repr(CLASSIFIER).startswith("<Classifier: softmax, <4 labels: blob 0, blob 1, blob 2, blob 3; with")
    assert "images 80 train, 80 val, 80 test, 3 x 8 x 8" in repr(DATA)
    assert repr(lw.Labels(names=("a",))) == "<1 labels: a>"
    assert "and 494 more; with vectors" in repr(MANY)
