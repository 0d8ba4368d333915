"""scikit-learn estimators: a classifier of images or of feature rows, and a transformer that turns images into features.

The classifier is the closed form of ``lw.fit`` (method discriminant). It needs the extra ``sklearn``, which nothing else imports.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from scipy.sparse import issparse
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from labelwise.calls import Classifier
from labelwise.core.scores import Scores
from labelwise.encoders.choose import encoder_name
from labelwise.encoders.encode import Features, encode
from labelwise.encoders.encoder import Precomputed
from labelwise.encoders.registry import open_encoder
from labelwise.fitting.fit import fit
from labelwise.images.as_images import as_images
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Images, join, skipped_lines
from labelwise.methods.discriminant.method import Discriminant
from labelwise.support.errors import DataError, listing
from labelwise.train.method import Run
from labelwise.train.networks.encoder import Encoder

Array = NDArray[Any]
ClassWeight = Mapping[Any, float] | str | None


class LabelwiseEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """Turns images into features ``[n, d]``: paths, PIL images, arrays or the content of files.

    Features are cached, so an image is encoded once, whichever pipeline asks.

    Args:
        encoder: the name of an encoder, or the path of an .onnx file with a card next to it; "auto" chooses as ``lw.fit`` does.

    >>> LabelwiseEncoder().fit_transform(photos).shape
    (12, 1280)
    """

    def __init__(self, *, encoder: str = "auto") -> None:
        self.encoder = encoder

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Choose the encoder, ``encoder_``; nothing is trained."""
        self.encoder_ = _chosen(self.encoder, as_images(X))
        return self

    def transform(self, X: Any) -> Array:
        """Return the features of images ``[n, d]``, float32; one that cannot be read is an error."""
        check_is_fitted(self)
        return _all_read(encode(open_encoder(self.encoder_), as_images(X))).values

    def get_feature_names_out(self, input_features: object = None) -> Array:  # noqa: ARG002
        """Return a name for each feature."""
        check_is_fitted(self)
        width = open_encoder(self.encoder_).width
        return np.array([f"{type(self).__name__.lower()}{i}" for i in range(width)], object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.no_validation = True
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags


class LabelwiseClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """A calibrated classifier of images, or of rows of features ``[n, d]``; fitted in closed form, without a search.

    Attributes: ``classes_``; ``classifier_``, an ``lw.Classifier`` whose labels are ``classes_`` as text; ``examples_``, all that it
    was fitted to, for ``partial_fit``; ``n_features_in_`` where these are features.

    Args:
        encoder: what makes features of images; "auto" chooses as ``lw.fit`` does. Not used for rows of features.
        class_weight: weights of labels, "balanced", or None: as frequent as their images.

    >>> model = LabelwiseClassifier().fit(photos, names)
    >>> set(model.predict(photos)) <= set(model.classes_)
    True
    """

    def __init__(self, *, encoder: str = "auto", class_weight: ClassWeight = None) -> None:
        self.encoder = encoder
        self.class_weight = class_weight

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to images or features and the label of each; an image of weight 2 counts as two copies of it."""
        images = self._images(X, reset=True)
        return self._fit(_Examples(images, *_checked(len(images), y, sample_weight)))

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit to all examples so far and these; labels may be new ones.

        Paths are kept, and their features cached, so nothing is encoded again; other images are kept unchanged.

        Args:
            X: images or features.
            y: the label of each.
            classes: may name labels to come, as other estimators want it; a label counts from its first example on.
            sample_weight: how much each counts.
        """
        first = not hasattr(self, "examples_")
        images = self._images(X, reset=first)
        more = _Examples(images, *_checked(len(images), y, sample_weight))
        if classes is not None and (foreign := set(more.labels.tolist()) - set(np.asarray(classes).tolist())):
            raise ValueError(f"Labels that classes do not name: {listing(map(str, foreign))}.")
        return self._fit(more if first else self.examples_.join(more))

    def _fit(self, examples: "_Examples") -> Self:
        labels, weights = examples.labels, examples.weights * compute_sample_weight(self.class_weight, examples.labels)
        rows = np.flatnonzero(weights > 0)
        self.classes_, targets = np.unique(labels[rows], return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"A classifier needs images of at least two classes; given one class: {self.classes_}.")
        used = tuple(weights[rows].tolist()) if (weights != 1).any() else ()
        split = Split(images=examples.images.select(rows), targets=targets, weights=used)
        names = Labels(names=tuple(map(str, self.classes_.tolist())))
        data = Dataset(name="images", labels=names, splits={"train": split}, own_images=split.shape is None)
        method = Discriminant(encoder=Encoder(backbone=_chosen(self.encoder, split.images), frozen=True))
        self.classifier_ = Classifier.of(fit(data, method, Run(device="cpu")))
        self.examples_ = examples
        return self

    def predict(self, X: Any) -> Array:
        """Return the most probable label of each image ``[n]``."""
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.best])

    def predict_proba(self, X: Any) -> Array:
        """Return how probable each label is ``[n, k]``, in the order of ``classes_``."""
        scores = self._scores(X)
        return np.asarray(scores.probabilities)

    def decision_function(self, X: Any) -> Array:
        """Return the log of the probability of each label ``[n, k]``; of two labels the log-odds of the second ``[n]``."""
        scores = self._scores(X)
        logs = log_softmax(scores.log_odds / scores.classifier.calibration.temperature, axis=1)
        return np.asarray(logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    def _images(self, X: Any, *, reset: bool) -> Images:
        """Return what was given as images; rows of numbers are features, and checked as scikit-learn does."""
        if not _holds_images(X):
            features = validate_data(self, X, reset=reset, dtype=[np.float32, np.float64])
            return as_images(np.asarray(features, np.float32), features.shape[1:])
        if not reset and isinstance(self.classifier_.encoder, Precomputed):
            raise ValueError(f"This classifier was fitted to {self.n_features_in_} features; given images.")
        return as_images(X)

    def _scores(self, X: Any) -> Scores:
        """Return the scores of images, computed in double precision from their features."""
        check_is_fitted(self)
        classifier = self.classifier_
        values = _all_read(classifier.features(self._images(X, reset=False))).values
        return Scores(classifier, classifier.head.embed(values.astype(np.float64)))


def _chosen(encoder: str, images: Images) -> str:
    """Return the name of an encoder; "auto" is the choice of ``lw.fit`` for these images."""
    return encoder_name(len(images)) if encoder == "auto" else encoder


def _all_read(features: Features) -> Features:
    if features.skipped:
        raise DataError(f"Unreadable images: {listing(skipped_lines(features.skipped), 3)}")
    return features


@dataclass(frozen=True, eq=False)
class _Examples:
    """Images with their labels and weights."""

    images: Images
    labels: Array  # [n]
    weights: Array  # [n], none below 0

    def join(self, more: Self) -> Self:
        """Return these and more."""
        pairs = ((self.labels, more.labels), (self.weights, more.weights))
        return type(self)(join([self.images, more.images]), *map(np.concatenate, pairs))


def _checked(count: int, y: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Array, Array]:
    """Return the label and the weight of each of ``count`` images, checked as scikit-learn does."""
    labels = column_or_1d(y, warn=True)
    check_classification_targets(labels)
    weights = np.ones(len(labels))
    if sample_weight is not None:
        own = np.asarray(sample_weight, np.float64)
        own = np.full(len(labels), own) if own.ndim == 0 else own
        weights = check_array(own, ensure_2d=False, input_name="sample_weight")
    if len(labels) != count or weights.shape != (count,):
        raise ValueError(
            f"There are {count} images, {len(labels)} labels and sample_weight {list(weights.shape)}; give one for each image."
        )
    if (weights < 0).any() or not weights.any():
        raise ValueError("No sample_weight may be below zero, and not all of them may be zero.")
    return np.asarray(labels), weights


def _holds_images(X: Any) -> bool:
    """Return whether these are images, not rows of numbers: paths, PIL images, files' content, or arrays of pixels."""
    if isinstance(X, Images | Image.Image | str | bytes | Path):
        return True
    if issparse(X):
        return False
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OU":
        return X.ndim > 2
    first = next(iter(X), None) if isinstance(X, Iterable) else None
    return isinstance(first, str | bytes | Path | Image.Image) or getattr(first, "ndim", 0) > 1
