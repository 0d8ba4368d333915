from dataclasses import replace

import pytest
import torch

from labelwise.choice import choose_method
from labelwise.core import Labels
from labelwise.data.dataset import Dataset
from labelwise.errors import UnsupportedError
from labelwise.methods import METHODS
from tests.conftest import blobs

EVERY = dict.fromkeys([*METHODS, "clarel", "izf", "eszsl", "zero_label", "prototype"])


def with_unseen(data: Dataset, **known: object) -> Dataset:
    return replace(data, labels=Labels(names=(*data.labels.names, "a fifth"), **known))  # type: ignore[arg-type]


def unlabelled(data: Dataset) -> Dataset:
    train = data.split("train")
    return replace(data, splits={"train": replace(train, targets=torch.full_like(train.targets, -1))})


def test_labelled_images() -> None:
    found = choose_method(blobs(), METHODS)
    assert found.method == "indicator"
    assert found.line() == "Method indicator: every training image has a label. Alternatives: softmax, multilabel."


@pytest.mark.parametrize(
    ("data", "method"),
    [
        (blobs(), "indicator"),
        (with_unseen(blobs(), texts=(("x",),) * 5), "clarel"),
        (with_unseen(blobs(), vectors=torch.eye(5)), "izf"),
        (unlabelled(blobs()), "zero_label"),
        (unlabelled(replace(blobs(), labels=Labels(names=("a", "b", "c", "d"), order=(0, 1, 2, 3)))), "zero_label"),
    ],
    ids=["labelled", "sentences", "attributes", "names", "order"],
)
def test_what_is_known_decides(data: Dataset, method: str) -> None:
    assert choose_method(data, EVERY).method == method


def test_a_missing_method_is_named() -> None:
    found = choose_method(with_unseen(blobs(), vectors=torch.eye(5)), METHODS)
    assert found.method == "indicator"
    assert "For the labels without images: izf, eszsl, not in this version." in found.line()
    with pytest.raises(UnsupportedError, match="takes the method zero_label, which this version does not have"):
        choose_method(unlabelled(blobs()), METHODS)
