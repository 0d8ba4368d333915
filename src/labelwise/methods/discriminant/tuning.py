"""Tune a pretrained encoder through a linear layer; the result is kept only if validation improves.

Each learning rate is tried for a few steps. The best trial continues, doubling its steps within the time limit, as long as
validation improves (Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017). So nearly all
of the time goes into the weights that are kept.
"""

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass

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
CROP = (0.4, 1.0)  # share of the area of an image that a random crop covers
AVERAGE = 0.99  # share that stays of the moving average of weights at a step
WARMUP = 0.1  # share of the steps in which the learning rate rises


@dataclass(frozen=True)
class Plan:
    """What is tried next."""

    rate: float | None  # None: the encoder as it came
    steps: int
    before: int = (
        0  # steps after which the best try ended, where this one goes on; 0: it begins with the pretrained weights
    )


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
    start = best = state_copy(model)  # the best with the layer it was trained with
    trials: list[Trial] = []
    plan: list[Plan] = [Plan(None, 0), *(Plan(rate, tune.steps) for rate in tune.rates)]
    began = time.monotonic()
    while plan:
        now, begin = plan.pop(0), time.monotonic()
        if now.rate is not None:
            layer = TuningLayer(features, targets, len(data.labels))
            model.add_module("tuning", layer)
            model.load_state_dict(best if now.before else {**model.state_dict(), **start})
            model.encoder.tune(True)
            yield _stage(model, layer, data, tune, now)
            model.encoder.tune(False)
        likelihood, accuracy = (of_main_process(value, model.device) for value in solve())
        if all(likelihood > other.likelihood for other in trials):
            best = state_copy(model)
        if now.rate is not None:
            del model.tuning
        trials.append(Trial(rate=now.rate, likelihood=likelihood, accuracy=accuracy, steps=now.before + now.steps))
        left = of_main_process(60 * tune.minutes - (time.monotonic() - began), model.device)
        if not plan:
            plan = _longer(trials, now, int(left / max(time.monotonic() - begin, 1e-9) * now.steps))
    model.load_state_dict({name: value for name, value in best.items() if name in start})
    model.encoder.tune(False)
    solve()
    return tuple(trials)


def _longer(trials: list[Trial], last: Plan, most: int) -> list[Plan]:
    """Return the try that goes on where the best one ended, for twice the steps or ``most``; nothing where the last gained nothing."""
    best = max(trials, key=lambda trial: trial.likelihood)
    steps = min(2 * last.steps, most)
    gained = best is trials[-1] or not last.before
    return [Plan(best.rate, steps, before=best.steps)] if best.rate and gained and steps >= last.steps / 2 else []


def _stage(model: EncoderModel, layer: TuningLayer, data: TrainData, tune: Tune, plan: Plan) -> Stage:
    """Return the stage that trains the encoder together with the head."""
    assert plan.rate is not None

    def loss(batch: Batch) -> dict[str, Tensor]:
        scores: Tensor = layer(model.encoder(batch.images))
        return {"choice": cross_entropy(scores.float(), batch.targets, label_smoothing=tune.smoothing)}

    augment = Augment(scale=CROP, flip=tune.flip)
    batches = ShuffledBatches(split=data.train, size=tune.batch, augment=augment)
    return Stage(
        name=f"tune {plan.rate:g}, steps {plan.before} to {plan.before + plan.steps}",
        loss=loss,
        parameters=tuple(p for p in model.parameters() if p.requires_grad),
        batches=batches,
        epochs=math.ceil(plan.steps / len(batches)),
        optimizer=Optimizer(name="adamw", lr=plan.rate, weight_decay=tune.weight_decay),
        schedule=Schedule(name="onecycle", warmup=WARMUP),
        average=AVERAGE,
    )
