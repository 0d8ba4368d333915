"""Methods as papers or their authors' code train them, where that takes more than settings; recipes name them, lists do not."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from labelwise.methods.indicator.method import Indicator, IndicatorModel
from labelwise.methods.izf.method import Izf
from labelwise.methods.izf.model import IzfSoftmaxModel
from labelwise.methods.prototype.method import Prototype
from labelwise.methods.softmax import Softmax
from labelwise.support.errors import UsageError
from labelwise.support.rows import mix
from labelwise.support.settings import setting
from labelwise.train.batches import ShuffledBatches
from labelwise.train.model import Spec, as_float
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TrainData
from labelwise_papers.baselines.cgan_head import IzfFeaturesHead

SIZES = (0.1, 0.2, 0.3)  # of the noise


@dataclass(frozen=True)
class Noisy:
    """Changes of images, and then noise on half of them: uniform numbers times one of three sizes, cut to [0, 1]."""

    before: Callable[[Tensor, BatchRng], Tensor] | None

    def __call__(self, images: Tensor, rng: BatchRng) -> Tensor:
        """Return the changed images ``[n, c, h, w]``."""
        images = self.before(images, rng) if self.before else as_float(images)
        some = rng.uniform(2)
        place = (some[:, 1] * len(SIZES)).long().clamp_max(len(SIZES) - 1)
        size = (place + 1) * SIZES[0] * (some[:, 0] < 0.5)
        noise = rng.uniform(*images.shape[1:]).mul_(size[:, None, None, None])
        return images.add(noise).clamp_(0, 1)


@dataclass(frozen=True, eq=False, kw_only=True)
class DomainBatches(ShuffledBatches):
    """As many images of every domain in each batch; an epoch is one of the largest domain, the others begin again meanwhile."""

    @cached_property
    def _domains(self) -> list[Tensor]:
        """The rows of each domain."""
        names = self.split.domains
        return [torch.tensor([row for row, own in enumerate(names) if own == name]) for name in sorted(set(names))]

    def __len__(self) -> int:
        return max(1, max(map(len, self._domains)) // (self.size // len(self._domains)))

    def plan(self, seed: int) -> list[Tensor]:
        """Return the rows of each batch of an epoch."""
        generator = torch.Generator().manual_seed(mix(seed))
        each = self.size // len(self._domains)
        orders = []
        for rows in self._domains:
            times = -(-len(self) * each // len(rows))
            turns = [rows[torch.randperm(len(rows), generator=generator)] for _ in range(times)]
            orders.append(torch.split(torch.cat(turns)[: len(self) * each], each))
        return [torch.cat(parts) for parts in zip(*orders, strict=True)]


@dataclass(frozen=True, kw_only=True)
class AuthorsPrototype(Prototype):
    """Prototypes as their authors' code trains them: with noise, in plain batches or in batches of all domains."""

    name: ClassVar[str] = "prototype_authors"

    training_noise: bool = setting(True, "Uniform noise on half of the images.")
    batch_of_domains: bool = setting(False, "As many images of every domain in a batch.")

    def batches(self, data: TrainData) -> ShuffledBatches:  # type: ignore[override]
        """Return the training images in batches, augmented."""
        plain = super().batches(data)
        augment = Noisy(plain.augment) if self.training_noise else plain.augment
        if not self.batch_of_domains:
            return replace(plain, augment=augment)
        if len(set(data.train.domains)) < 2:
            raise UsageError("Batches of domains need images of at least two.")
        return DomainBatches(split=plain.split, size=plain.size, augment=augment)


@dataclass(frozen=True, kw_only=True)
class NoisySoftmax(Softmax):
    """Softmax with the noise in training that the code of the prototype paper has."""

    name: ClassVar[str] = "softmax_noisy"

    def batches(self, data: TrainData) -> ShuffledBatches:
        """Return the training images in batches, augmented."""
        plain = super().batches(data)
        return replace(plain, augment=Noisy(plain.augment))


@dataclass(frozen=True, kw_only=True)
class TorchIndicator(Indicator):
    """The indicator with the start of weights that torch gives linear layers: the paper names none."""

    name: ClassVar[str] = "indicator_torch"

    def build(self, spec: Spec) -> IndicatorModel:
        """Return the untrained model."""
        model = super().build(spec)
        encoder = model.label_encoder
        for layer in (model.predictor, encoder.first, encoder.second):
            layer.reset_parameters()
        return model


class FeaturesModel(IzfSoftmaxModel):
    """Labels by a softmax layer on real and on generated features."""

    def embed(self, features: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]``, the features."""
        return features

    def export_head(self) -> IzfFeaturesHead:
        """Return what scores features as this model does, without torch."""
        return IzfFeaturesHead(**self.head_parts())


@dataclass(frozen=True, kw_only=True)
class IzfOnFeatures(Izf):
    """IZF-Softmax of the paper: the flow makes visual features of labels without images, and a softmax layer is fitted to these."""

    name: ClassVar[str] = "izf_features"

    def build(self, spec: Spec) -> FeaturesModel:  # type: ignore[override]
        """Return the untrained model."""
        return FeaturesModel(spec, self)
