"""A head turns features into scores of labels; larger is better, and a score never depends on the other labels.

A head is a frozen dataclass of NumPy arrays and plain settings, so that it is saved and read without executing anything: see
``saved_parts``. What some heads can do besides is a ``Protocol`` each, asked for with ``isinstance``; ``can`` lists them. Shape letters:
n images, k labels, d features, e embedding, a vector.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from labelwise.core.calibration import Penalty
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UnsupportedError
from labelwise.support.text import COMPARE, GENERATE, LEARN, WHITEN

Array = npt.NDArray[Any]

STEP = 1e-4  # of a finite difference, in units of the root mean square of features
MOVES = 64  # numbers of an image that are moved together: so many rows stay in the processor's cache


class Head(Protocol):
    """Scores (features, label) pairs.

    Features are what an encoder makes of images, float32 ``[n, d]``. In double precision a head computes in double precision.
    """

    kind: ClassVar[str]  # its name in saved folders, see ``head_files.HEADS``
    reads: ClassVar[tuple[str, ...]]  # which pieces of ``Labels`` beyond the names ``embed_labels`` needs
    fitted_together: ClassVar[bool]  # embeddings depend on all labels at once, so none is added on its own
    allows_new_labels: ClassVar[bool]  # one is all the same, fitted against the trained ones, which do not change
    penalty: ClassVar[Penalty]  # how seen labels are held back against those known from a description alone

    @property
    def exclusive(self) -> bool:
        """Whether scores of one image compete (softmax): only their differences carry meaning."""

    @property
    def labels(self) -> Labels:
        """The labels that it was trained on."""

    @property
    def width(self) -> int:
        """The size d of the features it takes."""

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, e']`` of features ``[n, d]``; row i depends on features i alone."""

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, e]``."""

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]`` from image embeddings ``[n, e']`` and label embeddings ``[k, e]``."""


class HeadDefaults:
    """What most heads have in common: they read label names alone, score each label by itself, and take features unchanged."""

    reads: ClassVar[tuple[str, ...]] = ()
    fitted_together: ClassVar[bool] = False
    allows_new_labels: ClassVar[bool] = False
    penalty: ClassVar[Penalty] = "offset"

    @property
    def exclusive(self) -> bool:
        """Scores of one image do not compete."""
        return False

    def embed(self, features: Array) -> Array:
        """Return the features ``[n, d]``."""
        return features


