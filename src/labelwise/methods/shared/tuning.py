"""Tuning: a pretrained encoder is trained further with a linear head of its own, and kept where validation images gain by it."""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from labelwise.methods.discriminant.whitening import closed_form_rows
from labelwise.methods.shared.linear import EncoderModel
from labelwise.support.errors import UsageError
from labelwise.support.settings import check_range, setting
from labelwise.train.augment import Augment
from labelwise.train.batches import Batch, ShuffledBatches
from labelwise.train.data import TrainData
from labelwise.train.distribution import of_main_process
from labelwise.train.networks.channel_statistics import channel_statistics
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Stage

PACE = 10.0  # learning rates of the head, of the encoder's
CROP = (0.4, 1.0)  # share of the area of a picture that a random crop covers
WARMUP = 0.1  # share of the steps in which the learning rate rises


@dataclass(frozen=True, kw_only=True)
class Tune:
    """Train the pretrained encoder further, and keep that only where validation pictures gain by it (--tune). For GPUs."""

    rates: tuple[float, ...] = setting(
        (3e-4, 1e-3), "Learning rates to try, each from the pretrained weights; validation images choose."
    )
    steps: int = setting(300, "Steps of each try, at least one pass; 1000 for hard labels and many images.")
    batch: int = setting(64, "Images of a step, over all processes.")
    weight_decay: float = setting(1e-2, "How fast weights shrink; rarely worth a change.")
    smoothing: float = setting(0.1, "Label smoothing; rarely worth a change.")
    flip: bool = setting(True, "Mirror half of the images; false where left and right differ, as in letters.")

    def __post_init__(self) -> None:
        check_range(self, "at least 1", "steps", "batch")
        check_range(self, "0 or more", "weight_decay")
        check_range(self, "from 0 to below 1", "smoothing")
        if not self.rates or min(self.rates) <= 0:
            raise UsageError(f'Setting "tune.rates" must be numbers above 0, at least one; given {list(self.rates)}.')


@dataclass(frozen=True, kw_only=True)
class Trial:
    """How good an encoder is on validation images."""

    rate: float | None  # it was trained with; None: it is as it came
    likelihood: float  # mean log-likelihood of their labels
    accuracy: float


class Head(nn.Module):
    """A linear layer on standardised features, which begins with their closed form.

    Weights are held at a tenth of what they are: a step of Adam is as large as the learning rate, so they move ten times as fast.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, features: Tensor, targets: Tensor, k: int) -> None:
        super().__init__()
        mean, std = channel_statistics(features, 1)
        self.register_buffer("mean", mean.float())
        self.register_buffer("std", std.float())
        standard = ((features - self.mean) / self.std).cpu().numpy()
        rows = torch.from_numpy(closed_form_rows(standard, targets.cpu().numpy(), k)).to(features.device) / PACE
        self.weight, self.bias = nn.Parameter(rows[:, :-1].clone()), nn.Parameter(rows[:, -1].clone())

    def forward(self, features: Tensor) -> Tensor:
        """Return scores ``[n, k]`` of features ``[n, d]``."""
        return PACE * linear((features - self.mean) / self.std, self.weight, self.bias)


def tuning_stages(
    model: EncoderModel, data: TrainData, tune: Tune, solve: Callable[[], tuple[float, float]]
) -> Generator[Stage, None, tuple[Trial, ...]]:
    """Yield a stage for each learning rate, and return the trials, the encoder as it came first; the model is left as the best was.

    ``solve`` solves what follows the encoder, which is frozen otherwise, and returns likelihood and accuracy of validation images.
    """
    features = model.encode_all(data.train.images, by=model.encoder)
    targets = data.train.targets.to(features.device)
    start = best = state_copy(model)
    trials: list[Trial] = []
    for rate in (None, *tune.rates):
        if rate is not None:
            model.load_state_dict(start)
            head = Head(features, targets, len(data.labels))
            model.add_module("tuning", head)
            model.encoder.tune(True)
            yield _stage(model, head, data, tune, rate)
            model.encoder.tune(False)
            del model.tuning
        likelihood, accuracy = (of_main_process(value, model.device) for value in solve())
        if all(likelihood > other.likelihood for other in trials):
            best = state_copy(model)
        trials.append(Trial(rate=rate, likelihood=likelihood, accuracy=accuracy))
    model.load_state_dict(best)
    model.encoder.tune(False)
    return tuple(trials)


def state_copy(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's state, to go back to."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def _stage(model: EncoderModel, head: Head, data: TrainData, tune: Tune, rate: float) -> Stage:
    """Return the stage that trains the encoder together with the head."""

    def loss(batch: Batch) -> dict[str, Tensor]:
        scores: Tensor = head(model.encoder(batch.images))
        return {"choice": cross_entropy(scores.float(), batch.targets, label_smoothing=tune.smoothing)}

    augment = Augment(scale=CROP, flip=tune.flip)
    batches = ShuffledBatches(split=data.train, size=tune.batch, augment=augment)
    return Stage(
        name=f"tune {rate:g}",
        loss=loss,
        parameters=tuple(p for p in model.parameters() if p.requires_grad),
        batches=batches,
        epochs=math.ceil(tune.steps / len(batches)),
        optimizer=Optimizer(name="adamw", lr=rate, weight_decay=tune.weight_decay),
        schedule=Schedule(name="onecycle", warmup=WARMUP),
    )
