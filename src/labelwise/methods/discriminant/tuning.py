"""Tune a pretrained encoder with a linear layer of its own; kept only if validation images gain by it.

Each learning rate is tried. The best one is tried again with twice the steps, from the pretrained weights, as long as validation images gain and
time is left.
"""

import math
import time
from collections.abc import Callable, Generator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from labelwise.methods.discriminant.tune import Trial, Tune
from labelwise.methods.discriminant.whitening import closed_form_rows
from labelwise.methods.shared.linear import EncoderModel
from labelwise.train.augment import Augment
from labelwise.train.batches import Batch, ShuffledBatches
from labelwise.train.checkpoint import state_copy
from labelwise.train.data import TrainData
from labelwise.train.distribution import of_main_process
from labelwise.train.networks.channel_statistics import channel_statistics
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Stage

PACE = 10.0  # learning rates of the head, of the encoder's
CROP = (0.4, 1.0)  # share of the area of a picture that a random crop covers
WARMUP = 0.1  # share of the steps in which the learning rate rises


class TuningLayer(nn.Module):
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
    """Yield a stage for each try, and return the trials, the encoder as it came first; the model is left as the best was.

    ``solve`` solves what follows the encoder, which is frozen otherwise, and returns likelihood and accuracy of validation images.
    """
    features = model.encode_all(data.train.images, by=model.encoder)
    targets = data.train.targets.to(features.device)
    start = best = state_copy(model)
    trials: list[Trial] = []
    plan: list[tuple[float | None, int]] = [(None, 0), *((rate, tune.steps) for rate in tune.rates)]
    began = time.monotonic()
    while plan:
        (rate, steps), begin = plan.pop(0), time.monotonic()
        if rate is not None:
            model.load_state_dict(start)
            layer = TuningLayer(features, targets, len(data.labels))
            model.add_module("tuning", layer)
            model.encoder.tune(True)
            yield _stage(model, layer, data, tune, (rate, steps))
            model.encoder.tune(False)
            del model.tuning
        likelihood, accuracy = (of_main_process(value, model.device) for value in solve())
        if all(likelihood > other.likelihood for other in trials):
            best = state_copy(model)
        trials.append(Trial(rate=rate, likelihood=likelihood, accuracy=accuracy, steps=steps))
        now = time.monotonic()
        needed = of_main_process(now - began + 2 * (now - begin), model.device)
        if not plan and needed <= 60 * tune.minutes:
            plan = _longer(trials)
    model.load_state_dict(best)
    model.encoder.tune(False)
    solve()
    return tuple(trials)


def _longer(trials: list[Trial]) -> list[tuple[float | None, int]]:
    """Return the rate of the best trial with twice its steps; nothing where it is not among the longest."""
    best = max(trials, key=lambda trial: trial.likelihood)
    return [(best.rate, 2 * best.steps)] if best.rate and best.steps == trials[-1].steps else []


def _stage(model: EncoderModel, layer: TuningLayer, data: TrainData, tune: Tune, what: tuple[float, int]) -> Stage:
    """Return the stage that trains the encoder together with the head, with a learning rate and for so many steps."""
    rate, steps = what

    def loss(batch: Batch) -> dict[str, Tensor]:
        scores: Tensor = layer(model.encoder(batch.images))
        return {"choice": cross_entropy(scores.float(), batch.targets, label_smoothing=tune.smoothing)}

    augment = Augment(scale=CROP, flip=tune.flip)
    batches = ShuffledBatches(split=data.train, size=tune.batch, augment=augment)
    return Stage(
        name=f"tune {rate:g}" if steps == tune.steps else f"tune {rate:g} for {steps} steps",
        loss=loss,
        parameters=tuple(p for p in model.parameters() if p.requires_grad),
        batches=batches,
        epochs=math.ceil(steps / len(batches)),
        optimizer=Optimizer(name="adamw", lr=rate, weight_decay=tune.weight_decay),
        schedule=Schedule(name="onecycle", warmup=WARMUP),
    )
