"""A head that generates features by a rule one can follow: the mean colour of an image, or features as they are."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from labelwise.core.classifier import Classifier, bind
from labelwise.core.head import Array, HeadDefaults
from labelwise.images.describe.labels import Labels
from labelwise.support.rows import Draws
from tests.changed import known_by_description
from tests.plain import Colours

NOISE = 0.15
DARK, BRIGHT = 45 / 255, 150 / 255 * 9 / 64  # of the images of ``tests.conftest.blobs``


@dataclass(frozen=True, eq=False, kw_only=True)
class Generating(HeadDefaults):
    """Images are described by their features, and a label by the vector that these scatter around."""

    kind: ClassVar[str] = "generating"
    reads: ClassVar[tuple[str, ...]] = ("vectors",)

    labels: Labels
    width: int
    coloured: bool = False  # whether features are colours of blobs

    def embed(self, features: Array) -> Array:
        return (features - np.float32(DARK)) / np.float32(BRIGHT) if self.coloured else features

    def embed_labels(self, labels: Labels) -> Array:
        assert labels.vectors is not None
        return np.asarray(labels.vectors)

    def score(self, embeddings: Array, label_embeddings: Array) -> Any:
        return -((embeddings[:, None] - label_embeddings) ** 2).sum(-1)

    def comparable(self, features: Array) -> Array:
        return self.embed(features)

    def generate(self, labels: Labels, count: int, seed: int) -> Any:
        vectors = self.embed_labels(labels)
        return vectors[:, None] + np.float32(NOISE) * Draws(seed).normal(len(labels), count, vectors.shape[1])


def generating(labels: Labels, shape: tuple[int, ...], unseen: frozenset[str] = frozenset()) -> Classifier:
    """Return a classifier of these labels; those ``unseen`` count as ones without training images."""
    head = Generating(labels=labels, width=shape[0], coloured=len(shape) == 3)
    return known_by_description(bind(head, Colours(shape), labels), *unseen)
