"""A method of one's own: seventy lines keep the whole contract, and every task works with it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import labelwise as lw
from labelwise.core.checks import CHECKS, Subject
from labelwise.core.classifier import UNKNOWN, Classifier, MethodRecord
from labelwise.core.head import can
from labelwise.core.saved_parts import HEADS
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.images.dataset import Dataset
from labelwise.methods import METHODS, Encoder
from labelwise.train.model import as_float
from tests.conftest import blobs, colour_weights
from tests.contract.subjects import roundtrip
from tests.examples import nearest_mean
from tests.examples.nearest_mean import NearestMean
from tests.pixels_of import px

RUN = lw.Run(device="cpu")


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method is loaded again by its name, so it is entered among the others."""
    monkeypatch.setitem(METHODS, NearestMean.name, NearestMean)
    monkeypatch.setitem(HEADS, "nearest_mean", "tests.examples.nearest_mean:MeanHead")


def method(data: Dataset | None = None) -> NearestMean:
    if data is not None and len(data.shape or ()) == 1:
        return NearestMean()
    return NearestMean(encoder=Encoder(backbone="convnet", width=8, weights=colour_weights(), frozen=True))


def features(data: Dataset) -> Dataset:
    """The same images as columns of numbers: the mean of each colour."""
    flat = {name: replace(s, images=as_float(px(s)).mean((2, 3))) for name, s in data.splits.items()}
    return replace(data, splits=flat)


def subject(data: Dataset) -> Subject:
    return Subject(
        train=lambda: lw.fit(data, method(data), RUN), roundtrip=roundtrip, images=px(data.split("test"))[:12].numpy()
    )


def test_it_is_short() -> None:
    assert len(Path(nearest_mean.__file__).read_text().splitlines()) <= 70


@pytest.mark.parametrize("kind", ["pictures", "features"])
@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_the_contract(check: str, kind: str) -> None:
    this = subject(blobs() if kind == "pictures" else features(blobs()))
    CHECKS[check](this, this.train())


@pytest.mark.parametrize("kind", ["pictures", "features"])
def test_it_fits_and_classifies(kind: str) -> None:
    data = blobs() if kind == "pictures" else features(blobs())
    classifier = lw.fit(data, method(data), RUN)
    result = evaluate_closed(Evaluation.of(classifier, data.split("test"), data.labels))
    assert result.accuracy > (0.9 if kind == "features" else 0.7)
    assert result.kept > 0.8
    (first,) = lw.classify(classifier, data.split("test").images[:1])
    assert first.label == "blob 0"


def taught() -> Classifier:
    """Three labels from training, the fourth from five pictures."""
    data = blobs()
    train = data.split("train")
    known = train.select((torch.as_tensor(train.targets) < 3).nonzero()[:, 0])
    three = Dataset(name="three", labels=data.labels.select(data.labels.names[:3]), splits={"train": known})
    return lw.teach(
        lw.fit(three, method(), RUN), "blob 3", examples=train.images[torch.as_tensor(train.targets) == 3][:5]
    )


def test_it_is_taught_a_label_and_saved_with_it() -> None:
    data = blobs()
    classifier = roundtrip(taught())
    result = evaluate_closed(Evaluation.of(classifier, data.split("test"), data.labels))
    assert result.accuracy > 0.8
    assert classifier.origin.method == MethodRecord.of(method())
    assert lw.forget(classifier, "blob 3").labels.names == ("blob 0", "blob 1", "blob 2")


def test_it_tells_what_is_strange() -> None:
    stripes = torch.full((1, 3, 8, 8), 255, dtype=torch.uint8)
    (found,) = lw.classify(taught(), stripes)
    assert found.label == UNKNOWN


def test_what_it_cannot_do_is_said() -> None:
    classifier = taught()
    assert can(classifier.head) == ["learn a label from example images"]
