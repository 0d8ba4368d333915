"""A model that generates features by a rule one can follow: the mean colour of a picture, or features as they are."""

import torch
from torch import Tensor

from labelwise.core import Classifier, LabelModel, Labels, Spec

NOISE = 0.15
DARK, BRIGHT = 45 / 255, 150 / 255 * 9 / 64  # of the pictures of ``tests.conftest.blobs``


class Generating(LabelModel):
    """Images are described by their features, and a label by the vector that these scatter around."""

    reads = ("vectors",)

    def encode_images(self, images: Tensor) -> Tensor:
        return (images.mean((2, 3)) - DARK) / BRIGHT if images.ndim == 4 else images

    def encode_labels(self, labels: Labels) -> Tensor:
        assert labels.vectors is not None
        return labels.vectors

    def score(self, image_codes: Tensor, label_codes: Tensor) -> Tensor:
        return -(image_codes[:, None] - label_codes).square().sum(-1)

    def features_of(self, images: Tensor) -> Tensor:
        return self.encode_images(images)

    def generate(self, labels: Labels, count: int, seed: int) -> Tensor:
        made = torch.Generator().manual_seed(seed)
        vectors = self.encode_labels(labels)
        return vectors[:, None] + NOISE * torch.randn(len(labels), count, vectors.shape[1], generator=made)


def generating(labels: Labels, shape: tuple[int, ...], described: frozenset[str] = frozenset()) -> Classifier:
    """Return a classifier of these labels; those ``described`` count as ones without training images."""
    found = Generating(Spec(shape=shape, labels=labels)).bind(labels)
    return Classifier(**{**vars(found), "described": described})
