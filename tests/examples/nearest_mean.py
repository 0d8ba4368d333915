"""A whole method in one short file: a label is the mean of its pictures, and the nearest mean answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from labelwise.core.model import LabelModel, Spec, as_float
from labelwise.images.describe.labels import Labels
from labelwise.train.data import TrainData
from labelwise.train.stages import Method, Stage
from labelwise.train.tensors import segment_mean
from tests.pixels_of import px


class MeanModel(LabelModel):
    """Pictures as few large cells, labels as the means of theirs; a score is a squared distance, below zero."""

    means: Tensor

    def __init__(self, spec: Spec, cells: int) -> None:
        super().__init__(spec)
        self.cells = cells
        size = spec.shape[0] * (cells**2 if len(spec.shape) == 3 else 1)
        self.register_buffer("means", torch.zeros(len(spec.labels), size))

    def encode_images(self, images: Tensor) -> Tensor:
        return adaptive_avg_pool2d(images, self.cells).flatten(1) if images.ndim == 4 else images

    def encode_labels(self, labels: Labels) -> Tensor:
        return self.means[[self.spec.labels.index(name) for name in labels.names]]

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        return -(image_embeddings[:, None] - label_embeddings).square().sum(2)

    def labels_from_examples(self, embeddings: Tensor, groups: Tensor) -> Tensor:
        """Having this, it can be taught new labels from pictures."""
        return segment_mean(embeddings, groups, int(groups.max()) + 1)


@dataclass(frozen=True, kw_only=True)
class NearestMean(Method):
    """How a model is made. The setting says into how many cells a picture is divided, in each direction."""

    name: ClassVar[str] = "nearest_mean"
    cells: int = 2

    def build(self, spec: Spec) -> MeanModel:
        return MeanModel(spec, self.cells)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Train nothing by gradients; one pass over the pictures gives the means."""
        assert isinstance(model, MeanModel)
        embeddings = model.encode_images(as_float(px(data.train)))
        model.means.copy_(model.labels_from_examples(embeddings, data.train.targets))
        yield from ()
