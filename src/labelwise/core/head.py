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
MOVES = 64  # numbers of an image changed together, so that the rows stay in the processor's cache


class Head(Protocol):
    """Score (features, label) pairs.

    Features are what an encoder makes of images, float32 ``[n, d]``. In double precision a head computes in double precision.
    """

    kind: ClassVar[str]  # its name in saved folders, see ``saved_parts``
    reads: ClassVar[tuple[str, ...]]  # the pieces of ``Labels``, beyond names, that ``embed_labels`` needs
    fitted_together: ClassVar[bool]  # embeddings depend on all labels at once, so no label can be added alone
    allows_new_labels: ClassVar[
        bool
    ]  # labels can be added nevertheless, fitted against the trained ones, which stay the same
    penalty: ClassVar[Penalty]  # how seen labels are penalised against labels known from a description only

    @property
    def exclusive(self) -> bool:
        """Whether scores of one image compete (softmax): only their differences carry meaning."""

    @property
    def labels(self) -> Labels:
        """The labels of its training data."""

    @property
    def width(self) -> int:
        """The feature size d."""

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, e']`` of features ``[n, d]``; row i depends on features i alone."""

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, e]``."""

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]`` from image embeddings ``[n, e']`` and label embeddings ``[k, e]``."""


class HeadDefaults:
    """Defaults: read label names only, score each label independently, use features unchanged."""

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
    """Make a label from a few example images."""

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Return label embeddings ``[g, e]`` from those of example images ``[n, e']``; ``groups [n]`` gives the label of each."""


@runtime_checkable
class LearnsMore(Protocol):
    """Update a fitted label with more examples, keeping what their mean does not capture."""

    def learn_more(self, label: Array, relearnt: Array, new_examples: Array) -> Array:
        """Return the embedding ``[e]`` of a fitted label after more examples ``[n, e']``.

        ``label`` is its embedding before, ``relearnt`` the one from the mean of all examples.
        """


@runtime_checkable
class JoinsKnowledge(Protocol):
    """Make a label from example images and a description together."""

    @property
    def reads_descriptions(self) -> bool:
        """Whether the training labels had descriptions."""

    def label_from_both(self, embeddings: Array, description: Labels) -> Array:
        """Return the embedding ``[e]`` of one label from those of example images ``[n, e']`` and its description."""


@runtime_checkable
class ReadsDescriptions(Protocol):
    """Make a label from a description of the same form as those of the training labels."""

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with the inputs of this head computed once, such as sentence vectors."""


@runtime_checkable
class Generates(Protocol):
    """Generate features of images that do not exist."""

    def generate(self, labels: Labels, count: int, seed: int) -> Array:
        """Return features ``[k, count, f]`` made from the labels' descriptions."""

    def comparable(self, features: Array) -> Array:
        """Return features ``[n, f]`` of images ``[n, d]`` in the space of those that ``generate`` makes."""


@runtime_checkable
class Compares(Protocol):
    """Compare images by a learned similarity; other heads use the cosine of embeddings."""

    def similarity(self, queries: Array, gallery: Array) -> Array:
        """Return the similarity of each pair of images ``[n, m]`` from embeddings ``[n, e']`` and ``[m, e']``; larger is more alike."""

    def matched(self, queries: Array, others: Array) -> Array:
        """Return the similarity ``[n]`` of row i of both embeddings ``[n, e']``, for each i."""


@runtime_checkable
class Whitens(Protocol):
    """Model the variation of embeddings within a label."""

    @property
    def whitens(self) -> bool:
        """Whether there was enough training data to estimate it."""

    def whitened(self, embeddings: Array) -> Array:
        """Return embeddings ``[n, e']`` that vary equally in every direction within a label."""


@runtime_checkable
class SensesFamiliarity(Protocol):
    """Measure how unfamiliar an image is."""

    def outlier_score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return outlier scores ``[n]`` from embeddings ``[n, e']`` and label embeddings ``[k, e]``; larger is less familiar."""


@runtime_checkable
class MeasuresExamples(Protocol):
    """Measure how far the images of a new label spread: the outlier score is a squared distance."""

    def example_distances(self, embeddings: Array) -> Array:
        """Return the outlier score ``[n]`` of each of two or more examples ``[n, e']``, under a label made from the others."""


@runtime_checkable
class NamesClusters(Protocol):
    """A head made without labelled images."""

    def second_opinions(self, embeddings: Array) -> Array:
        """Return the answers ``[m, n]`` (label positions) of m other models made without labels."""


@runtime_checkable
class KnowsSlopes(Protocol):
    """A formula for the slope of the scores, where finite differences are slow."""

    def slopes(self, embeddings: Array, label_embeddings: Array, weights: Array) -> Array:
        """Return the gradient ``[n, d]``, by embedding, of each image's scores summed with weights ``[n, k]``."""


CAPABILITIES: Mapping[str, type] = {
    LEARN: LearnsFromExamples,
    GENERATE: Generates,
    COMPARE: Compares,
    WHITEN: Whitens,
}


def can(head: Head) -> list[str]:
    """Return what a head can do besides scoring."""
    return [name for name, protocol in CAPABILITIES.items() if isinstance(head, protocol)]


def cannot(head: Head, action: str) -> UnsupportedError:
    """Return the error for an unsupported operation, with a list of supported ones."""
    able = ", ".join(can(head)) or "score images and labels only"
    return UnsupportedError(f'A classifier of kind "{head.kind}" cannot {action}. It can: {able}.')


def feature_slopes(head: Head, features: Array, label_embeddings: Array, weights: Array) -> Array:
    """Return the gradient ``[n, d]``, by features, of each image's scores summed with weights ``[n, k]``.

    Central differences in double precision, so no head needs a gradient. With ``slopes``, they reach up to the embedding only.
    """
    slopes = np.empty(features.shape)
    for row, x, weight in zip(slopes, features.astype(np.float64), weights, strict=True):
        columns = np.flatnonzero(weight)  # a score depends on no other label
        labels, own = label_embeddings[columns], weight[columns]
        inner = head.slopes(head.embed(x[None]), labels, own[None])[0] if isinstance(head, KnowsSlopes) else None
        step = STEP * max(float(np.sqrt(np.mean(x**2))), 1e-12)
        for start in range(0, len(x), MOVES):
            moves = step * np.eye(min(MOVES, len(x) - start), len(x), start)
            ends = [head.embed(x + move) for move in (moves, -moves)]
            sums = [head.score(end, labels) @ own if inner is None else end @ inner for end in ends]
            row[start : start + MOVES] = (sums[0] - sums[1]) / (2 * step)
    return slopes
