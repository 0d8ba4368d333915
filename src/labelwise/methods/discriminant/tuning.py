"""Tune a pretrained encoder by gradients through its closed form; the result is kept only if validation improves.

The classifier in closed form is linear in embeddings of unit length. It becomes a linear layer that is trained together with the encoder, so training
begins where the closed form ends, and at its end the closed form is solved again. The clock ends training, not a number of steps: however fast
steps are, the learning rate comes down in the minutes there are. Nothing is compiled, and no minute goes into tries that are thrown away.
"""

import math
import time
from collections.abc import Generator, Iterator
from itertools import count, islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from labelwise.core.arrays import softmax
from labelwise.core.platt import fit_temperature
from labelwise.methods.discriminant.model import DiscriminantModel
from labelwise.methods.discriminant.tune import Trial, Tune
from labelwise.methods.shared.linear import array
from labelwise.support.rows import mix
from labelwise.train.augment import Augment
from labelwise.train.batches import Batch, Draw, Shard, ShuffledBatches
from labelwise.train.checkpoint import state_copy
from labelwise.train.distribution import of_main_process
from labelwise.train.model import as_float
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Stage
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TensorSplit, TrainData

PACE = 3.0  # learning rates of the layer, of the encoder's: embeddings have unit length, so its weights are large
CROP = (0.4, 1.0)  # share of the area of an image that a random crop covers
AVERAGE = 0.99  # share that stays of the moving average of weights at a step
WARMUP = 0.1  # share of the time in which the learning rate rises
CHECKS = 10  # times that validation images are looked at while it trains with a rate
PATIENCE = 5  # of these, after which training stops where none was as good as the start
LEAST = 0.1  # share of the minutes in which another rate may start
LOST = (
    0.8,
    1.0,
)  # share and amount of the likelihood above chance whose loss shows that the encoder collapsed
ENDLESS = 2**20  # steps between two looks at the clock


