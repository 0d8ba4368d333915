"""Every contract check fails on a model that breaks just what it checks."""

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from labelwise.core.checks import CHECKS, Subject, check_all
from labelwise.core.classifier import Classifier, bind
from labelwise.core.model import LabelModel, Spec
from labelwise.images.describe.labels import Labels
from tests.changed import changed

LABELS = Labels(names=("a", "b", "c", "d"))
SHAPE = (3, 4, 4)


class Plain(LabelModel):
    """A linear model on pixels that keeps the contract."""

    def __init__(self) -> None:
        super().__init__(Spec(shape=SHAPE, labels=LABELS))
        self.image = nn.Linear(48, 6)
        self.label = nn.Embedding(4, 6)

    def encode_images(self, images: Tensor) -> Tensor:
        return self.image(images.flatten(1))  # type: ignore[no-any-return]

    def encode_labels(self, labels: Labels) -> Tensor:
        rows = torch.tensor([self.spec.labels.index(name) for name in labels.names])
        return self.label(rows)  # type: ignore[no-any-return]

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return image_embeddings @ label_embeddings.T


class WrongShape(Plain):
    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return super().score(image_embeddings, label_embeddings).T


class IgnoresNames(Plain):
    def encode_labels(self, labels: Labels) -> Tensor:
        return self.label.weight[: len(labels)]


class SoftmaxInside(Plain):
    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return super().score(image_embeddings, label_embeddings).log_softmax(1)


class BatchMean(Plain):
    def encode_images(self, images: Tensor) -> Tensor:
        return super().encode_images(images - images.mean(0))


class Detached(Plain):
    def encode_images(self, images: Tensor) -> Tensor:
        return super().encode_images(images.round() + images * 0)


class HiddenState(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = [torch.randn(6)]

    def encode_images(self, images: Tensor) -> Tensor:
        return super().encode_images(images) * self.hidden[0]


class CountsLabels(Plain):
    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return super().score(image_embeddings, label_embeddings) * len(label_embeddings)


def subject(kind: Callable[[], LabelModel], seed: int | None = 0) -> Subject:
    def train() -> Classifier:
        torch.manual_seed(seed if seed is not None else int.from_bytes(os.urandom(4), "big"))
        return bind(kind(), LABELS)

    def build() -> LabelModel:
        torch.manual_seed(99)
        return kind()

    images = torch.rand(10, *SHAPE, generator=torch.Generator().manual_seed(1))
    return Subject(train=train, build=build, roundtrip=replace, images=images)


BROKEN = {
    "shapes": subject(WrongShape),
    "permutation": subject(IgnoresNames),
    "independence": subject(SoftmaxInside),
    "batch size": subject(BatchMean),
    "gradient": subject(Detached),
    "rebuilt": subject(HiddenState),
    "added label": subject(CountsLabels),
    "repeatable": subject(Plain, seed=None),
    "saved": replace(subject(Plain), roundtrip=lambda c: changed(c, label_embeddings=c.label_embeddings + 0.1)),
    "order": replace(subject(Plain), train=lambda: changed(subject(Plain).train(), scale=-torch.ones(4))),
}


def test_every_check_has_a_broken_model() -> None:
    assert set(BROKEN) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_check_fails_on_its_broken_model(check: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[check](BROKEN[check], BROKEN[check].train())


def test_sound_model_passes() -> None:
    check_all(subject(Plain))
