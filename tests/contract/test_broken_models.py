"""Every contract check fails on a head or an encoder that breaks just what it checks."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from labelwise.core.arrays import softmax
from labelwise.core.checks import CHECKS, Subject, check_all
from labelwise.core.classifier import Classifier, bind
from labelwise.core.head import Array, Head
from labelwise.encoders.encoder import Encoder
from labelwise.images.describe.labels import Labels
from tests.changed import changed
from tests.plain import Colours, Weighed

LABELS = Labels(names=("a", "b", "c", "d"))


def weights(seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(4, 3)).astype(np.float32)


class WrongShape(Weighed):
    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        return super().score(embeddings, label_embeddings).T


class IgnoresNames(Weighed):
    def embed_labels(self, labels: Labels) -> Array:
        return self.weights[: len(labels)]


class SoftmaxInside(Weighed):
    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        return softmax(super().score(embeddings, label_embeddings))


class CountsLabels(Weighed):
    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        return super().score(embeddings, label_embeddings) * len(label_embeddings)


@dataclass(frozen=True)
class BatchMean(Colours):
    def __call__(self, images: Array) -> Array:
        features = super().__call__(images)
        return np.asarray(features - features.mean(0))


def subject(kind: Callable[..., Head] = Weighed, seed: int | None = 0, encoder: Encoder | None = None) -> Subject:
    def train() -> Classifier:
        own = weights(seed if seed is not None else int.from_bytes(os.urandom(4), "big"))
        return bind(kind(labels=LABELS, weights=own), encoder or Colours((3, 4, 4)), LABELS)

    images = np.random.default_rng(1).integers(0, 256, (10, 3, 4, 4), np.uint8)
    return Subject(train=train, roundtrip=replace, images=images)


BROKEN = {
    "shapes": subject(WrongShape),
    "permutation": subject(IgnoresNames),
    "independence": subject(SoftmaxInside),
    "pure": subject(encoder=BatchMean((3, 4, 4))),
    "added label": subject(CountsLabels),
    "repeatable": subject(seed=None),
    "saved": replace(subject(), roundtrip=lambda c: changed(c, label_embeddings=c.label_embeddings + 0.1)),
    "order": replace(subject(), train=lambda: changed(subject().train(), scale=-np.ones(4, np.float32))),
}


def test_every_check_has_a_broken_model() -> None:
    assert set(BROKEN) == set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_check_fails_on_its_broken_model(check: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[check](BROKEN[check], BROKEN[check].train())


def test_sound_model_passes() -> None:
    check_all(subject())
