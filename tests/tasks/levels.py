"""A classifier whose pictures are the logarithms of the probabilities that it gives."""

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.images.describe.labels import Labels
from labelwise.train.model import LabelModel, Spec
from tests.changed import bind_model, changed


class Told(LabelModel):
    """The score of label i is value i of the features."""

    def encode_images(self, images: Tensor) -> Tensor:
        return images

    def encode_labels(self, labels: Labels) -> Tensor:
        return torch.eye(len(self.spec.labels))[[self.spec.labels.index(name) for name in labels.names]]

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return image_embeddings @ label_embeddings.T


def told(labels: Labels, *, multilabel: bool = False) -> Classifier:
    """Return a classifier that answers what its pictures say, ``[n, k]``."""
    made = bind_model(Told(Spec(shape=(len(labels),), labels=labels)), labels)
    return changed(made, multilabel=multilabel)


def saying(probabilities: list[list[float]] | Tensor) -> Tensor:
    """Return the pictures ``[n, k]`` that get these probabilities."""
    return torch.as_tensor(probabilities, dtype=torch.float64).clamp_min(1e-30).log().float()
