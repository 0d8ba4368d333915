"""Rivals of `prototype` with the same encoder and sampler: losses of pytorch-metric-learning, and rules on codes alone.

pytorch-metric-learning is pure Python and needs torch, numpy and tqdm, no torchvision. Where it cannot be installed, put it on the path:

    pip install --no-deps --target FOLDER pytorch-metric-learning tqdm
    PYTHONPATH=FOLDER python benchmarks/prototype.py ...
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from labelwise.images.describe.labels import Labels
from labelwise.methods.shared.image_method import ImageMethod
from labelwise.methods.shared.linear import Encoder, LinearModel
from labelwise.support.errors import UsageError
from labelwise.train.batches import Batch, GroupedBatches
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.tensors import segment_mean
from labelwise.train.train_data import TrainData

LossName = Literal["multi-similarity", "proxy-anchor", "triplet"]
Rule = Literal["nearest mean", "cosine"]
# Images of a label in a batch: pair losses need several, proxies none, and were published with batches drawn at random.
GROUPS: dict[LossName, int] = {"multi-similarity": 5, "proxy-anchor": 1, "triplet": 5}


def build_loss(name: LossName, k: int, d: int) -> nn.Module:
    """Return a loss of pytorch-metric-learning with the settings it comes with; the triplet loss with semi-hard triplets."""
    try:
        from pytorch_metric_learning import losses, miners
    except ImportError as error:
        raise UsageError(
            f'The rival "{name}" is a loss of pytorch-metric-learning, which cannot be imported ({error}). Install the extra '
            '"bench", or put the package and tqdm on PYTHONPATH.'
        ) from None
    if name == "proxy-anchor":
        return losses.ProxyAnchorLoss(k, d)  # type: ignore[no-any-return]
    if name == "multi-similarity":
        return Mined(losses.MultiSimilarityLoss(), miners.MultiSimilarityMiner())
    return Mined(
        losses.TripletMarginLoss(margin=0.2), miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard")
    )


class Mined(nn.Module):
    """A loss on the pairs or triplets that a miner picks."""

    def __init__(self, loss: nn.Module, miner: nn.Module) -> None:
        super().__init__()
        self.loss, self.miner = loss, miner

    def forward(self, codes: Tensor, targets: Tensor) -> Any:
        """Return the loss of a batch."""
        return self.loss(codes, targets, self.miner(codes, targets))


class MetricModel(LinearModel):
    """Codes trained by a metric loss; a label is the mean direction of its codes, and its score the cosine with it.

    With proxies a linear layer follows the encoder, as published; it did better so on held-out labels, the pair losses worse.
    """

    exclusive = True
    directions: Tensor

    def __init__(self, spec: Spec, encoder: Encoder, loss: LossName) -> None:
        super().__init__(spec, encoder)
        k, d = len(spec.labels), self.encoder.code_size
        self.last = nn.Linear(d, d) if loss == "proxy-anchor" else nn.Identity()
        self.metric = build_loss(loss, k, d)
        self.register_buffer("directions", torch.zeros(k, d))

    def encode_images(self, images: Tensor) -> Tensor:
        """Return image codes ``[n, d]``."""
        return self.last(self.encoder(images))  # type: ignore[no-any-return]

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label codes ``[k, d]``."""
        return self.directions[self.trained_rows(labels)]

    def labels_from_examples(self, image_codes: Tensor, groups: Tensor) -> Tensor:
        """Return the mean directions of groups ``[g, d]``."""
        return segment_mean(normalize(image_codes.float(), dim=1), groups, int(groups.max()) + 1)

    def score(self, image_codes: Tensor, label_codes: Tensor) -> Tensor:
        """Return cosines ``[n, k]``."""
        return normalize(image_codes.float(), dim=1) @ normalize(label_codes.float(), dim=1).T

    @torch.no_grad()
    def follow(self, codes: Tensor, targets: Tensor) -> None:
        """Move the directions of the labels in a batch towards the mean direction of their images."""
        means = segment_mean(normalize(codes, dim=1), targets, len(self.directions))
        here = means.new_zeros(len(means), 1).index_fill_(0, targets, 0.1)
        self.directions.lerp_(means, here)


@dataclass(frozen=True, kw_only=True)
class Metric(ImageMethod):
    """A loss of pytorch-metric-learning; batches are groups as those of `prototype`.

    Attributes:
        loss: which.
        group: the most images of a label that stand together in a batch.
    """

    name: ClassVar[str] = "metric"

    loss: LossName = "multi-similarity"
    group: int = 5

    def build(self, spec: Spec) -> MetricModel:
        """Return the untrained model."""
        return MetricModel(spec, self.encoder, self.loss)

    def batches(self, data: TrainData) -> GroupedBatches:
        """Return the training images in batches of groups, augmented."""
        plain = super().batches(data)
        return GroupedBatches(split=plain.split, size=plain.size, augment=plain.augment, group=self.group)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the one stage."""
        assert isinstance(model, MetricModel)

        def loss(batch: Batch) -> dict[str, Tensor]:
            codes = model.encode_images(batch.images).float()
            if model.training:
                model.follow(codes, batch.targets)
            with torch.autocast(codes.device.type, enabled=False):
                return {self.loss: model.metric(codes, batch.targets)}

        return self.train_whole(model, data, loss)


class Means(LabelModel):
    """A rule on the codes of a trained model alone: the label with the nearest mean code, or the one of largest cosine."""

    exclusive = True

    def __init__(self, trained: LinearModel, rule: Rule) -> None:
        super().__init__(trained.spec)
        self.trained, self.rule = trained, rule

    def encode_images(self, images: Tensor) -> Tensor:
        """Return image codes ``[n, d]``."""
        return self.trained.encode_images(images)

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return mean training codes ``[k, d]``."""
        return torch.from_numpy(self.trained.statistics.means)[self.trained.trained_rows(labels)]

    def score(self, image_codes: Tensor, label_codes: Tensor) -> Tensor:
        """Return minus squared distances, or cosines ``[n, k]``."""
        if self.rule == "cosine":
            return normalize(image_codes.float(), dim=1) @ normalize(label_codes.float(), dim=1).T
        return -(image_codes.float()[:, None] - label_codes.float()).square().sum(2)
