"""Base models of the methods with a linear score: image encoder, statistics, closed-form start."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from labelwise.core.arrays import LENGTH
from labelwise.core.head import Head
from labelwise.encoders import encoder as encoders
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.copies import copy_groups
from labelwise.methods.discriminant.whitening import closed_form_rows
from labelwise.methods.shared.centring import array
from labelwise.methods.shared.head import LinearHead, Map, Projection, TrainedHead
from labelwise.methods.shared.statistics import EmbeddingStatistics, embedding_statistics, unit_statistics
from labelwise.train.batches import map_own_rows, on_device
from labelwise.train.model import LabelModel, Spec, as_float
from labelwise.train.networks.encoder import Encoder
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.torch_encoder import shared_encoder
from labelwise.train.tensors import linear_scores, root_features
from labelwise.train.train_data import TensorSplit

__all__ = ["Encoder", "EncoderModel", "HeadModel", "LinearModel", "RowModel", "SoftmaxModel", "array"]

Array = npt.NDArray[Any]
BATCH = 256  # images encoded at a time outside training
ON_GPU = 2**23  # pixel values a GPU batch: large batches need few kernel launches


class EncoderModel(LabelModel):
    """A model that embeds images by an image encoder followed by ``finish``."""

    def __init__(self, spec: Spec, encoder: Encoder) -> None:
        super().__init__(spec)
        self.encoder = encoder.build(spec.shape, spec.view)

    def encode_images(self, images: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` of images, or of precomputed trunk features."""
        return self.finish(self.encoder(images))

    def finish(self, embeddings: Tensor) -> Tensor:
        """Turn the encoder's output into image embeddings."""
        return embeddings

    def prepare(self, images: Tensor) -> Tensor:
        """Return the features of a frozen trunk, cached for the lifetime of the images; otherwise the images."""
        return self.encoder.features(images) if self.encoder.frozen else images

    def export_encoder(self) -> encoders.Encoder:
        """Return the encoder that makes the head's features."""
        return shared_encoder(self.encoder)

    def head_features(self, images: Tensor) -> Tensor:
        """Return the head's features ``[n, f]`` of images, or of the output of ``prepare``."""
        if not self.encoder.untrained:
            return self.encode_all(images, by=self.encoder)
        return self.encoder.features(images) if self.encoder.frozen else images.float()

    @property
    def feature_width(self) -> int:
        """The size of the head's features: backbone features if the encoder is not trained, else its embeddings."""
        return self.encoder.backbone.width_out if self.encoder.untrained else self.encoder.code_size

    @torch.no_grad()
    def encode_all(self, images: Tensor, by: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return embeddings ``[n, d]``, or the output of ``by``, batch by batch in eval mode."""
        self.eval()
        images = self.prepare(images)
        if images.ndim == 2:  # every process has all features
            return self._encode(images, by)
        return map_own_rows(images, partial(self._encode, by=by))

    def _encode(self, images: Tensor, by: Callable[[Tensor], Tensor] | None) -> Tensor:
        rows = BATCH if self.device.type == "cpu" else max(16, ON_GPU // math.prod(images.shape[1:]))
        parts = on_device(torch.split(images, rows), self.device)
        return torch.cat([(by or self.encode_images)(as_float(x)) for x in parts]).float()


class RowModel(EncoderModel):
    """A model with a linear score: label embeddings are ``[k, d + 1]``, weights then a bias."""

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the score of every pair ``[n, k]``: one matrix product."""
        return linear_scores(image_embeddings, label_embeddings)

    def trained_rows(self, labels: Labels) -> Tensor | slice:
        """Return the positions of these labels among the trained ones."""
        if labels is self.spec.labels:
            return slice(None)
        return torch.tensor([self.spec.labels.index(name) for name in labels.names], device=self.device)


class LinearModel(RowModel):
    """A trained linear model with the training statistics that ``labels_from_examples`` needs."""

    statistics: EmbeddingStatistics  # of training embeddings
    unit_mean: Array  # mean training embedding at unit length
    # within-label covariance of training embeddings at unit length; zeros in multi-label data
    unit_within: Array

    def __init__(self, spec: Spec, encoder: Encoder) -> None:
        super().__init__(spec, encoder)
        self.forget(self.encoder.code_size)

    def forget(self, d: int) -> None:
        """Reset the statistics to those of no image; embeddings have size d."""
        k = len(self.spec.labels)
        self.statistics = EmbeddingStatistics(*(np.zeros(shape, np.float32) for shape in ((k, d), (k,), (d, d))))
        self.unit_mean, self.unit_within = np.zeros(d, np.float32), np.zeros((d, d), np.float32)

    @torch.no_grad()
    def fit_statistics(self, split: TensorSplit) -> None:
        """Compute the training statistics that ``labels_from_examples`` needs."""
        embeddings, targets, k = array(self.encode_all(split.images)), array(split.targets), len(self.spec.labels)
        with np.errstate(over="ignore", invalid="ignore"):  # non-finite statistics are not saved
            self.statistics = embedding_statistics(embeddings, targets, k).in_single()
            if not split.multilabel:
                self.unit_mean, self.unit_within = unit_statistics(embeddings, targets, k)

    def restore(self, head: Head) -> None:
        """Load from a head what the state does not hold."""
        if isinstance(head, TrainedHead):
            self.statistics, self.unit_mean, self.unit_within = head.statistics, head.unit_mean, head.unit_within

    def tensor(self, values: Array) -> Tensor:
        """Copy an array to the device of the model."""
        return torch.from_numpy(values).to(self.device)

    def export_head(self) -> TrainedHead:
        """Return the equivalent NumPy head."""
        rows = array(self.encode_labels(self.spec.labels))
        return LinearHead(**self.head_parts(), rows=rows, competing=self.exclusive)

    def head_parts(self) -> dict[str, Any]:
        """Return the fields shared by the heads of these models."""
        return {
            "labels": self.spec.labels,
            "width": self.feature_width,
            "statistics": self.statistics,
            "unit_mean": self.unit_mean,
            "unit_within": self.unit_within,
            "projection": projection_of(self.encoder),
        }


class StartedModel(LinearModel):
    """A linear model that, on frozen features, starts from the closed form and trains a correction."""

    base: Tensor  # label embeddings in closed form [k, d + 1]; zeros: none
    feature_map: Map = "none"  # normalisation of features

    def __init__(self, spec: Spec, encoder: Encoder) -> None:
        super().__init__(spec, encoder)
        if self.can_start:
            self.register_buffer("base", torch.zeros(len(spec.labels), self.encoder.code_size + 1))

    @property
    def can_start(self) -> bool:
        """Whether label embeddings are the only trained part."""
        return self.encoder.untrained and isinstance(self.encoder.project, nn.Identity)

    @property
    def started(self) -> bool:
        """Whether the closed form is set."""
        return self.feature_map != "none"

    def finish(self, embeddings: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]``; with a closed form, features scaled to one length."""
        if self.feature_map == "none":
            return embeddings
        return LENGTH * (root_features(embeddings) if self.feature_map == "root" else normalize(embeddings, dim=1))

    def head_parts(self) -> dict[str, Any]:
        """Return the fields shared by the heads of these models."""
        return {**super().head_parts(), "feature_map": self.feature_map}

    def restore(self, head: Head) -> None:
        """Load from a head what the state does not hold."""
        super().restore(head)
        self.feature_map = getattr(head, "feature_map", "none")

    def start(self, split: TensorSplit) -> None:
        """Start from the closed form of training images, with a trained correction of zero."""
        self.feature_map = "root" if float(self.encoder.features(split.images).min()) >= 0 else "unit"
        self.solve(split)

    @torch.no_grad()
    def solve(self, split: TensorSplit) -> None:
        """Solve the closed form on these images; label probabilities sum to about 1."""
        embeddings = self.encode_all(split.images)
        rows, targets = array(embeddings), array(split.targets)
        groups = copy_groups(rows, targets)
        self.base.copy_(torch.from_numpy(closed_form_rows(rows, targets, len(self.spec.labels), groups)))
        self.base[:, -1] -= linear_scores(embeddings, self.base).logsumexp(1).mean()

    def complete(self, images: Tensor, targets: Tensor, groups: Sequence[str] = ()) -> None:
        """Solve the closed form again on all images, held-out ones included; the trained correction stays."""
        split = TensorSplit(images=images, targets=targets, groups=tuple(groups))
        self.solve(split)
        self.fit_statistics(split)

    def likelihood(self, split: TensorSplit) -> float:
        """Return the mean log-likelihood of the images' labels."""
        scores = self.score(self.encode_all(split.images), self.encode_labels(self.spec.labels))
        return -float(cross_entropy(scores.float(), split.targets.to(scores.device)))


class HeadModel(StartedModel):
    """An ordinary classifier: the embedding of a label is its row of the last layer."""

    def __init__(self, spec: Spec, encoder: Encoder) -> None:
        super().__init__(spec, encoder)
        self.head = nn.Linear(self.encoder.code_size, len(spec.labels))

    def start(self, split: TensorSplit) -> None:
        """Start from the closed form of training images, with a layer of zeros."""
        super().start(split)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return the rows of the last layer that belong to these labels ``[k, d + 1]``."""
        rows = self.trained_rows(labels)
        own = torch.cat([self.head.weight[rows], self.head.bias[rows, None]], 1)
        return own + self.base[rows] if self.can_start else own


def projection_of(encoder: ImageEncoder) -> Projection | None:
    """Return the projection after a frozen encoder; None for a trained encoder, which contains it."""
    if not encoder.untrained:
        return None
    mean, std = (encoder.feature_mean, encoder.feature_std) if encoder.frozen else (encoder.mean, encoder.std)
    length = LENGTH * encoder.backbone.width_out**-0.5
    layer = encoder.project if isinstance(encoder.project, nn.Linear) else None
    weight, bias = (None, None) if layer is None else (array(layer.weight), array(layer.bias))
    return Projection(mean=array(mean), std=array(std), length=length, weight=weight, bias=bias)


class SoftmaxModel(HeadModel):
    """A head whose scores compete with each other."""

    exclusive = True
