"""Imagine: generate features of a described label, and find the real images nearest to them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from labelwise.core.arrays import Array, distances
from labelwise.core.classifier import Classifier
from labelwise.core.head import Generates, cannot
from labelwise.images.as_images import ImagesLike
from labelwise.support.errors import UsageError
from labelwise.support.settings import brief
from labelwise.support.text import GENERATE


@dataclass(frozen=True, eq=False, kw_only=True)
class Imagined:
    """Generated features of k labels, compared with a gallery of n real images."""

    names: tuple[str, ...]  # the labels
    features: Array  # features generated from each description [k, count, f]
    gallery: Array  # features of the real images [n, f]
    nearest: Array  # the gallery image nearest to each generated feature [k, count]
    distances: Array  # its distance [k, count]
    # rank of a generated feature among the real images of its label [k, count]: the share of them whose nearest
    # neighbour is at least as far as that of the feature. 0 is farther than every real image;
    # real images themselves have 0.5 on average. NaN with fewer than two real images
    typical: Array

    __repr__ = brief

    def closest(self, name: str, most: int = 16) -> list[tuple[int, float]]:
        """Return distinct gallery images for a label, and their distances to the nearest generated feature.

        The image that most generated features are nearest to comes first; of images with as many, the closest.
        """
        row = self.names.index(name)
        votes = np.bincount(self.nearest[row], minlength=len(self.gallery)).tolist()
        least = distances(self.features[row], self.gallery).min(0).tolist()
        order = sorted(range(len(votes)), key=lambda image: (-votes[image], least[image]))
        return [(image, least[image]) for image in order[:most]]


def imagine(
    classifier: Classifier,
    names: Sequence[str],
    gallery: ImagesLike,
    *,
    targets: ArrayLike | None = None,
    count: int = 50,
    seed: int = 0,
) -> Imagined:
    """Generate ``count`` features of each label, and find the real images of a gallery nearest to them.

    The model must be able to generate features, such as that of method izf. ``targets [n]`` are the label positions of the
    real images in the classifier, or -1.
    """
    if not names or count < 1:
        raise UsageError(f"Give at least one label and a count of at least 1; given {len(names)} labels and {count}.")
    features = generated(classifier, names, count, seed)
    images = classifier.images(gallery)
    places = np.full(len(images), -1) if targets is None else np.asarray(targets)
    if len(places) != len(images):
        raise UsageError(f"Give one target per image; given {len(images)} images and {len(places)} targets.")
    real = image_features(classifier, images)
    near = [distances(rows, real) for rows in features]
    labels = [classifier.labels.index(name) for name in names]
    return Imagined(
        names=tuple(names),
        features=features,
        gallery=real,
        nearest=np.stack([each.argmin(1) for each in near]),
        distances=np.stack([each.min(1) for each in near]),
        typical=np.stack([_typical(rows, real[places == i]) for rows, i in zip(features, labels, strict=True)]),
    )


def generated(classifier: Classifier, names: Sequence[str], count: int, seed: int) -> Array:
    """Generate features ``[k, count, f]`` from the descriptions of these labels."""
    labels = classifier.labels.select(names)
    return _generator(classifier).generate(labels, count, seed)


def image_features(classifier: Classifier, images: ImagesLike) -> Array:
    """Return features ``[n, f]`` of real images, in the space of the generated ones."""
    return _generator(classifier).comparable(classifier.features(images).values)


def _generator(classifier: Classifier) -> Generates:
    if not isinstance(classifier.head, Generates):
        raise cannot(classifier.head, GENERATE)
    return classifier.head


def _typical(features: Array, real: Array) -> Array:
    """Return for each feature ``[m, f]`` the share of real ones ``[n, f]`` whose nearest neighbour is at least as far."""
    if len(real) < 2:
        return np.full(len(features), np.nan)
    own = distances(real, real)
    np.fill_diagonal(own, np.inf)
    typical: Array = (own.min(1) >= distances(features, real).min(1)[:, None]).mean(1)
    return typical
