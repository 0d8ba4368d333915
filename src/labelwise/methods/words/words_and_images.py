"""Combine names and images: a weighted sum of both scores, with weights fitted to training images.

The score of a label is a s + c t, with s what images say (the closed form, each training image left out) and t what its name says (no
image was asked). Both weights are those under which training images are likeliest, so that there is nothing to tune and no image is
held out.

If images of a label vary by 1 around its mean, and means by v around what names say, the mean given n images and the name has the error
1 / (n + 1 / v). Its score has a = (n + 1) v / ((n + 1) v + 1) and c = 1 / ((n + 1) v + 1), with t scaled as for v = 0. Names alone give
1 / (1 + v), for which the share of the label entropy is taken that they explain, and the scale of t. An image is left out only where
its label has others; the weights that these images are likeliest under are drawn towards those above, which count as one image. With one
image a label nothing but names is left: how far images of a label vary is then assumed, as cosines assume it.

c / a is as 1 / (n + 1): weights that fit images with m others of their label are too large for n by (m + 1) / (n + 1). The weight of
words also shrinks by 1 - 1 / (2 g), where they make training images likelier by g nats: the estimate of a mean z by z (1 - 1 / z^2), z^2 = 2 g.
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
from labelwise.methods.discriminant.leave_one_out import TrainingRows
from labelwise.methods.words.head import WordsHead

Array = npt.NDArray[Any]
LEAST = 1e-3  # weight, and spread of image scores


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
    def of(cls, image_fit: DiscriminantFit, words: WordsHead, features: Array, usual: float) -> Self:
        """Return the fit of a closed form and of words.

        Args:
            image_fit: the closed form.
            words: of the same labels.
            features: of training images ``[n, d]``.
            usual: the weight of words by how near they are to those that the encoder knows.
        """
        size = float(np.abs(features).sum(1).mean())
        head = WordsAndImagesHead(images=image_fit.head, words=words, shares=np.ones(2, np.float32), size=size)
        word_scores = head.word_scores(head.embed(features), words.rows)
        shares = choose_shares(image_fit.leave_one_out("copies"), word_scores, image_fit.sample, usual)
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


def choose_shares(estimate: LeaveOneOut, word_scores: Array, sample: TrainingRows, usual: float) -> Array:
    """Return the weights ``[2]`` of image scores and word scores.

    Args:
        estimate: leave-one-out scores of images; an image that is alone in its label has none.
        word_scores: of all training images ``[n, k]``.
        sample: the training images.
        usual: the weight of words by how near they are to those that the encoder knows.
    """
    targets, usable, count = sample.targets[estimate.rows], estimate.usable, sample.counts[sample.counts > 0].mean()
    word_scores, image_scores = word_scores[estimate.rows], estimate.scores[usable]
    (_, scale), loss = _likeliest(0 * word_scores, word_scores, targets, np.array([1.0, usual]))
    explained = float(np.clip(1 - loss / (len(targets) * np.log(max(2, word_scores.shape[1]))), 0, 1))
    if not usable.any():
        return expected_shares(count, scale, explained)
    other_count = sample.other_counts[estimate.rows[usable]].mean()
    start = expected_shares(other_count, scale, explained)
    start[0] /= np.clip(image_scores.std(), LEAST, 1)  # sharpness that is fitted to very few images is too small
    shares, loss = _likeliest(image_scores, word_scores[usable], targets[usable], start)
    gain = _likeliest(image_scores, 0 * word_scores[usable], targets[usable], start)[1] - loss
    gain += _gain_of_words(scale * word_scores[~usable], targets[~usable])
    shrinkage = max(0.0, 1 - 0.5 / gain) if gain > 0 else 0.0
    return np.asarray(shares * (1, shrinkage * (other_count + 1) / (count + 1)))


def expected_shares(count: float, scale: float, explained: float) -> Array:
    """Return the weights ``[2]`` that the model of means expects.

    Args:
        count: images a label.
        scale: the likeliest weight of word scores alone.
        explained: the share of the label entropy that these explain.
    """
    images = (count + 1) * (1 - explained)
    return np.asarray(np.array([max(images, LEAST), scale]) / (images + explained))


def _gain_of_words(scores: Array, targets: Array) -> float:
    """Return how many nats likelier word scores ``[n, k]`` make images than chance does."""
    return len(targets) * float(np.log(scores.shape[1])) - _loss(scores, targets)


def _loss(scores: Array, targets: Array) -> float:
    """Return the log loss of scores ``[n, k]`` in nats."""
    most = scores.max(1, keepdims=True, initial=-np.inf)
    likely = scores[np.arange(len(targets)), targets] - most[:, 0] - np.log(np.exp(scores - most).sum(1))
    return float(-likely.sum())


def _likeliest(image_scores: Array, word_scores: Array, targets: Array, start: Array) -> tuple[Array, float]:
    """Return the maximum-likelihood weights ``[2]``, drawn towards a start, and the log loss in nats."""
    image_scores, word_scores = image_scores.astype(np.float64), word_scores.astype(np.float64)
    prior = np.log(np.maximum(start, LEAST))

    def loss(logs: Array) -> float:
        a, c = np.exp(logs)
        return _loss(a * image_scores + c * word_scores, targets)

    from scipy.optimize import minimize  # takes longer to import than a fit without words takes

    optimum = minimize(lambda logs: loss(logs) + 0.5 * ((logs - prior) ** 2).sum(), prior, method="Nelder-Mead").x
    return np.exp(optimum), loss(optimum)
