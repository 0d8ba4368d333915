"""What Python shows of an object is a line or two: no dumped tensors, no printed networks."""

import torch

import labelwise as lw
from labelwise.evaluation.test_set import select_test_set
from labelwise.tasks.gallery import make_gallery
from labelwise.train.train_data import TensorSplit, TrainData
from tests.conftest import blobs
from tests.contract.subjects import trained
from tests.pixels_of import px

MANY = lw.Labels(names=tuple(f"a label of many, number {i}" for i in range(500)), vectors=torch.ones(500, 3))


def test_an_object_is_shown_in_a_line_or_two() -> None:
    classifier, data = trained("softmax"), blobs()
    test, part = data.split("test"), select_test_set(classifier, data, "test")
    objects = {
        "classifier": classifier,
        "data": data,
        "split": test,
        "train data": TrainData(train=TensorSplit.of(test), val=TensorSplit.of(test), labels=MANY),
        "labels": MANY,
        "scores": classifier.scores(px(test)),
        "prediction": lw.classify(classifier, px(test)[:1])[0],
        "calibration": classifier.calibration,
        "familiarity": classifier.familiarity,
        "origin": classifier.origin,
        "verifier": classifier.verifier,
        "explanation": lw.explain(classifier, test.images[:1]),
        "gallery": make_gallery(classifier, test.images, [f"{i}.png" for i in range(len(test))]),
        "test set": part,
        "evaluation": part.evaluate(classifier),
    }
    for name, each in objects.items():
        shown = repr(each)
        assert len(shown) < (700 if name == "train data" else 400), name
        assert "\n" not in shown, name
        assert "tensor(" not in shown, name


def test_what_is_shown() -> None:
    assert repr(trained("softmax")).startswith("<Classifier: softmax, <4 labels: blob 0, blob 1, blob 2, blob 3; with")
    assert "images 80 train, 80 val, 80 test, 3 x 8 x 8" in repr(blobs())
    assert repr(lw.Labels(names=("a",))) == "<1 labels: a>"
    assert "and 494 more; with vectors" in repr(MANY)
