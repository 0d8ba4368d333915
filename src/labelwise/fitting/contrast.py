"""Contrast: how an image encoder learns without any label, by SimCLR or MoCo v2, as one stage of a method."""

import copy
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.optim.swa_utils import get_ema_multi_avg_fn

from labelwise.data.augment import Augment
from labelwise.data.batches import Batch, ShuffledBatches
from labelwise.data.dataset import Split, TrainData
from labelwise.errors import DataError, UsageError
from labelwise.methods.supcon import TwoViews, contrastive_augment
from labelwise.nn.encoder import ImageEncoder
from labelwise.ops.contrastive import alignment, momentum_contrast, nt_xent, uniformity
from labelwise.training.distribution import whole_batch
from labelwise.training.optimizers import Optimizer, Schedule
from labelwise.training.stages import Loss, Stage

TEMPERATURES = {"simclr": 0.5, "moco": 0.2}
MEASURED = ("alignment", "uniformity")


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """How to train an image encoder without labels.

    The zero-label paper: SimCLR, ResNet-50, batch 128 (512 for CIFAR100-20), 500 epochs, Adam with a rate of 1e-3. MoCo v2 as
    published for ImageNet: a queue of 65536 and a momentum of 0.999.

    Attributes:
        kind: ``simclr`` compares the images of a batch with each other; ``moco`` compares them with a queue of embeddings that
            a slowly following copy of the encoder made, so that a small batch suffices.
        temperature: tau, divides the cosines of embeddings; None is 0.5 for SimCLR and 0.2 for MoCo.
        hidden: size of the projection's hidden layer.
        projection_size: of the embeddings that are contrasted.
        epochs: how often to go through the images.
        batch: images of a step, over all processes; two views of each are made.
        augment: None chooses by the images, see ``contrastive_augment``.
        queue: how many embeddings of earlier images MoCo compares with, at least a batch.
        momentum: share of the copy that MoCo keeps at each step.
    """

    kind: Literal["simclr", "moco"] = "simclr"
    temperature: float | None = None
    hidden: int = 512
    projection_size: int = 128
    epochs: int = 100
    batch: int = 128
    optimizer: Optimizer = field(default_factory=lambda: Optimizer(name="adam", lr=1e-3, weight_decay=1e-6))
    schedule: Schedule = field(default_factory=lambda: Schedule(name="onecycle", warmup=0.05))
    augment: Augment | None = None
    queue: int = 4096
    momentum: float = 0.99

    def __post_init__(self) -> None:
        """Check the values."""
        if self.kind not in TEMPERATURES:
            raise UsageError(f'Unknown kind of contrast "{self.kind}". Choose simclr or moco.')
        for name, least in {"hidden": 1, "projection_size": 1, "epochs": 1, "batch": 2, "queue": 1}.items():
            if getattr(self, name) < least:
                raise UsageError(f'Setting "{name}" must be at least {least}; given {getattr(self, name)}.')
        if self.temperature is not None and self.temperature <= 0:
            raise UsageError(f"The temperature must be above 0; given {self.temperature}.")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"The momentum is a share from 0 to below 1; given {self.momentum}.")
        if self.kind == "moco" and self.queue < self.batch:
            raise UsageError(f"The queue takes at least one batch ({self.batch}); given {self.queue}. Make it longer.")

    @property
    def tau(self) -> float:
        """The temperature in use."""
        return TEMPERATURES[self.kind] if self.temperature is None else self.temperature


