"""Self-supervised pretraining of an image encoder by SimCLR or MoCo v2; every method can load the weights."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.optim.swa_utils import get_ema_multi_avg_fn

from labelwise.images.describe.labels import Labels
from labelwise.images.view import WHOLE, View
from labelwise.support.errors import DataError, StoreError, UnsupportedError, UsageError
from labelwise.support.files import read_tensors, write_tensors
from labelwise.support.settings import check_range, setting
from labelwise.train.augment import Augment
from labelwise.train.batches import Batch, ShuffledBatches
from labelwise.train.contrastive import TwoViews, alignment, contrastive_augment, momentum_contrast, nt_xent, uniformity
from labelwise.train.distribution import whole_batch
from labelwise.train.exactness import exact
from labelwise.train.loop import train
from labelwise.train.method import Method, Run
from labelwise.train.model import LabelModel, Spec
from labelwise.train.networks.encoder import Encoder
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Loss, Stage
from labelwise.train.train_data import TensorSplit, TrainData

TEMPERATURES = {"simclr": 0.5, "moco": 0.2}


@dataclass(frozen=True, kw_only=True)
class Pretrain(Method):
    """How to train an image encoder without labels, at random or from its weights on, to write to a file; it makes no classifier.

    The zero-label paper: SimCLR, ResNet-50, batch 128 (512 for CIFAR100-20), 500 epochs, Adam with a rate of 1e-3. MoCo v2 as
    published for ImageNet: a queue of 65536 and a momentum of 0.999.
    """

    name: ClassVar[str] = "pretrain"
    needs: ClassVar[tuple[str, ...]] = ()

    kind: Literal["simclr", "moco"] = setting(
        "simclr", "simclr compares the images of a batch; moco compares with a queue, so a small batch suffices."
    )
    temperature: float | None = setting(None, "Temperature of cosines; none: 0.5 for SimCLR, 0.2 for MoCo.")
    hidden: int = setting(512, "Width of the hidden layer of the projection.")
    projection_size: int = setting(128, "Size of the contrasted embeddings.")
    epochs: int = setting(100, "Passes through the images.")
    batch: int = setting(128, "Images of a step, over all processes; two views of each.")
    optimizer: Optimizer = setting(Optimizer(name="adam", lr=0.001, weight_decay=1e-06), "The optimiser.")
    schedule: Schedule = setting(Schedule(name="onecycle", warmup=0.05), "The learning rate over time.")
    augment: Augment | None = setting(None, "Augmentation; none: chosen by the images.")
    queue: int = setting(4096, "Embeddings of earlier images that MoCo compares with, at least a batch.")
    momentum: float = setting(0.99, "Decay of MoCo's copy of the encoder, per step.")
    encoder: Encoder = setting(Encoder(), "The network to train.")

    def __post_init__(self) -> None:
        if self.kind not in TEMPERATURES:
            raise UsageError(f'Unknown kind of contrast "{self.kind}". Choose simclr or moco.')
        check_range(self, "at least 1", "hidden", "projection_size", "epochs", "queue")
        check_range(self, "above 0", "temperature")
        check_range(self, "from 0 to below 1", "momentum")
        if self.batch < 2:
            raise UsageError(f'Setting "batch" must be at least 2, images to tell apart; given {self.batch}.')
        if self.kind == "moco" and self.queue < self.batch:
            raise UsageError(f"The queue takes at least one batch ({self.batch}); given {self.queue}. Make it longer.")

    @property
    def tau(self) -> float:
        """The temperature in use."""
        return TEMPERATURES[self.kind] if self.temperature is None else self.temperature

    def build(self, spec: Spec) -> "ContrastModel":
        """Return the untrained model."""
        return ContrastModel(spec, fresh_encoder(self.encoder, spec.shape, spec.view), self)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the contrast, after the normalisation of the encoder is fitted.

        It reads training images only, never targets. The log has the loss, and the alignment and uniformity of the contrasted
        embeddings.
        """
        assert isinstance(model, ContrastModel)
        images = data.train.images
        if len(images) < 2:
            raise DataError(f"Contrast needs at least two images; given {len(images)}. Add images.")
        model.encoder.fit_normalisation(images)
        if model.keys is not None:
            model.keys.load_state_dict(model.trained_network.state_dict())
        unlabelled = TensorSplit(
            images=images, targets=torch.full((len(images),), -1, device=data.train.targets.device)
        )
        views = TwoViews(self.augment or contrastive_augment(data.train.shape))
        yield Stage(
            name=self.kind,
            loss=(_simclr if self.kind == "simclr" else _moco)(self, model),
            parameters=tuple(model.trained_network.parameters()),
            batches=ShuffledBatches(split=unlabelled, size=self.batch, augment=views),
            epochs=self.epochs,
            optimizer=self.optimizer,
            schedule=self.schedule,
            logged_terms=("alignment", "uniformity"),
        )


