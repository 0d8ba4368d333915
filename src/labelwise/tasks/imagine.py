"""Imagine: what would images of a described label look like? Generated features, and the real images nearest to them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.core.capabilities import GENERATE
from labelwise.core.classifier import Classifier
from labelwise.core.model import Generates, as_float, cannot, check_shape
from labelwise.images.decode.pictures import Pictures
from labelwise.methods.clarel.retrieval import distances
from labelwise.support.errors import UsageError
from labelwise.support.settings import brief


@dataclass(frozen=True, eq=False, kw_only=True)
class Imagined:
    """Generated features of k labels beside a gallery of n real images; everything lies on the CPU."""

    names: tuple[str, ...]  # the labels
    features: Tensor  # what the model made of each description [k, count, f]
    gallery: Tensor  # features of the real images [n, f]
    nearest: Tensor  # the gallery image nearest to each generated feature [k, count]
    distances: Tensor  # how far it is [k, count]
    # where a generated feature would stand among the real images of its label [k, count]: the share of them
    # whose nearest fellow is at least as far as the real image nearest to the feature. 0 is stranger than every
    # real image, and real images themselves have 0.5 on average. NaN where fewer than two are known
    typical: Tensor

    __repr__ = brief

    def closest(self, name: str, most: int = 16) -> list[tuple[int, float]]:
        """Return different gallery images for a label, and their distances to the generated feature nearest to them.

        The image that most generated features are nearest to comes first; of images with as many, the closest.
        """
        row = self.names.index(name)
        votes = self.nearest[row].bincount(minlength=len(self.gallery)).tolist()
        least = distances(self.features[row], self.gallery).amin(0).tolist()
        order = sorted(range(len(votes)), key=lambda image: (-votes[image], least[image]))
        return [(image, least[image]) for image in order[:most]]


def imagine(
    classifier: Classifier,
    names: Sequence[str],
    gallery: Pictures,
    *,
    targets: Tensor | None = None,
    count: int = 50,
    seed: int = 0,
) -> Imagined:
    """Return ``count`` generated features of each label, and the real images of a gallery nearest to them.

    The classifier's model must be able to generate features, as that of the method izf is. ``targets [n]`` say where the label of
    each real image stands among the classifier's, -1 where it is not known.
    """
    if not names or count < 1:
        raise UsageError(f"Give at least one label and a count of 1; given {len(names)} labels and a count of {count}.")
    features = generated(classifier, names, count, seed)
    images = classifier.batch(gallery)
    places = torch.full((len(images),), -1) if targets is None else targets.cpu()
    if len(places) != len(images):
        raise UsageError(f"There are {len(images)} images but {len(places)} targets; give one for each image.")
    real = image_features(classifier, images)
    near = [distances(rows, real).min(1) for rows in features]
    labels = [classifier.labels.index(name) for name in names]
    return Imagined(
        names=tuple(names),
        features=features,
        gallery=real,
        nearest=torch.stack([one.indices for one in near]),
        distances=torch.stack([one.values for one in near]),
        typical=torch.stack([_typical(rows, real[places == i]) for rows, i in zip(features, labels, strict=True)]),
    )


def generated(classifier: Classifier, names: Sequence[str], count: int, seed: int) -> Tensor:
    """Return features ``[k, count, f]`` that the model makes of the descriptions of these labels."""
    labels = classifier.labels.select(names)
    model = _generating(classifier)
    with torch.no_grad():
        return model.generate(labels, count, seed).float().cpu()


def image_features(classifier: Classifier, images: Tensor) -> Tensor:
    """Return features ``[n, f]`` of real images, in the space of the generated ones."""
    model, device = _generating(classifier), classifier.model.device
    check_shape(images, classifier.shape)
    with torch.no_grad():
        parts = [model.features_of(as_float(some.to(device))).float().cpu() for some in torch.split(images, 256)]
    return torch.cat(parts)


def _generating(classifier: Classifier) -> Generates:
    model = classifier.model.eval()
    if not isinstance(model, Generates):
        raise cannot(model, GENERATE)
    return model


def _typical(features: Tensor, real: Tensor) -> Tensor:
    """Return for each feature ``[m, f]`` the share of real ones ``[n, f]`` that lie no closer to their nearest fellow."""
    if len(real) < 2:
        return torch.full((len(features),), torch.nan)
    own = distances(real, real).fill_diagonal_(torch.inf).amin(1)
    return (own >= distances(features, real).amin(1)[:, None]).float().mean(1)
