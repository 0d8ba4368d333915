"""Classifiers that score pixels directly, so that the best attack on them is known."""

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.images.describe.labels import Labels
from labelwise.train.model import LabelModel, Spec
from tests.changed import bind_model

SHAPE = (1, 4, 4)


class Pixels(LabelModel):
    """Scores linear in the pixels; ``masked`` ones are rounded, so that their gradient is zero wherever it exists."""

    def __init__(self, weights: Tensor, masked: bool = False) -> None:
        names = tuple(f"label {i}" for i in range(len(weights)))
        super().__init__(Spec(shape=SHAPE, labels=Labels(names=names)))
        self.weights, self.masked = weights, masked

    def encode_images(self, images: Tensor) -> Tensor:
        return (images * 32).round() / 32 if self.masked else images

    def encode_labels(self, labels: Labels) -> Tensor:
        return self.weights[[self.spec.labels.index(name) for name in labels.names]]

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return image_embeddings.flatten(1) @ label_embeddings.T


def pixels(k: int = 3, seed: int = 0, masked: bool = False) -> Classifier:
    weights = torch.randn(k, 16, generator=torch.Generator().manual_seed(seed))
    model = Pixels(weights, masked)
    return bind_model(model, model.spec.labels)


def pictures(n: int, seed: int = 1) -> Tensor:
    """Bytes away from black and white."""
    made = torch.Generator().manual_seed(seed)
    return torch.randint(90, 166, (n, *SHAPE), generator=made, dtype=torch.uint8)
