"""Classifiers that score pixels directly, so that the best attack on them is known."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from labelwise.core.classifier import Classifier, MethodRecord
from labelwise.fitting.rebuild import training_state
from labelwise.images.describe.labels import Labels
from labelwise.support.settings import setting
from labelwise.train.method import Method
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData
from tests.changed import bind_model, changed

SHAPE = (1, 4, 4)


class Pixels(LabelModel):
    """Scores linear in the pixels; ``masked`` ones are rounded, so that their gradient is zero wherever it exists."""

    weights: Tensor

    def __init__(self, weights: Tensor, masked: bool = False) -> None:
        names = tuple(f"label {i}" for i in range(len(weights)))
        super().__init__(Spec(shape=SHAPE, labels=Labels(names=names)))
        self.register_buffer("weights", weights)
        self.masked = masked

    def encode_images(self, images: Tensor) -> Tensor:
        return (images * 32).round() / 32 if self.masked else images

    def encode_labels(self, labels: Labels) -> Tensor:
        return self.weights[[self.spec.labels.index(name) for name in labels.names]]

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return image_embeddings.flatten(1) @ label_embeddings.T


@dataclass(frozen=True, kw_only=True)
class PixelsMethod(Method):
    """What makes such a model again; its weights are in the state."""

    name = "pixels"
    k: int = setting(3, "How many labels.")
    masked: bool = setting(False, "Whether pixels are rounded.")

    def build(self, spec: Spec) -> LabelModel:
        return Pixels(torch.zeros(self.k, 16), self.masked)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        return iter(())


def pixels(k: int = 3, seed: int = 0, masked: bool = False) -> Classifier:
    weights = torch.randn(k, 16, generator=torch.Generator().manual_seed(seed))
    model, method = Pixels(weights, masked), PixelsMethod(k=k, masked=masked)
    bound = bind_model(model, model.spec.labels)
    return changed(bound, method=MethodRecord.of(method), training=training_state(model))


def pictures(n: int, seed: int = 1) -> Tensor:
    """Bytes away from black and white."""
    made = torch.Generator().manual_seed(seed)
    return torch.randint(90, 166, (n, *SHAPE), generator=made, dtype=torch.uint8)
