"""Combine names and images: a weighted sum of both scores, with weights fitted to training images.

The score of a label is a s + c t, with s what images say (the closed form, each training image left out) and t what its name says (no
image was asked). Both weights are those under which training images are likeliest, so that there is nothing to tune and no image is
held out. They are drawn towards 1 and the usual weight of words, which counts as one image.

If images of a label vary by 1 around its mean, and means by v around what names say, the mean given n images and the name has the error
1 / (n + 1 / v). Its score has a = (n + 1) v / ((n + 1) v + 1) and c = 1 / ((n + 1) v + 1), with t scaled as for v = 0. So c / a is as
1 / (n + 1): weights that fit images with m others of their label are too large for n by (m + 1) / (n + 1). The weight of words also
shrinks by 1 - 1 / (2 g), where they make training images likelier by g nats: the estimate of a mean z by z (1 - 1 / z^2), z^2 = 2 g.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from labelwise.core.calibration import Penalty
from labelwise.core.platt import LeaveOneOut, LeftOut
from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.fit import DiscriminantFit
from labelwise.methods.discriminant.head import DiscriminantHead
from labelwise.methods.words.head import WordsHead

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class WordsAndImagesHead:
    """The closed form and the word scores of its labels."""

    kind: ClassVar[str] = "words_and_images"
    reads: ClassVar[tuple[str, ...]] = ()
    fitted_together: ClassVar[bool] = False
    allows_new_labels: ClassVar[bool] = False
    penalty: ClassVar[Penalty] = "offset"

    images: DiscriminantHead
    words: WordsHead
    shares: Array = shaped(2)  # a and c
    size: float  # mean sum of features, which embeddings have lost

    @property
    def exclusive(self) -> bool:
        """Scores of one image do not compete."""
        return False

    @property
    def labels(self) -> Labels:
        """The labels that it was fitted to."""
        return self.images.labels

    @property
    def width(self) -> int:
        """The size d of the features it takes."""
        return self.images.width

    @property
    def whitens(self) -> bool:
        """Whether training images gave the covariance inside labels."""
        return self.images.whitens

    def embed(self, features: Array) -> Array:
        """Return image embeddings ``[n, d]``, those of the closed form."""
        return self.images.embed(features)

    @property
    def reads_descriptions(self) -> bool:
        """Any label has a name."""
        return True

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with the sentences that describe them."""
        return self.words.describe(labels)

    def embed_labels(self, labels: Labels) -> Array:
        """Return label embeddings: first those of the closed form, 0 for a label without images, then those of words."""
        trained_rows = self.images.embed_labels(self.images.labels)
        places = {name: row for row, name in enumerate(self.images.labels.names)}
        image_rows = [
            trained_rows[places[name]] if name in places else np.zeros_like(trained_rows[0]) for name in labels.names
        ]
        return np.concatenate([np.stack(image_rows), self.words.embed_labels(labels)], 1)

    def label_from_both(self, embeddings: Array, description: Labels) -> Array:
        """Return the label embedding ``[e]`` of examples ``[n, d]`` and the description of one label."""
        (image_row,) = self.images.labels_from_examples(embeddings, np.zeros(len(embeddings), np.int64))
        return np.concatenate([image_row, self.words.embed_labels(description)[0]])

    def learn_more(self, label: Array, relearnt: Array, new_examples: Array) -> Array:
        """Return the embedding ``[e]`` of a fitted label after more examples ``[n, d]``: the closed form's part learns more."""
        (before, _), (images, words) = (self._split(row[None]) for row in (label, relearnt))
        return np.concatenate([self.images.learn_more(before[0], images[0], new_examples), words[0]])

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the score of every pair ``[n, k]``."""
        images, words = self._split(label_embeddings)
        a, c = self.shares
        return np.asarray(a * self.images.score(embeddings, images) + c * self.word_scores(embeddings, words))

    def word_scores(self, embeddings: Array, words: Array) -> Array:
        """Return the word score of every pair ``[n, k]``, from embeddings of images and of words."""
        features = spread_scores(embeddings, self.size, rooted=self.images.rooted)
        return self.words.score(self.words.embed(features), words)

    def outlier_score(self, embeddings: Array, label_embeddings: Array) -> Array:
        """Return the squared distance ``[n]`` of images to the nearest mean of a label, in standard deviations."""
        return self.images.outlier_score(embeddings, self._split(label_embeddings)[0])

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Return label embeddings of example images, each with the score of an average word."""
        images = self.images.labels_from_examples(embeddings, groups)
        return np.concatenate([images, np.zeros((len(images), self.width + 1), images.dtype)], 1)

    def example_distances(self, embeddings: Array) -> Array:
        """Return the outlier score of each example of a label ``[n, d]``, given the other examples ``[n]``."""
        return self.images.example_distances(embeddings)

    def whitened(self, embeddings: Array) -> Array:
        """Return whitened embeddings: the covariance inside labels is the identity."""
        return self.images.whitened(embeddings)

    def _split(self, label_embeddings: Array) -> tuple[Array, Array]:
        end = label_embeddings.shape[1] - self.width - 1
        return label_embeddings[:, :end], label_embeddings[:, end:]


