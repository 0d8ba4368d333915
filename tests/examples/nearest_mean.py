"""A whole method in one short file: a label is the mean of its images, and the nearest mean answers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from labelwise.core.head import Array, HeadDefaults
from labelwise.core.saved_parts import shaped
from labelwise.images.describe.labels import Labels
from labelwise.methods.shared.linear import Encoder, EncoderModel
from labelwise.support.rows import segment_mean
from labelwise.train.method import Method
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData


@dataclass(frozen=True, eq=False, kw_only=True)
class MeanHead(HeadDefaults):
    """Labels are the means of features of their images; a score is a squared distance, below zero."""

    kind: ClassVar[str] = "nearest_mean"
    labels: Labels
    means: Array = shaped("k", "d")

    @property
    def width(self) -> int:
        return int(self.means.shape[1])

    def embed_labels(self, labels: Labels) -> Array:
        return self.means[[self.labels.index(name) for name in labels.names]]

    def score(self, embeddings: Array, label_embeddings: Array) -> Array:
        return np.asarray(-((embeddings[:, None] - label_embeddings) ** 2).sum(2))

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        """Having this, it can be taught new labels from images."""
        return segment_mean(embeddings, groups, int(groups.max()) + 1)


class MeanModel(EncoderModel):
    """What training leaves: an encoder, and the means."""

    means: Tensor

    def export_head(self) -> MeanHead:
        return MeanHead(labels=self.spec.labels, means=self.means.numpy())


@dataclass(frozen=True, kw_only=True)
class NearestMean(Method):
    """How a model is made: the setting says which network makes features of images."""

    name: ClassVar[str] = "nearest_mean"
    encoder: Encoder = field(default_factory=lambda: Encoder(frozen=True))

    def build(self, spec: Spec) -> MeanModel:
        return MeanModel(spec, self.encoder)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Train nothing by gradients; one pass over the images gives the means."""
        features: Tensor = model.head_features(data.train.images).cpu()
        means = segment_mean(features, data.train.targets, len(data.labels))
        model.register_buffer("means", torch.from_numpy(means))
        yield from ()
