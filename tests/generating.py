"""A model that generates features by a rule one can follow: the mean colour of a picture, or features as they are."""

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier, bind
from labelwise.core.model import LabelModel, Spec
from labelwise.images.describe.labels import Labels
from tests.changed import known_by_description

NOISE = 0.15
DARK, BRIGHT = 45 / 255, 150 / 255 * 9 / 64  # of the pictures of ``tests.conftest.blobs``


class Generating(LabelModel):
    """Images are described by their features, and a label by the vector that these scatter around."""

    reads = ("vectors",)

    def encode_images(self, images: Tensor) -> Tensor:
        return (images.mean((2, 3)) - DARK) / BRIGHT if images.ndim == 4 else images

    def encode_labels(self, labels: Labels) -> Tensor:
        assert labels.vectors is not None
        return torch.as_tensor(labels.vectors)

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return -(image_embeddings[:, None] - label_embeddings).square().sum(-1)

    def features_of(self, images: Tensor) -> Tensor:
        return self.encode_images(images)

    def generate(self, labels: Labels, count: int, seed: int) -> Tensor:
        made = torch.Generator().manual_seed(seed)
        vectors = self.encode_labels(labels)
        return vectors[:, None] + NOISE * torch.randn(len(labels), count, vectors.shape[1], generator=made)


def generating(labels: Labels, shape: tuple[int, ...], unseen: frozenset[str] = frozenset()) -> Classifier:
    """Return a classifier of these labels; those ``unseen`` count as ones without training images."""
    return known_by_description(bind(Generating(Spec(shape=shape, labels=labels)), labels), *unseen)
