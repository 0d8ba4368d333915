"""Heads that read a vector of each label, and then answer for labels without images."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import linear_scores
from labelwise.core.head_files import shaped
from labelwise.images.describe.labels import Labels
from labelwise.methods.shared.head import Centre, TrainedHead
from labelwise.methods.shared.label_source import LabelSource
from labelwise.support.errors import UsageError

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class ZeroShotHead(TrainedHead):
    """Features and label vectors are centred and brought to unit length."""

    centre_features: Centre
    centre_vectors: Centre
    source: LabelSource

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with the vectors that are read, so that sentences are encoded once."""
        vectors: Any = self.source.of(labels)
        return replace(labels, vectors=vectors)

    def comparable(self, features: Array) -> Array:
        """Return features ``[n, d]`` centred and of unit length."""
        return self.centre_features(self.projected(features))

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]``, centred and of unit length."""
        return self.comparable(features)

    def vectors(self, labels: Labels) -> Array:
        """Return what describes these labels ``[k, a]``, centred and of unit length."""
        return label_vectors(self.source, self.centre_vectors, labels)

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]``: one matrix product."""
        return linear_scores(embeddings, label_embeddings)


@dataclass(frozen=True, eq=False, kw_only=True)
class BilinearHead(ZeroShotHead):
    """A score z.V.s of an image embedding z and a label vector s; the embedding of a label is V.s."""

    kind: ClassVar[str] = "bilinear"

    weights: Array = shaped("d", "a")  # V

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, d + 1]``."""
        return np.pad(self.vectors(labels) @ self.weights.T, ((0, 0), (0, 1)))


def label_vectors(source: LabelSource, centre: Centre, labels: Labels) -> Array:
    """Return what describes these labels ``[k, a]``, centred and of unit length."""
    vectors, size = source.of(labels), len(centre.mean)
    if vectors.shape[1] != size:
        raise UsageError(f"Labels of this model are described by vectors of {size} numbers; given {vectors.shape[1]}.")
    return centre(vectors)