class TuningLayer(nn.Module):
    """The closed form as a linear layer on embeddings ``[n, d]`` of unit length.

    Weights are held at a fraction of what they are: a step of Adam is as large as the learning rate, so they move ``PACE`` times as fast.
    """

    steps: Tensor  # that these weights were trained for

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(rows[:, :-1] / PACE), nn.Parameter(rows[:, -1] / PACE)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return scores ``[n, k]``, in single precision."""
        with torch.autocast(embeddings.device.type, enabled=False):
            return PACE * linear(embeddings.float(), self.weight, self.bias)


class Passes:
    """Batches pass after pass, ``length`` of them an epoch; ``taken`` counts them."""

    def __init__(self, batches: ShuffledBatches, length: int, taken: Tensor) -> None:
        self.batches, self.length, self.taken = batches, length, taken

    def __len__(self) -> int:
        return self.length if len(self.batches) else 0

    def epoch(self, seed: int, start: int, shard: Shard) -> Iterator[Draw]:
        """Yield the rows and draws of the batches of one epoch, from step ``start`` on."""
        first, skipped = divmod(start, len(self.batches))
        passes = (
            self.batches.epoch(mix(seed, number), 0 if number > first else skipped, shard) for number in count(first)
        )
        for draw in islice((draw for each in passes for draw in each), self.length - start):
            self.taken.add_(1)
            yield draw

    def batch(self, rows: Tensor, images: Tensor | None, rng: BatchRng) -> Batch:
        """Return the batch, made on the device without synchronising."""
        return self.batches.batch(rows, images, rng)


def tuning_stages(model: DiscriminantModel, data: TrainData, tune: Tune) -> Generator[Stage, None, tuple[Trial, ...]]:
    """Yield a stage for each learning rate, and return the trials, the original encoder first; the model ends with the best weights.

    A stage ends early where the encoder collapses or validation does not improve. The next rate then has the time that is left, from the start.
    """
    began = time.monotonic()
    trials = [_trial(model, data, None, 0)]
    start = best = state_copy(model)
    rows = torch.from_numpy(model.export_head().rows).to(model.device)
    for rate in tune.rates:
        left = of_main_process(60 * tune.minutes - (time.monotonic() - began), model.device)
        done = best is not start if tune.steps else left < LEAST * 60 * tune.minutes
        if done and len(trials) > 1:
            break
        model.load_state_dict(start)
        layer = TuningLayer(rows)
        model.add_module("tuning", layer)
        model.encoder.tune(True)
        yield _stage(model, layer, data, tune, rate, left)
        model.encoder.tune(False)
        del model.tuning
        trials.append(_trial(model, data, rate, int(layer.steps)))
        if trials[-1].likelihood > max(trial.likelihood for trial in trials[:-1]):
            best = state_copy(model)
    if trials[-1].likelihood < max(trial.likelihood for trial in trials):
        model.load_state_dict(best)
        model.encoder.tune(False)
        model.solve_on(data)
    return tuple(trials)


def _trial(model: DiscriminantModel, data: TrainData, rate: float | None, steps: int) -> Trial:
    """Solve the closed form, and return how good it is on validation images."""
    likelihood, accuracy = (of_main_process(value, model.device) for value in model.solve_on(data))
    return Trial(rate=rate, likelihood=likelihood, accuracy=accuracy, steps=steps)


def _stage(
    model: DiscriminantModel, layer: TuningLayer, data: TrainData, tune: Tune, rate: float, seconds: float
) -> Stage:
    """Return the stage that trains the encoder together with the layer."""
    length = math.ceil(tune.steps / CHECKS) if tune.steps else ENDLESS
    shuffled = ShuffledBatches(split=data.train, size=tune.batch, augment=Augment(scale=CROP, flip=tune.flip))
    batches = Passes(shuffled, length, layer.steps)
    chance = -math.log(len(data.labels))

    def loss(batch: Batch) -> dict[str, Tensor]:
        scores: Tensor = layer(model.finish(model.encoder(batch.images).float()))
        return {"choice": cross_entropy(scores, batch.targets, label_smoothing=tune.smoothing)}

    begin = _likelihood(model, layer, data.val, tune.batch)

    def validate() -> float:
        likelihood = _likelihood(model, layer, data.val, tune.batch)
        collapsed = begin - likelihood > max(LOST[0] * (begin - chance), LOST[1])
        return -math.inf if collapsed else likelihood

    return Stage(
        name=f"tune {rate:g}",
        loss=loss,
        parameters=tuple(p for p in model.parameters() if p.requires_grad),
        batches=batches,
        epochs=math.ceil(tune.steps / length) if tune.steps else CHECKS,
        seconds=None if tune.steps else max(seconds, 1.0),
        optimizer=Optimizer(name="adamw", lr=rate, weight_decay=tune.weight_decay),
        schedule=Schedule(name="onecycle", warmup=WARMUP),
        average=AVERAGE,
        validate=validate,
        begins_well=True,
        patience=PATIENCE,
        keeps_best=False,
    )


@torch.no_grad()
def _likelihood(model: DiscriminantModel, layer: TuningLayer, split: TensorSplit, batch: int) -> float:
    """Return the mean log-likelihood of validation images by the layer, as sure as suits them best.

    The first images fill the last batch: a GPU takes seconds to choose kernels for another number of images.
    """
    model.eval()
    rows = torch.arange(-(-len(split) // batch) * batch, device=split.images.device) % len(split)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=model.device.type == "cuda"):
        pieces = (as_float(split.images[some].to(model.device)) for some in torch.split(rows, batch))
        scores = array(torch.cat([layer(model.finish(model.encoder(each).float())) for each in pieces]))[: len(split)]
    targets = array(split.targets)
    shares = softmax(scores / fit_temperature(scores, targets))[np.arange(len(targets)), targets]
    return float(np.log(np.maximum(shares, 1e-30)).mean())
