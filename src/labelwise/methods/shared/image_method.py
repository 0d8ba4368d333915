"""Settings and training stages of the methods that train an image encoder."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from torch import nn

from labelwise.methods.shared.linear import Encoder, LinearModel, StartedModel
from labelwise.support.errors import UsageError
from labelwise.support.settings import check_range, setting
from labelwise.train.adversarial import Adversarial
from labelwise.train.augment import Augment
from labelwise.train.batches import ShuffledBatches
from labelwise.train.method import Method
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Loss, Stage
from labelwise.train.train_data import TrainData

PATIENCE = 2  # patience, in epochs, when training starts from the closed form
FEWEST_STEPS, SMALLEST_BATCH = 10, 8  # target number of steps in an epoch over features


@dataclass(frozen=True, kw_only=True)
class ImageMethod(Method):
    """Settings shared by the methods that train an image encoder with labelled images."""

    encoder: Encoder = setting(Encoder(), "The network that makes features of images.")
    epochs: int = setting(30, "Passes through the images, in each stage.")
    batch: int = setting(
        64, "Images of a step, over all processes; on frozen features at most a tenth of them, and at least eight."
    )
    optimizer: Optimizer = setting(Optimizer(), "The optimiser.")
    schedule: Schedule = setting(Schedule(), "The learning rate over time.")
    augment: Augment | None = setting(
        None, "Augmentation; none: a padded crop, and mirror images in colour. Frozen encoders see images unchanged."
    )
    clip: float | None = setting(5.0, "Largest gradient norm; none: no limit.")
    average: float | None = setting(
        None, "Decay of a moving average of the weights, used in the end; none: no average."
    )
    adversarial: Adversarial | None = setting(None, "Attack the images of each batch before its loss; none: do not.")

    def __post_init__(self) -> None:
        check_range(self, "at least 1", "epochs", "batch")

    def batches(self, data: TrainData) -> ShuffledBatches:
        """Return the training images in batches, augmented."""
        shape = data.train.shape
        mild = Augment() if len(shape) == 1 else Augment(padding=min(shape[1:]) // 8, flip=shape[0] == 3)
        smallest = max(SMALLEST_BATCH, len(data.train) // FEWEST_STEPS)
        size = min(self.batch, smallest) if len(shape) == 1 else self.batch
        return ShuffledBatches(split=data.train, size=size, augment=self.augment or mild)

    def encode(self, model: LinearModel, data: TrainData) -> TrainData:
        """Replace training images by the features of a frozen trunk, and fit the later layers to them."""
        if self.augment not in (None, Augment()):
            raise UsageError(
                "A frozen encoder sees each image once and unchanged, so augmentation has no effect. Leave out augment."
            )
        features = model.encoder.features(data.train.images)
        if not (isinstance(model, StartedModel) and model.started):
            model.encoder.fit_features(features)
        return replace(data, train=replace(data.train, images=features))

    def train_whole(self, model: LinearModel, data: TrainData, loss: Loss) -> Iterator[Stage]:
        """Yield the one stage of an ordinary run, then keep the statistics that adding a label needs."""
        self.begin(model, data)
        yield self.stage(self.name, model, data, loss)
        model.fit_statistics(data.train)

    def begin(self, model: LinearModel, data: TrainData) -> None:
        """Fit to the training images all that is fitted before training."""
        model.encoder.fit_normalisation(data.train.images)

    def stage(self, name: str, model: nn.Module, data: TrainData, loss: Loss) -> Stage:
        """Return a stage that trains the whole model, or the layers after a frozen trunk."""
        if isinstance(model, LinearModel) and model.encoder.frozen:
            data = self.encode(model, data)
        if self.adversarial is not None:
            loss = self.adversarial.wrap(loss, model, data)
        return Stage(
            name=name,
            loss=loss,
            parameters=tuple(p for p in model.parameters() if p.requires_grad),
            batches=self.batches(data),
            epochs=self.epochs,
            optimizer=self.optimizer,
            schedule=self.schedule,
            clip=self.clip,
            average=self.average,
            recordable=self.adversarial is None,
            threads=1 if len(data.train.shape) == 1 else None,
        )


@dataclass(frozen=True, kw_only=True)
class StartedMethod(ImageMethod):
    """Settings of methods that begin with the closed form on features that are not trained."""

    closed_form: bool = setting(
        True,
        "On frozen features, start from the closed form of discriminant; training is kept only if validation accuracy improves.",
    )

    def begin(self, model: LinearModel, data: TrainData) -> None:
        """Fit all that is fitted before training; use the closed form if only label embeddings are trained."""
        starts = isinstance(model, StartedModel) and model.can_start and self.closed_form and not data.train.multilabel
        if not starts or len(data.train.shape) > 1:
            super().begin(model, data)
        if starts:
            assert isinstance(model, StartedModel)
            model.start(data.train)

    def stage(self, name: str, model: nn.Module, data: TrainData, loss: Loss) -> Stage:
        """Return a stage; with a closed form, training stops early when validation stops improving."""
        stage = super().stage(name, model, data, loss)
        if not isinstance(model, StartedModel) or not model.started:
            return stage
        return replace(stage, validate=partial(model.likelihood, data.val), begins_well=True, patience=PATIENCE)
