"""Tune a pretrained encoder by gradients; the result is kept only if validation improves.

The encoder is trained with a linear layer as usual, and the closed form is solved on what it then makes of the images. A trial without the validation
images says whether that pays, and calibrates; training then goes on with all images. The clock ends training, not a number of steps: however fast
steps are, the learning rate comes down in the minutes there are.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import count, islice

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labelwise.methods.discriminant.model import DiscriminantModel, Rehearsal
from labelwise.methods.discriminant.tune import Trial, Tune
from labelwise.support.rows import mix
from labelwise.train.augment import Augment
from labelwise.train.batches import Batch, Draw, Shard, ShuffledBatches
from labelwise.train.checkpoint import state_copy
from labelwise.train.distribution import of_main_process
from labelwise.train.networks.efficientnet import EfficientNetLite0
from labelwise.train.optimizers import Optimizer, Schedule
from labelwise.train.stages import Stage
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TensorSplit, TrainData

CROP = (0.4, 1.0)  # share of the area of an image that a random crop covers
SHRINK = 5 / 7  # side of these crops, of the side that the network sees later: twice as many steps in the same time
WARMUP = 0.1  # share of the time in which the learning rate rises
ENDLESS = 2**20  # steps between two looks at the clock


class TuningLayer(nn.Linear):
    """The layer that the encoder is trained with."""

    steps: Tensor  # that its weights were trained for

    def __init__(self, width: int, labels: int) -> None:
        super().__init__(width, labels)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


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
    """Yield a stage for each learning rate until validation improves, then one on all images; return the trials, the original encoder first.

    A trial has half of the time that is left, and the stage on all images the rest. It goes on from the trial, whose features and head
    stay as ``model.rehearsal``.
    """
    trials = [_trial(model, data, None, 0)]
    start, minutes = state_copy(model), tune.minutes
    for rate in tune.rates:
        minutes /= 2
        layer = TuningLayer(model.encoder.code_size, len(data.labels)).to(model.device)
        model.add_module("tuning", layer)
        yield from _trained(model, layer, data.train, replace(tune, minutes=minutes), rate)
        trials.append(_trial(model, data, rate, int(layer.steps)))
        if trials[-1].likelihood > trials[0].likelihood:
            model.rehearsal = Rehearsal.of(model, data)
            whole = data.train.join(data.val)
            yield from _trained(model, layer, whole, replace(tune, minutes=minutes), rate)
            model.solve(whole)
            model.sharpen(model.rehearsal.spread / model.spread(data.train.images))
            del model.tuning
            break
        del model.tuning
        model.load_state_dict(start)
    return tuple(trials)


def _trial(model: DiscriminantModel, data: TrainData, rate: float | None, steps: int) -> Trial:
    """Solve the closed form, and return how good it is on validation images."""
    likelihood, accuracy = (of_main_process(value, model.device) for value in model.solve_on(data))
    return Trial(rate=rate, likelihood=likelihood, accuracy=accuracy, steps=steps)


def _trained(
    model: DiscriminantModel, layer: TuningLayer, split: TensorSplit, tune: Tune, rate: float
) -> Generator[Stage, None, None]:
    """Yield the stage that trains the encoder together with its layer."""
    encoder = model.encoder
    encoder.tune(True)
    seen = encoder.view.seen(split.shape)[1:]
    small = max(1, round(SHRINK * seen[0])) if isinstance(encoder.backbone, EfficientNetLite0) else None
    augment = Augment(scale=CROP, flip=tune.flip, size=small)

    def loss(batch: Batch) -> dict[str, Tensor]:
        scores: Tensor = layer(encoder.as_they_come(batch.images) if small else encoder(batch.images))
        return {"choice": cross_entropy(scores.float(), batch.targets, label_smoothing=tune.smoothing)}

    yield Stage(
        name=f"tune {rate:g}",
        loss=loss,
        parameters=tuple(p for p in model.parameters() if p.requires_grad),
        batches=Passes(
            ShuffledBatches(split=split, size=tune.batch, augment=augment), tune.steps or ENDLESS, layer.steps
        ),
        epochs=1,
        seconds=None if tune.steps else 60 * tune.minutes,
        optimizer=Optimizer(name="adamw", lr=rate, weight_decay=tune.weight_decay),
        schedule=Schedule(name="onecycle", warmup=WARMUP),
    )
    encoder.tune(False)
