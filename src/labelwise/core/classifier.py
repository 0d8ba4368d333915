"""The immutable classifier: an encoder, a head, labels, and calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from labelwise.core.arrays import Array
from labelwise.core.calibration import Calibration, Familiarity, check_thresholds, usual_odds
from labelwise.core.head import Head, SensesFamiliarity
from labelwise.core.known_examples import KnownExamples
from labelwise.core.promises import promising
from labelwise.core.scores import NONE as NONE
from labelwise.core.scores import UNKNOWN as UNKNOWN
from labelwise.core.scores import Scores
from labelwise.encoders.encode import Features, encode
from labelwise.encoders.encoder import Encoder
from labelwise.images.as_images import ImagesLike, as_batch, as_images
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Images, skipped_lines
from labelwise.support.errors import DataError, UnsupportedError, UsageError, listing
from labelwise.support.rows import append_rows
from labelwise.support.settings import to_plain


@dataclass(frozen=True, kw_only=True)
class Verifier:
    """When two images show the same label, fitted on pairs of held-out images. See ``tasks.verify``."""

    by: Literal["similarity", "cosine", "sum", "whitened"]  # the score of a pair
    threshold: float  # scores at least this large mean "same"
    rule: Literal["eer"] | float  # both errors equally frequent, or the share of different pairs that are accepted
    eer: float  # the equal error rate on those pairs
    scale: float  # with offset: sigmoid(score * scale + offset) is the probability of "same"
    offset: float  # if same and different pairs are equally frequent


class TrainingState(Protocol):
    """The state of a trained model, for continued training and attacks."""

    def read(self) -> Mapping[str, Array]:
        """Return the arrays by name."""


@dataclass(frozen=True, eq=False)
class KnownState:
    """A training state in memory."""

    arrays: Mapping[str, Array]

    def read(self) -> Mapping[str, Array]:
        """Return the arrays by name."""
        return self.arrays


@dataclass(frozen=True, kw_only=True)
class MethodRecord:
    """The method that made a classifier: its name and settings. ``methods.registry.method_of`` restores it."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)  # plain JSON values

    @classmethod
    def of(cls, method: Any) -> Self:
        """Return the record of a method."""
        return cls(name=method.name, settings=to_plain(method))