@runtime_checkable
class LearnsFromExamples(Protocol):
    """It makes a label of a few example images."""

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Return label embeddings ``[g, e]`` from those of example images ``[n, e']``; ``groups [n]`` gives the label of each."""


@runtime_checkable
class LearnsMore(Protocol):
    """It keeps of a fitted label what the mean of its examples does not say."""

    def learn_more(self, label: Array, relearnt: Array, more: Array) -> Array:
        """Return the embedding ``[e]`` of a fitted label after more examples ``[n, e']``.

        ``label`` is its embedding before, ``relearnt`` the one from the mean of all examples.
        """


@runtime_checkable
class JoinsKnowledge(Protocol):
    """It makes a label of example images and a description together."""

    @property
    def reads_descriptions(self) -> bool:
        """Whether it does: the labels it was trained on were described."""

    def label_from_both(self, embeddings: Array, description: Labels) -> Array:
        """Return the embedding ``[e]`` of one label from those of example images ``[n, e']`` and its description."""


@runtime_checkable
class ReadsDescriptions(Protocol):
    """It makes a label of a description alone, in the form that the labels of its training had."""

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with the inputs of this head computed once, such as sentence vectors."""


@runtime_checkable
class Generates(Protocol):
    """It makes features of images that do not exist."""

    def generate(self, labels: Labels, count: int, seed: int) -> Array:
        """Return features ``[k, count, f]`` made from the labels' descriptions."""

    def comparable(self, features: Array) -> Array:
        """Return features ``[n, f]`` of images ``[n, d]`` in the space of those that ``generate`` makes."""


@runtime_checkable
class Compares(Protocol):
    """It learnt how alike two images are; all others compare by the cosine of embeddings."""

    def similarity(self, queries: Array, gallery: Array) -> Array:
        """Return how alike images are ``[n, m]``, larger is more alike, from embeddings ``[n, e']`` and ``[m, e']``."""

    def matched(self, queries: Array, others: Array) -> Array:
        """Return ``similarity`` of each row of embeddings ``[n, e']`` and the same row of others alone ``[n]``."""


@runtime_checkable
class Whitens(Protocol):
    """It knows how embeddings vary inside a label."""

    @property
    def whitens(self) -> bool:
        """Whether it does: training may have shown too little of it."""

    def whitened(self, embeddings: Array) -> Array:
        """Return embeddings ``[n, e']`` in which images of one label differ alike in every direction."""


@runtime_checkable
class SensesFamiliarity(Protocol):
    """It measures by itself how unfamiliar an image is."""

    def outlier_score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return ``[n]``, larger is less familiar, from image embeddings ``[n, e']`` and label embeddings ``[k, e]``."""


@runtime_checkable
class MeasuresExamples(Protocol):
    """Its outlier score is a squared distance, so it can measure how far images of a new label spread."""

    def example_distances(self, embeddings: Array) -> Array:
        """Return the outlier score of each example of a label ``[n, e']`` under what the others say of it ``[n]``; two at least."""


@runtime_checkable
class NamesClusters(Protocol):
    """It was made without a labelled image."""

    def second_opinions(self, embeddings: Array) -> Array:
        """Return the answers ``[m, n]`` (label positions) of m models that were made without labels, too."""


@runtime_checkable
class KnowsSlopes(Protocol):
    """A head with a formula for the slope of its scores, where differences would take long."""

    def slopes(self, embeddings: Array, label_embeddings: Array, weights: Array) -> Array:
        """Return the gradient ``[n, d]``, with respect to its embedding, of the sum of an image's scores times weights ``[n, k]``."""


CAPABILITIES: Mapping[str, type] = {
    LEARN: LearnsFromExamples,
    GENERATE: Generates,
    COMPARE: Compares,
    WHITEN: Whitens,
}


def can(head: Head) -> list[str]:
    """Return what a head can do besides scoring."""
    return [name for name, protocol in CAPABILITIES.items() if isinstance(head, protocol)]


def cannot(head: Head, what: str) -> UnsupportedError:
    """Return the error for an unsupported operation, with a list of supported ones."""
    able = ", ".join(can(head)) or "score images and labels only"
    return UnsupportedError(f'A classifier of kind "{head.kind}" cannot {what}. It can: {able}.')


def feature_slopes(head: Head, features: Array, label_embeddings: Array, weights: Array) -> Array:
    """Return the gradient ``[n, d]``, with respect to its features, of the sum of an image's scores ``[k]`` times weights ``[n, k]``.

    By central differences in double precision, so that a head needs no gradient of its own. One that has it is followed to the embedding.
    """
    slopes = np.empty(features.shape)
    for row, x, weight in zip(slopes, features.astype(np.float64), weights, strict=True):
        asked = np.flatnonzero(weight)  # a score depends on no other label
        labels, own = label_embeddings[asked], weight[asked]
        inner = head.slopes(head.embed(x[None]), labels, own[None])[0] if isinstance(head, KnowsSlopes) else None
        step = STEP * max(float(np.sqrt(np.mean(x**2))), 1e-12)
        for start in range(0, len(x), MOVES):
            moves = step * np.eye(min(MOVES, len(x) - start), len(x), start)
            ends = [head.embed(x + move) for move in (moves, -moves)]
            sums = [head.score(end, labels) @ own if inner is None else end @ inner for end in ends]
            row[start : start + MOVES] = (sums[0] - sums[1]) / (2 * step)
    return slopes