class ContrastHead(nn.Module):
    """What the contrast needs beside the encoder; a part of the model in training, so that checkpoints hold it.

    Attributes:
        projection: in which embeddings are contrasted.
        keys: MoCo's copy of encoder and projection, which follows them slowly; None for SimCLR.
        queue: embeddings of earlier images, of unit length ``[m, e]``; empty for SimCLR.
        place: where in the queue the next embedding goes.
    """

    queue: Tensor
    place: Tensor

    def __init__(self, settings: Contrast, encoder: ImageEncoder) -> None:
        super().__init__()
        if encoder.untrained:
            raise UsageError(
                "Contrast trains an image encoder, and this one is not trained: it is frozen, or the data are features "
                "already. Give pictures and leave out encoder.frozen."
            )
        d, hidden, size = encoder.code_size, settings.hidden, settings.projection_size
        self.projection = nn.Sequential(
            nn.Linear(d, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, size)
        )
        moco = settings.kind == "moco"
        self.keys = copy.deepcopy(nn.Sequential(encoder, self.projection)).requires_grad_(False) if moco else None
        self.register_buffer("queue", normalize(torch.randn(settings.queue if moco else 0, size), dim=1))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def start(self, encoder: ImageEncoder) -> None:
        """Make the keys' encoder and projection the same as those to train."""
        if self.keys is not None:
            self.keys.load_state_dict(nn.Sequential(encoder, self.projection).state_dict())

    @torch.no_grad()
    def follow(self, encoder: ImageEncoder, momentum: float) -> None:
        """Move the keys' parameters towards those that are trained."""
        if self.keys is not None:
            trained = [*encoder.parameters(), *self.projection.parameters()]
            get_ema_multi_avg_fn(momentum)(list(self.keys.parameters()), trained, 0)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def push(self, embeddings: Tensor) -> None:
        """Put embeddings ``[n, e]`` into the queue in place of the oldest."""
        places = (self.place + torch.arange(len(embeddings), device=embeddings.device)) % len(self.queue)
        self.queue.index_copy_(0, places, normalize(embeddings, dim=1))
        self.place.copy_((self.place + len(embeddings)) % len(self.queue))


def contrast_stage(settings: Contrast, encoder: ImageEncoder, head: ContrastHead, data: TrainData) -> Stage:
    """Return the stage that trains an image encoder by contrast; targets are out of its reach.

    Its log has, beside the loss, the alignment and uniformity of the embeddings that are contrasted; they need no label.

    Args:
        settings: how to train.
        encoder: what to train; its normalisation is fitted to the images.
        head: both are parts of the model in training.
        data: its training images are used, and nothing else.
    """
    images = data.train.images
    if len(images) < 2:
        raise DataError(f"Contrast needs at least two images; given {len(images)}. Add pictures.")
    encoder.fit_normalisation(images)
    head.start(encoder)
    alone = Split(images=images, targets=torch.full((len(images),), -1))
    views = TwoViews(settings.augment or contrastive_augment(data.train.shape))
    loss_of = _simclr if settings.kind == "simclr" else _moco
    return Stage(
        name=settings.kind,
        loss=loss_of(settings, encoder, head),
        parameters=(*encoder.parameters(), *head.projection.parameters()),
        batches=ShuffledBatches(split=alone, size=settings.batch, augment=views),
        epochs=settings.epochs,
        optimizer=settings.optimizer,
        schedule=settings.schedule,
        measured=MEASURED,
    )


def _simclr(settings: Contrast, encoder: ImageEncoder, head: ContrastHead) -> Loss:
    """Return the loss NT-Xent; both views of all images pass through the encoder at once."""

    def loss(batch: Batch) -> dict[str, Tensor]:
        views = batch.images.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        embeddings = head.projection(encoder(views)).float().unflatten(0, batch.images.shape[:2])
        embeddings, _ = whole_batch(embeddings, batch)
        return {"contrast": nt_xent(embeddings, settings.tau), **_measures(embeddings)}

    return loss


def _moco(settings: Contrast, encoder: ImageEncoder, head: ContrastHead) -> Loss:
    """Return the loss of first views against a queue; in training each call moves keys and queue on."""
    keys_of = head.keys
    assert keys_of is not None

    def loss(batch: Batch) -> dict[str, Tensor]:
        first, second = (view.contiguous(memory_format=torch.channels_last) for view in batch.images.unbind(1))
        queries = head.projection(encoder(first)).float()
        with torch.no_grad():
            if head.training:
                head.follow(encoder, settings.momentum)
            keys = keys_of(second).float()
            embeddings, _ = whole_batch(torch.stack([queries, keys], 1), batch)
        contrast = momentum_contrast(queries, keys, head.queue, settings.tau)
        if head.training:
            head.push(embeddings[:, 1])
        return {"contrast": contrast, **_measures(embeddings)}

    return loss


@torch.no_grad()
def _measures(embeddings: Tensor) -> dict[str, Tensor]:
    """Return alignment, and the uniformity of the first views, of embeddings ``[n, 2, e]``."""
    return {"alignment": alignment(embeddings), "uniformity": uniformity(embeddings[:, 0])}