@dataclass(frozen=True, eq=False, kw_only=True)
class Origin:
    """Where a classifier came from."""

    method: MethodRecord | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)  # how it was made, as plain JSON values
    train_digests: Array | None = None  # hashes of its training and calibration images [m, 16], to detect leaks
    training: TrainingState | None = None  # None: nothing beyond the head and the encoder

    def __repr__(self) -> str:
        train_count = 0 if self.train_digests is None else len(self.train_digests)
        name = "no method" if self.method is None else self.method.name
        return f"<Origin: {name}, {listing(self.summary)}; made from {train_count} images>"

    def with_images(self, images: Images | None) -> Self:
        """Return a copy whose hashes include those of these images, if any."""
        if images is None or not len(images):
            return self
        new_digests = np.frombuffer(bytearray(b"".join(images.digests())), np.uint8).reshape(len(images), 16)
        old_digests = self.train_digests
        return replace(
            self, train_digests=new_digests if old_digests is None else append_rows(old_digests, new_digests)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Classifier:
    """An encoder and a head bound to labels. Every task is a question about its scores of images."""

    encoder: Encoder  # turns images into features
    head: Head  # scores (features, label) pairs
    labels: Labels  # their names and descriptions
    label_embeddings: Array  # [k, e]; a new label is a new row
    calibration: Calibration  # turns raw scores into probabilities
    familiarity: Familiarity = field(default_factory=Familiarity)  # when an image shows none of the labels
    verifier: Verifier | None = None  # when two images show the same label; None: not fitted
    thresholds: Mapping[str, float] = field(
        default_factory=dict
    )  # probability from which a label is answered; see ``thresholds``
    origin: Origin = field(default_factory=Origin)  # how it was made
    examples: KnownExamples | None = None  # per label, for learning from more images; None: no label has any

    def __repr__(self) -> str:
        return f"<Classifier: {self.kind}, {self.labels!r:.200}, images {' x '.join(map(str, self.shape))}>"

    @property
    def kind(self) -> str:
        """The method that made the classifier, or the kind of its head."""
        return self.head.kind if self.origin.method is None else self.origin.method.name

    @property
    def unseen(self) -> frozenset[str]:
        """The labels that have a description but no training image."""
        return frozenset(compress(self.labels.names, self.calibration.unseen.tolist()))

    @property
    def shape(self) -> tuple[int, ...]:
        """The image shape of the encoder."""
        return self.encoder.shape

    @cached_property
    def promising(self) -> Calibration:
        """The calibration for promises, adjusted for labels taught after it was fitted."""
        return promising(self)

    def error_limit(self, max_error: float) -> float:
        """Return the probability above which answers are wrong for at most this share of images."""
        if self.thresholds:
            raise UsageError(
                "A share of wrong answers cannot be promised with thresholds per label. Remove the thresholds."
            )
        return self.promising.limit(max_error)

    def batch(self, images: ImagesLike) -> Array:
        """Convert images for the encoder: bytes ``[n, c, h, w]``, or features ``[n, a]``; see ``as_batch``."""
        return as_batch(images, self.shape, self.encoder.fit)

    def images(self, images: ImagesLike) -> Images:
        """Return images in any form as ``Images`` for the encoder; see ``as_images``."""
        return as_images(images, self.shape)

    def features(self, images: ImagesLike) -> Features:
        """Return the features of images: paths, PIL images, arrays or tensors; one or many. Each is encoded once."""
        return encode(self.encoder, self.images(images))

    def encode(self, images: ImagesLike) -> Array:
        """Return image embeddings ``[n, d]``, float32; raise an error if an image cannot be read."""
        features = self.features(images)
        if features.skipped:
            raise DataError(f"Unreadable images: {listing(skipped_lines(features.skipped), 3)}")
        return self.head.embed(features.values)

    def scores(self, images: ImagesLike) -> Scores:
        """Return the scores of images: paths, PIL images, arrays or tensors; one or many. Each is encoded once."""
        image_set = self.images(images)
        return Scores(self, self.encode(image_set), image_set)

    def scores_of(
        self,
        embeddings: ArrayLike,
        raw: ArrayLike | None = None,
        distances: ArrayLike | None = None,
        nearest: ArrayLike | None = None,
    ) -> Scores:
        """Return the scores of encoded images from their embeddings ``[n, d]``.

        ``raw [n, k]``, ``distances [n]`` and ``nearest [n]`` replace what would be computed, such as scores of training images left out
        one by one.
        """
        optional = {"raw": raw, "distances": distances, "nearest": nearest}
        cache = {name: np.asarray(value) for name, value in optional.items() if value is not None}
        return Scores(self, np.asarray(embeddings, np.float32), cache=cache)

    def score(self, embeddings: Array) -> Array:
        """Return the head's score of each pair ``[n, k]``, from image embeddings ``[n, d]``."""
        return self.head.score(embeddings, self.label_embeddings)

    def yes_odds(self, log_odds: Array) -> Array:
        """Return the log-odds of a yes ``[n, k]``: relative to those of other images, where background images are known."""
        return log_odds if self._usual_odds is None else log_odds - self._usual_odds

    @cached_property
    def _usual_odds(self) -> Array | None:
        """The log of the mean odds over background images that do not show a label ``[k]``; None without background images."""
        if self.calibration.background is None:
            return None
        return usual_odds(self.calibration.log_odds(self.score(self.calibration.background)))

    def distances(self, embeddings: Array) -> Array | None:
        """Return how far embeddings ``[n, d]`` are from all that the head knows ``[n]``; None where it cannot measure that."""
        if not isinstance(self.head, SensesFamiliarity):
            return None
        return self.head.outlier_score(embeddings, self.label_embeddings)

    def origin_with(self, images: ImagesLike | None) -> Origin:
        """Return the origin with the hashes of these images added, if any."""
        return self.origin if images is None else self.origin.with_images(self.images(images))

    def select(self, names: Sequence[str]) -> Self:
        """Return the classifier of these labels only, in this order; their scores stay the same.

        Remembered images that look most like one of the other labels are forgotten where they say what is unknown.
        """
        rows = [self.labels.index(name) for name in names]
        labels, embeddings = self.labels.select(names), self.label_embeddings[rows]
        familiarity = self.familiarity.select(rows)
        if familiarity.rule is not None and familiarity.rule.nearest and familiarity.memory is not None:
            familiarity = familiarity.keep(np.isin(self.score(familiarity.memory).argmax(1), rows))
        return replace(
            self,
            labels=labels,
            label_embeddings=embeddings,
            calibration=self.calibration.select(rows),
            familiarity=familiarity,
            thresholds={name: value for name, value in self.thresholds.items() if name in names},
            examples=None if self.examples is None else self.examples.select(names),
        )

    def with_thresholds(self, thresholds: Mapping[str, float]) -> Self:
        """Return the classifier that answers these labels from a probability on; see ``core.thresholds``. {} is none.

        >>> classifier.with_thresholds({classifier.labels.names[0]: 0.8}).thresholds
        {'blob 0': 0.8}
        """
        return replace(
            self,
            thresholds=check_thresholds(
                {self.labels.meant(name): value for name, value in thresholds.items()}, self.labels
            ),
        )

    def remove(self, name: str) -> Self:
        """Return the classifier without one label; the other scores stay the same."""
        self.labels.index(name)
        if len(self.labels) == 1:
            raise UsageError(f'"{name}" is the only label. A classifier needs at least one.')
        return self.select([other for other in self.labels.names if other != name])

    def add(self, labels: Labels, embedding: Array, *, unseen: bool = False, width: float = 1.0) -> Self:
        """Return the classifier with one more label: ``labels`` as ``Labels.add`` returns them, and its embedding ``[e]``.

        ``width`` is by how much more than usual its images spread, see ``Familiarity``.
        """
        if self.head.fitted_together and not self.head.allows_new_labels:
            raise UnsupportedError(f"{self.kind} is fitted to all labels together. Train it again to add one.")
        if labels.names[:-1] != self.labels.names:
            raise UsageError("A new label must be last, and the other labels unchanged.")
        rows = append_rows(self.label_embeddings, embedding[None])
        calibration, familiarity = self.calibration.add(unseen=unseen), self.familiarity.add(len(self.labels), width)
        return replace(self, labels=labels, label_embeddings=rows, calibration=calibration, familiarity=familiarity)


def bind(head: Head, encoder: Encoder, labels: Labels) -> Classifier:
    """Return the classifier of these labels, not yet calibrated."""
    for piece in head.reads:
        if getattr(labels, piece) is None:
            raise UsageError(f'A head of kind "{head.kind}" needs the "{piece}" of labels, but these labels have none.')
    embeddings = head.embed_labels(labels)
    calibration = Calibration.none(len(labels), exclusive=head.exclusive, penalty=head.penalty)
    return Classifier(encoder=encoder, head=head, labels=labels, label_embeddings=embeddings, calibration=calibration)
