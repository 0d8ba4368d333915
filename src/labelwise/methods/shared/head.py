"""Base classes of heads: projection of features to embeddings, and linear, zero-shot and bilinear scores."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import LENGTH, linear_scores, root_features
from labelwise.core.head import HeadDefaults
from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from labelwise.methods.shared.label_source import LabelSource
from labelwise.methods.shared.statistics import EmbeddingStatistics, solve_label_embeddings, whiten
from labelwise.support.errors import UsageError
from labelwise.support.rows import unit_rows

Array = npt.NDArray[Any]
Map = Literal["none", "root", "unit"]  # features unchanged; their roots at unit length; at unit length


@dataclass(frozen=True, eq=False, kw_only=True)
class Projection:
    """Standardise the features of a frozen encoder, then apply an optional linear layer."""

    mean: Array = shaped("f")
    std: Array = shaped("f")
    length: float = 1.0  # factor on standardised features
    weight: Array | None = shaped("d", "f", optional=True)
    bias: Array | None = shaped("d", optional=True)

    def __call__(self, features: Array) -> Array:
        """Return embeddings ``[n, d]`` of features ``[n, f]``."""
        rows = (features - self.mean) / self.std * self.length
        return rows if self.weight is None else linear(rows, self.weight, self.bias)


@dataclass(frozen=True, eq=False, kw_only=True)
class Centre:
    """Rows of unit length around a mean; ``power`` below 1 evens out large entries.

    ``turn`` reweights directions. With ``directions``, rows are scaled to unit length, then projected onto them.
    """

    mean: Array = shaped("_c")
    power: float = 1.0
    turn: Array | None = shaped("_c", "_c", optional=True)
    directions: Array | None = shaped("_c", "_q", optional=True)  # orthonormal columns

    def __call__(self, rows: Array) -> Array:
        """Return centred rows of unit length ``[n, c]``."""
        if self.directions is not None:
            return unit_rows((unit_rows(rows) - self.mean) @ self.directions @ self.directions.T)
        rows_centred = unit_rows(self.even(rows) - self.mean)
        return rows_centred if self.turn is None else unit_rows(rows_centred @ self.turn)

    @classmethod
    def of(cls, rows: Array, power: float = 1.0) -> Self:
        """Fit a centre to rows ``[n, c]``."""
        centre = cls(mean=np.zeros(rows.shape[1], np.float32), power=power)
        return replace(centre, mean=centre.even(rows.astype(np.float64)).mean(0).astype(np.float32))

    def even(self, rows: Array) -> Array:
        """Apply the signed power and scale rows to unit length; a power of 1 changes nothing."""
        if self.power == 1.0:
            return rows  # the root has no slope at zero, where rectified features often are
        return unit_rows(np.sign(rows) * ((abs(rows) + 1e-6) ** self.power - 1e-6**self.power))


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainedHead(HeadDefaults, ABC):
    """A head with statistics of training embeddings, used to learn labels from examples and to whiten."""

    kind: ClassVar[str]

    labels: Labels  # the trained labels
    width: int  # the size of features
    statistics: EmbeddingStatistics
    unit_mean: Array = shaped("d")  # mean training embedding at unit length
    # within-label covariance of training embeddings at unit length; zeros in multi-label data
    unit_within: Array = shaped("d", "d")
    projection: Projection | None = None  # None if the encoder was trained: its features are used directly

    @abstractmethod
    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, e]``."""

    @abstractmethod
    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]``."""

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Return label embeddings ``[g, e]`` solved in closed form from embeddings of examples and training statistics."""
        return solve_label_embeddings(embeddings, groups, self.statistics, self.embed_labels(self.labels))

    @property
    def whitens(self) -> bool:
        """Whether embeddings can be whitened: single-label data where some label has two images that differ."""
        return bool(self.unit_within.any())

    def whitened(self, embeddings: Array) -> Array:
        """Return whitened embeddings ``[n, d]``: the within-label covariance is about isotropic."""
        return whiten(embeddings, self.unit_mean, self.unit_within)

    def project(self, features: Array) -> Array:
        """Return features ``[n, d]``, projected if the head has a projection."""
        return features if self.projection is None else self.projection(features)

    def trained_rows(self, labels: Labels) -> list[int]:
        """Return the positions of these labels among the trained ones."""
        return [self.labels.index(name) for name in labels.names]


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearHead(TrainedHead):
    """A linear layer: the embedding of a label is its row, weights then a bias."""

    kind: ClassVar[str] = "linear"

    rows: Array = shaped("k", "d+1")
    competing: bool = False  # whether scores of one image compete
    feature_map: Map = "none"  # normalisation of embeddings, see ``even``

    @property
    def exclusive(self) -> bool:
        """Whether scores of one image compete (softmax)."""
        return self.competing

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]``."""
        return even(self.project(features), self.feature_map)

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, d + 1]``."""
        return self.rows[self.trained_rows(labels)]

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]``: one matrix product."""
        return linear_scores(embeddings, label_embeddings)


def even(embeddings: Array, kind: Map) -> Array:
    """Normalise embeddings ``[n, d]`` to one length, or their square roots, or return them unchanged."""
    if kind == "none":
        return embeddings
    return LENGTH * (root_features(embeddings) if kind == "root" else unit_rows(embeddings))


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return ``x @ weight.T + bias``."""
    product = x @ weight.T
    return product if bias is None else product + bias


def leaky(x: Array, slope: float) -> Array:
    """Return the leaky ReLU of ``x``."""
    return np.where(x > 0, x, slope * x)


@dataclass(frozen=True, eq=False, kw_only=True)
class ZeroShotHead(TrainedHead):
    """A head that scores features against label vectors, both centred and of unit length."""

    centre_features: Centre
    centre_vectors: Centre
    source: LabelSource

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with their vectors, so that sentences are encoded only once."""
        vectors: Any = self.source.of(labels)
        return replace(labels, vectors=vectors)

    def comparable(self, features: Array) -> Array:
        """Return features ``[n, d]`` centred and of unit length."""
        return self.centre_features(self.project(features))

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]``, centred and of unit length."""
        return self.comparable(features)

    def vectors(self, labels: Labels) -> Array:
        """Return the label vectors ``[k, a]``, centred and of unit length."""
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
    """Return the label vectors ``[k, a]``, centred and of unit length."""
    vectors, size = source.of(labels), len(centre.mean)
    if vectors.shape[1] != size:
        raise UsageError(f"Labels of this model are described by vectors of {size} numbers; given {vectors.shape[1]}.")
    return centre(vectors)
