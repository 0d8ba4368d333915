"""The head of method discriminant: label means are Gaussian posteriors."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from labelwise.core.arrays import linear_scores, root_features
from labelwise.core.calibration import Penalty
from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.beliefs import MeanPrior
from labelwise.methods.discriminant.kernel import Kernel
from labelwise.methods.discriminant.leave_one_out import square_norms
from labelwise.methods.discriminant.whitening import Whitening
from labelwise.methods.shared.label_source import LabelSource
from labelwise.support.errors import UsageError
from labelwise.support.rows import segment_mean, unit_rows

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class Descriptions:
    """A linear regression from label descriptions to means, and the spread of means around it."""

    source: LabelSource  # what makes vectors of descriptions
    mean: Array = shaped("a")  # of the vectors of trained labels
    weights: Array = shaped("a", "d")  # from centred vectors of unit length to whitened means
    prior: MeanPrior

    def vectors(self, labels: Labels) -> Array:
        """Return the vectors of labels ``[k, a]``, centred and of unit length."""
        vectors = np.asarray(self.source.of(labels) if labels.vectors is None else labels.vectors)
        if vectors.shape[1] != len(self.mean):
            raise UsageError(
                f"Labels of this model are described by vectors of {len(self.mean)} numbers; given {vectors.shape[1]}."
            )
        return unit_rows(vectors.astype(np.float64) - self.mean)

    def expected_means(self, labels: Labels) -> Array:
        """Predict the whitened means of labels ``[k, d]``."""
        return np.asarray(self.vectors(labels) @ self.weights)


@dataclass(frozen=True, eq=False, kw_only=True)
class DiscriminantHead:
    """Linear discriminant head: scores are log-likelihood ratios of a label's mean to the mean of all labels.

    Embeddings are square roots of features at unit length, or plain features at unit length if some training feature is
    negative. The score is linear in the embedding, so a label embedding is ``[d + 1]``: weights, then a bias. With a kernel,
    the weights of its m centres follow; they are 0 for labels without images.
    """

    kind: ClassVar[str] = "discriminant"
    reads: ClassVar[tuple[str, ...]] = ()
    fitted_together: ClassVar[bool] = False
    allows_new_labels: ClassVar[bool] = False
    penalty: ClassVar[Penalty] = "offset"

    labels: Labels  # the fitted labels
    rows: Array = shaped("k", "d+1")  # their embeddings
    rooted: bool  # whether embeddings are root features
    whitening: Whitening
    prior: MeanPrior
    descriptions: Descriptions | None = None  # None: labels were not described
    kernel: Kernel | None = None  # an additional kernel model; None: it did not improve scores

    @property
    def exclusive(self) -> bool:
        """Scores of one image do not compete."""
        return False

    @property
    def width(self) -> int:
        """The size d of the features it takes."""
        return len(self.whitening.centre)

    @property
    def reads_descriptions(self) -> bool:
        """Whether the fitted labels had descriptions."""
        return self.descriptions is not None

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with their vectors, so that sentences are encoded only once."""
        if self.descriptions is None:
            return labels
        return replace(labels, vectors=self.descriptions.source.of(labels))

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]`` of unit length."""
        return root_features(features) if self.rooted else unit_rows(features)

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings ``[k, d + 1]``; descriptions predict those of labels that were not fitted."""
        trained_rows = {name: row for row, name in enumerate(self.labels.names)}
        unknown = [name for name in labels.names if name not in trained_rows]
        known = self.rows if self.kernel is None else np.concatenate([self.rows, self.kernel.weights], 1)
        if not unknown or self.descriptions is None:
            return known[[self.labels.index(name) for name in labels.names]]
        expected_means = self.descriptions.expected_means(labels.select(unknown))
        rows = self._label_rows(expected_means, np.zeros(len(unknown)), self.descriptions.prior, expected_means)
        trained_rows |= {name: len(self.rows) + row for row, name in enumerate(unknown)}
        return np.concatenate([known, self._widened(rows)])[[trained_rows[name] for name in labels.names]]

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]``: one matrix product, or two."""
        scores = self._likelihoods(embeddings, label_embeddings)
        if self.kernel is not None:
            opinion = self.kernel(embeddings) @ label_embeddings[:, self.width + 1 :].T.astype(np.float64)
            scores += opinion.astype(np.float32)
        return scores

    def slopes(self, embeddings: Array, label_embeddings: Array, weights: Array) -> Array:
        """Return the gradient ``[n, d]`` of the sum of an image's scores times weights ``[n, k]``."""
        slopes: Array = weights @ label_embeddings[:, : self.width]
        if self.kernel is not None:
            says = weights @ label_embeddings[:, self.width + 1 :]
            slopes += self.kernel(embeddings) * says / self.kernel.width @ self.kernel.centres
        return slopes

    def outlier_score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the squared distance ``[n]`` of images to the nearest mean of a label, in standard deviations."""
        return self._distances(embeddings, self._likelihoods(embeddings, label_embeddings))

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Return label embeddings ``[g, e]``: posterior means of examples, see ``beliefs``."""
        counts = np.bincount(groups).astype(np.float64)
        means = segment_mean(self._whitened_exactly(embeddings), groups, len(counts))
        rows = self._label_rows(means, counts, self.prior)
        return self._with_opinion(rows, segment_mean(embeddings.astype(np.float64), groups, len(counts)))

    def label_from_both(self, embeddings: Array, description: Labels) -> Array:
        """Return the label embedding ``[e]`` from both the examples ``[n, d]`` and the description of a label."""
        if self.descriptions is None:
            raise UsageError(
                "The labels of this classifier were not described, so it learns a label from examples alone."
            )
        means, counts = self._whitened_exactly(embeddings).mean(0)[None], np.array([float(len(embeddings))])
        expected_mean = self.descriptions.expected_means(description)
        rows = self._label_rows(means, counts, self.descriptions.prior, expected_mean)
        return np.asarray(self._with_opinion(rows, embeddings.mean(0, dtype=np.float64)[None])[0])

    def learn_more(self, label: Array, relearnt: Array, new_examples: Array) -> Array:
        """Return the embedding ``[e]`` of a fitted label: the Gaussian part relearnt, the kernel's updated by more examples ``[n, d]``."""
        if self.kernel is None:
            return relearnt
        mean = new_examples.mean(0, dtype=np.float64)
        weights = self.kernel.learn_more(label[self.width + 1 :].astype(np.float64), mean, len(new_examples))
        return np.concatenate([relearnt[: self.width + 1], weights])

    def example_distances(self, embeddings: Array) -> Array:
        """Return the squared distance ``[n]`` of each example ``[n, d]`` to the mean of the others, in standard deviations."""
        n, whitened = len(embeddings), self._whitened_exactly(embeddings)
        other_means = (whitened.sum(0) - whitened) / (n - 1)
        rows = self._label_rows(other_means, np.full(n, n - 1.0), self.prior)
        scores = np.einsum("nd,nd->n", embeddings, rows[:, :-1]) + rows[:, -1]
        return self._distances(embeddings, scores[:, None])

    @property
    def whitens(self) -> bool:
        """Whether some label had two images that differ."""
        return self.whitening.noise > 0

    def whitened(self, embeddings: Array) -> Array:
        """Return whitened embeddings ``[n, d]``: the within-label covariance is isotropic."""
        return self.whitening(embeddings)

    def _likelihoods(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the scores of the Gaussian model alone ``[n, k]``."""
        return linear_scores(embeddings, label_embeddings[:, : self.width + 1])

    def _widened(self, rows: Array) -> Array:
        """Extend rows ``[g, d + 1]`` to label embeddings with kernel weights of zero."""
        return rows if self.kernel is None else np.pad(rows, ((0, 0), (0, len(self.kernel.centres))))

    def _with_opinion(self, rows: Array, means: Array) -> Array:
        """Extend rows ``[g, d + 1]`` to label embeddings with kernel weights from the means of examples ``[g, d]``."""
        return rows if self.kernel is None else np.concatenate([rows, self.kernel.learn(means)], 1)

    def _whitened_exactly(self, embeddings: Array) -> Array:
        return self.whitening(embeddings.astype(np.float64))

    def _distances(self, embeddings: Array, scores: Array) -> Array:
        distances: Array = square_norms(self.whitening(embeddings)) - 2 / self.whitening.sharpness * scores.max(1)
        return distances

    def _label_rows(self, means: Array, counts: Array, prior: MeanPrior, expected_means: Array | None = None) -> Array:
        """Return label embeddings ``[g, d + 1]`` of whitened means ``[g, d]`` of a number of examples."""
        expected_means = np.zeros_like(means) if expected_means is None else expected_means
        posterior, excess = prior.posterior_mean(means - expected_means, counts)
        return self.whitening.label_rows(expected_means + posterior, excess)