class ContrastModel(LabelModel):
    """An image encoder with its contrastive projection; it has no labels, so it scores none."""

    queue: Tensor  # embeddings of earlier images, of unit length [m, e]; empty for SimCLR
    place: Tensor  # where in the queue the next embedding goes

    def __init__(self, spec: Spec, encoder: ImageEncoder, settings: Pretrain) -> None:
        super().__init__(spec)
        if encoder.untrained:
            raise UsageError(
                "Contrast trains an image encoder, but this one is frozen or the data are already features. "
                "Give images and leave out encoder.frozen."
            )
        d, hidden_width, size = encoder.code_size, settings.hidden, settings.projection_size
        self.encoder = encoder
        # in which embeddings are contrasted
        self.projection = nn.Sequential(
            nn.Linear(d, hidden_width),
            nn.BatchNorm1d(hidden_width),
            nn.ReLU(inplace=True),
            nn.Linear(hidden_width, size),
        )
        moco = settings.kind == "moco"
        # MoCo's copy of encoder and projection, which follows them slowly; None for SimCLR
        self.keys = copy.deepcopy(self.trained_network).requires_grad_(False) if moco else None
        self.register_buffer("queue", normalize(torch.randn(settings.queue if moco else 0, size), dim=1))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    @property
    def trained_network(self) -> nn.Sequential:
        """What is trained, which the keys follow."""
        return nn.Sequential(self.encoder, self.projection)

    def encode_images(self, images: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]``."""
        return self.encoder(images)  # type: ignore[no-any-return]

    def encode_labels(self, labels: Labels) -> Tensor:  # noqa: ARG002
        """Raise an error: there are no labels here."""
        raise UnsupportedError("An encoder trained without labels knows none. Fit a method with encoder.weights=FILE.")

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:  # noqa: ARG002
        """Raise an error: there are no labels here."""
        raise UnsupportedError("An encoder trained without labels scores none.")

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        """Move the keys' parameters towards those that are trained."""
        if self.keys is not None:
            own, source = list(self.keys.parameters()), list(self.trained_network.parameters())
            get_ema_multi_avg_fn(momentum)(own, source, 0)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def push(self, embeddings: Tensor) -> None:
        """Replace the oldest embeddings in the queue by these ``[n, e]``."""
        places = (self.place + torch.arange(len(embeddings), device=embeddings.device)) % len(self.queue)
        self.queue.index_copy_(0, places, normalize(embeddings, dim=1))
        self.place.copy_((self.place + len(embeddings)) % len(self.queue))


def _simclr(settings: Pretrain, model: ContrastModel) -> Loss:
    """Return the loss NT-Xent; both views of all images pass through the encoder at once."""

    def loss(batch: Batch) -> dict[str, Tensor]:
        views = batch.images.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        embeddings = model.projection(model.encoder(views)).float().unflatten(0, batch.images.shape[:2])
        embeddings, _ = whole_batch(embeddings, batch)
        return {"contrast": nt_xent(embeddings, settings.tau), **_measures(embeddings)}

    return loss


def _moco(settings: Pretrain, model: ContrastModel) -> Loss:
    """Return the loss of first views against a queue; in training each call moves keys and queue on."""
    keys_of = model.keys
    assert keys_of is not None

    def loss(batch: Batch) -> dict[str, Tensor]:
        first, second = (view.contiguous(memory_format=torch.channels_last) for view in batch.images.unbind(1))
        queries = model.projection(model.encoder(first)).float()
        with torch.no_grad():
            if model.training:
                model.follow(settings.momentum)
            keys = keys_of(second).float()
            embeddings, _ = whole_batch(torch.stack([queries, keys], 1), batch)
        contrast = momentum_contrast(queries, keys, model.queue, settings.tau)
        if model.training:
            model.push(embeddings[:, 1])
        return {"contrast": contrast, **_measures(embeddings)}

    return loss


@torch.no_grad()
def _measures(embeddings: Tensor) -> dict[str, Tensor]:
    """Return alignment, and the uniformity of the first views, of embeddings ``[n, 2, e]``."""
    return {"alignment": alignment(embeddings), "uniformity": uniformity(embeddings[:, 0])}


def fresh_encoder(settings: Encoder, shape: tuple[int, ...], view: View = WHOLE) -> ImageEncoder:
    """Return an encoder to train, normalised as it will be when its weights are loaded again."""
    if settings.frozen or settings.code_size is not None or len(shape) == 1:
        raise UsageError(
            "Pretraining trains the whole backbone on images: leave out encoder.frozen and encoder.code_size, and give "
            f"images, not features (given images of shape {shape})."
        )
    return settings.build(shape, view, to_publish=True)


def pretrain(images: Tensor, method: Pretrain, run: Run | None = None) -> tuple[ImageEncoder, dict[str, Any]]:
    """Return an encoder trained on images without labels, bytes ``[n, c, h, w]``, and a summary of the run."""
    split = TensorSplit(images=images, targets=torch.full((len(images),), -1))
    data = TrainData(train=split, val=split.select([]), labels=Labels(names=("unlabelled",)))
    run = run or Run()
    with exact(run.exact):
        model, summary = train(method, data, run)
    assert isinstance(model, ContrastModel)
    return model.encoder, summary


def write_encoder(path: Path, encoder: ImageEncoder, settings: Encoder, summary: Mapping[str, Any]) -> None:
    """Write the weights of an encoder's backbone, the settings it was built with and what there is to tell, as one file."""
    name = "convnet" if settings.backbone == "auto" else settings.backbone
    description = {"backbone": name, "width": settings.width, "shape": list(encoder.shape), "size": encoder.view.size}
    description |= {"mean": encoder.mean.tolist(), "std": encoder.std.tolist()}
    write_tensors(path, encoder.backbone.state_dict(), {**summary, "encoder": description})


def read_encoder(path: str | Path) -> Encoder:
    """Return the settings of an encoder with the weights that ``write_encoder`` wrote, not frozen."""
    _, document = read_tensors(Path(path))
    if "encoder" not in document:
        raise StoreError(f'"{path}" does not say which encoder its weights belong to. Set encoder.backbone yourself.')
    description = document["encoder"]
    side = description["shape"][1] if description["shape"][1] == description["shape"][2] else None
    return Encoder(
        backbone=description["backbone"],
        width=description["width"],
        weights=str(path),
        size=description["size"] or side,
    )
