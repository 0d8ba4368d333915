"""Supervised contrastive learning (SCL): an encoder trained by contrast, then a linear layer on its embeddings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labelwise.core.arrays import LENGTH
from labelwise.methods.shared.image_method import ImageMethod
from labelwise.methods.shared.linear import Encoder, SoftmaxModel
from labelwise.support.errors import UsageError
from labelwise.support.settings import check_range, setting
from labelwise.train.batches import Batch, ShuffledBatches
from labelwise.train.contrastive import TwoViews, contrastive_augment, cosines
from labelwise.train.distribution import whole_batch
from labelwise.train.model import LabelModel, Spec
from labelwise.train.networks.channel_statistics import channel_statistics
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Stage
from labelwise.train.train_data import TrainData


class SupconModel(SoftmaxModel):
    """A linear layer on image embeddings, and the projection in which embeddings are contrasted, which serves training only."""

    def __init__(self, spec: Spec, encoder: Encoder, projection_size: int) -> None:
        super().__init__(spec, encoder)
        if not any(p.requires_grad for p in self.encoder.parameters()):
            raise UsageError(
                "Contrast trains the image encoder, and nothing of this one is trained: features and frozen encoders stay "
                'as they are. Train the encoder (encoder.frozen=false, or "--encoder none"), give a code size '
                "(encoder.code_size=128) to train a linear layer on them by contrast, or choose softmax."
            )
        d = self.encoder.code_size
        self.projection = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, projection_size))


@dataclass(frozen=True, kw_only=True)
class Supcon(ImageMethod):
    """Supervised contrastive pretraining, then cross-entropy; the baseline called SCL in the indicator paper.

    ``epochs``, ``batch``, ``optimizer`` and ``augment`` are those of the contrast, which sees two views of each image. The
    linear layer is then trained on the embeddings of the images unchanged, computed once, with the same schedule.

    The paper's settings: temperature 0.1, weight decay 1e-4, a cosine schedule, 500 epochs; learning rate and batch
    0.05 and 256 for CIFAR-10, 0.5 and 256 for STL-10, 0.1 and 128 for BMW-10, 0.5 and 128 for CUB-20, 0.1 and 128 for Pets.

    Where ``augment`` is None the images choose: crops of a fifth of the area and more, changed brightness and contrast, and
    for colour images changed colours and a mirror image half of the time.
    """

    name: ClassVar[str] = "supcon"

    epochs: int = 60
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(weight_decay=1e-4))
    schedule: Schedule = field(default_factory=lambda: Schedule(name="cosine"))
    temperature: float = setting(0.1, "Temperature of the cosines of embeddings.")
    projection_size: int = setting(128, "Size of the contrasted embeddings.")
    head_epochs: int = setting(30, "Epochs of the linear layer.")
    head_optimizer: Optimizer = setting(Optimizer(), "Optimiser of the linear layer.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "at least 1", "projection_size", "head_epochs")
        check_range(self, "above 0", "temperature")

    def build(self, spec: Spec) -> SupconModel:
        """Return the untrained model."""
        return SupconModel(spec, self.encoder, self.projection_size)

    def batches(self, data: TrainData) -> ShuffledBatches:
        """Return the training images in batches, two views of each."""
        views = TwoViews(self.augment or contrastive_augment(data.train.shape))
        return replace(super().batches(data), augment=views)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the contrast and the linear layer, then keep the statistics that adding a label needs."""
        assert isinstance(model, SupconModel)
        model.encoder.fit_normalisation(data.train.images)
        contrast = self.stage(f"{self.name} contrast", model, data, self.loss(model))
        yield replace(contrast, parameters=[*model.encoder.parameters(), *model.projection.parameters()])
        embeddings = model.encode_all(data.train.images)
        mean, scale = standard(embeddings)
        head = replace(self, epochs=self.head_epochs, optimizer=self.head_optimizer, average=None, adversarial=None)
        fixed = replace(data, train=replace(data.train, images=(embeddings - mean) * scale))
        stage = head.stage(f"{self.name} head", model.head, fixed, lambda batch: _choice(model.head, batch))
        yield replace(stage, batches=replace(super().batches(fixed), augment=None))
        with torch.no_grad():  # the layer on embeddings as they are that gives the same scores
            model.head.weight.mul_(scale)
            model.head.bias.sub_(model.head.weight @ mean)
        model.fit_statistics(data.train)

    def loss(self, model: SupconModel) -> Callable[[Batch], dict[str, Tensor]]:
        """Return the contrastive loss; all views of a batch pass through the encoder at once."""

        def of_batch(batch: Batch) -> dict[str, Tensor]:
            views = batch.images.flatten(0, 1)
            if views.ndim == 4:
                views = views.contiguous(memory_format=torch.channels_last)
            embeddings = model.projection(model.encode_images(views)).unflatten(0, batch.images.shape[:2])
            return {"contrast": supervised_contrastive(*whole_batch(embeddings.float(), batch), self.temperature)}

        return of_batch


def _choice(head: nn.Linear, batch: Batch) -> dict[str, Tensor]:
    """Return the loss of the linear layer on fixed embeddings."""
    return {"choice": cross_entropy(head(batch.images).float(), batch.targets)}


def standard(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of embeddings ``[d]`` and the factor ``[d]`` that gives them, centred, a common spread and length."""
    mean, std = channel_statistics(embeddings, 1)
    return mean.float(), (LENGTH * embeddings.shape[1] ** -0.5 / std).float()


def supervised_contrastive(embeddings: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the mean over anchors of the loss L_out of Khosla et al. (2020), a float32 scalar.

    Every row is an anchor. Its positives are the other views of its image and all rows of the same target. The loss of
    an anchor is the mean over its positives of minus the log of the probability of that positive among all other
    rows. Anchors without a positive are left out; with none left the loss is zero.

    Embeddings are ``[n, v, e]``, v views of each image; targets ``[n]``, -1 where there is no label: then only views of one
    image attract each other.
    """
    views = embeddings.shape[1]
    scores = cosines(rows := embeddings.flatten(0, 1), rows) / temperature
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    images = torch.arange(len(targets), device=rows.device)
    positive = (images[:, None] == images) | ((targets[:, None] == targets) & (targets >= 0))
    positive = positive.repeat_interleave(views, 0).repeat_interleave(views, 1) & ~itself
    counts = positive.sum(1)
    # The lowest float, not minus infinity: a row that is alone then has a gradient of zero.
    total = scores.masked_fill(itself, torch.finfo(scores.dtype).min).logsumexp(1)
    mean = (scores * positive).sum(1) / counts.clamp_min(1)
    anchor = counts > 0
    return ((total - mean) * anchor).sum() / anchor.sum().clamp_min(1)
