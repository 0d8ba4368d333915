"""A model so plain that every score is known: the mean of each colour, weighed by one number per label and colour."""

import torch
from torch import Tensor, nn

from labelwise.core.classifier import Classifier, bind
from labelwise.core.model import LabelModel, Spec
from labelwise.images.describe.labels import Labels
from tests.changed import changed

ABC = Labels(
    names=("a", "b", "c"),
    vectors=torch.eye(3),
    texts=(("first",), ("second", "2nd"), ("third",)),
    order=(2, 0, 1),
    shares=torch.tensor([0.5, 0.3, 0.2]),
)


class Pixels(LabelModel):
    """Scores by one weight per label and channel."""

    def __init__(self, labels: Labels = ABC) -> None:
        super().__init__(Spec(shape=(3, 2, 2), labels=labels))
        self.weights = nn.Parameter(torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]]))

    def encode_images(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))

    def encode_labels(self, labels: Labels) -> Tensor:
        return self.weights[[self.spec.labels.index(name) for name in labels.names]]

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return image_embeddings @ label_embeddings.T


def plain_classifier() -> Classifier:
    """Labels a, b and c, calibrated as if by hand."""
    return changed(bind(Pixels(), ABC), scale=torch.tensor([1.0, 2, 3]), offset=torch.tensor([0.0, 1, 2]))