def spread_scores(embeddings: Array, size: float, *, rooted: bool) -> Array:
    """Return features of the usual length ``[n, d]`` from embeddings of unit length."""
    features = np.sign(embeddings) * embeddings**2 if rooted else embeddings
    return np.asarray(features * (size / np.maximum(abs(features).sum(1, keepdims=True), 1e-12)), embeddings.dtype)


@dataclass(frozen=True, eq=False, kw_only=True)
class WordsAndImagesFit:
    """A fitted head, and the leave-one-out scores of its training images."""

    head: WordsAndImagesHead
    image_fit: DiscriminantFit
    word_scores: Array  # what words say of the training images [n, k]

    @classmethod
    def of(cls, image_fit: DiscriminantFit, words: WordsHead, features: Array, targets: Array, usual: float) -> Self:
        """Return the fit of a closed form and of words.

        Args:
            image_fit: the closed form.
            words: of the same labels.
            features: of training images ``[n, d]``.
            targets: the label of each ``[n]``.
            usual: the weight of words by how near they are to those that the encoder knows.
        """
        size = float(np.abs(features).sum(1).mean())
        head = WordsAndImagesHead(images=image_fit.head, words=words, shares=np.ones(2, np.float32), size=size)
        word_scores = head.word_scores(head.embed(features), words.rows)
        estimate = image_fit.leave_one_out("copies")
        rows = estimate.rows[estimate.usable]
        if len(rows) < 2:
            shares = shares_of_names(word_scores, targets, usual)
        else:
            shares = choose_shares(estimate.scores[estimate.usable], word_scores[rows], targets[rows], usual)
            sample = image_fit.sample
            other_count, all_of_label = sample.other_counts[rows].mean(), sample.counts[targets[rows]].mean()
            shares[1] *= (other_count + 1) / (all_of_label + 1)
        return cls(head=replace(head, shares=shares.astype(np.float32)), image_fit=image_fit, word_scores=word_scores)

    def leave_one_out(self, also: LeftOut = "groups") -> LeaveOneOut:
        """Return the leave-one-out scores of training images; word scores never use them."""
        estimate = self.image_fit.leave_one_out(also)
        (a, c), word_scores = self.head.shares, self.word_scores[estimate.rows]
        own = word_scores[np.arange(len(estimate.rows)), self.image_fit.sample.targets[estimate.rows]]
        return replace(
            estimate, scores=a * estimate.scores + c * word_scores, own_scores=a * estimate.own_scores + c * own
        )

    def pair_cosines(self, pairs: Array) -> Array | None:
        """Return the cosines ``[p]`` of pairs ``[p, 2]`` of whitened training images, both left out."""
        return self.image_fit.pair_cosines(pairs)


def choose_shares(image_scores: Array, word_scores: Array, targets: Array, usual: float) -> Array:
    """Return the weights ``[2]`` of image scores and word scores ``[n, k]``: the likeliest, that of words shrunk by its evidence."""
    shares, loss = _likeliest(image_scores, word_scores, targets, usual)
    gain = _likeliest(image_scores, 0 * word_scores, targets, usual)[1] - loss
    return shares * (1, max(0.0, 1 - 0.5 / gain) if gain > 0 else 0.0)


def shares_of_names(word_scores: Array, targets: Array, usual: float) -> Array:
    """Return the weights ``[2]`` where each label has one image, so that none can be left out.

    The share of the label entropy that names explain is taken for 1 / (1 + v).
    """
    (_, c), loss = _likeliest(0 * word_scores, word_scores, targets, usual)
    explained = float(np.clip(1 - loss / (len(targets) * np.log(max(2, word_scores.shape[1]))), 0, 1))
    return np.array([2 * (1 - explained), c]) / (2 - explained)


def _likeliest(image_scores: Array, word_scores: Array, targets: Array, usual: float) -> tuple[Array, float]:
    """Return the maximum-likelihood weights ``[2]``, drawn towards 1 and the usual one, and the log loss in nats."""
    start, rows = np.log([1.0, usual]), np.arange(len(targets))

    def loss(logs: Array) -> float:
        a, c = np.exp(logs)
        scores = a * image_scores.astype(np.float64) + c * word_scores.astype(np.float64)
        most = scores.max(1, keepdims=True, initial=-np.inf)
        likely = scores[rows, targets] - most[:, 0] - np.log(np.exp(scores - most).sum(1))
        return float(-likely.sum())

    from scipy.optimize import minimize  # takes longer to import than a fit without words takes

    optimum = minimize(lambda logs: loss(logs) + 0.5 * ((logs - start) ** 2).sum(), start, method="Nelder-Mead").x
    return np.exp(optimum), loss(optimum)
