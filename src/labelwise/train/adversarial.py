"""Adversarial training for any method: each batch is attacked before its loss is computed.

The images of a batch are replaced by those that projected gradient ascent finds on the stage's own loss, within a ball around them.
Meanwhile the model is in eval mode and its parameters take no gradient. Eval mode, because the attack goes through the model many
times a step: batch norm must not count these passes, dropout would add noise to the gradient, and nothing else that a loss
keeps up to date in training may move. It also attacks what users will hold: a model in eval mode.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labelwise.support.errors import UsageError
from labelwise.support.rows import mix
from labelwise.support.settings import check_range, setting
from labelwise.train.batches import Batch
from labelwise.train.model import LabelModel
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.stages import Loss
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TrainData


@dataclass(frozen=True, kw_only=True)
class Adversarial:
    """Settings of the attack on training batches."""

    epsilon: float = setting(8 / 255, "How far a pixel may move, in [0, 1], before normalisation.")
    steps: int = setting(10, "Steps of gradient ascent; each costs as much as a training step.")
    step_size: float | None = setting(None, "Step as a share of epsilon; none: 2.5 / steps.")
    share: float = setting(1.0, "Share of a batch that is attacked, drawn at random.")
    loss: Literal["stage", "scores"] = setting(
        "stage", "What the attack raises: the loss of the stage, or the cross-entropy of the scores."
    )
    warmup: float = setting(
        0.0, "Share of the steps over which epsilon grows from 0, for models that would not start to learn."
    )

    def __post_init__(self) -> None:
        check_range(self, "above 0 and at most 1", "epsilon", "share")
        check_range(self, "at least 1", "steps")
        check_range(self, "above 0", "step_size")
        check_range(self, "from 0 to 1", "warmup")
        if self.loss not in ("stage", "scores"):
            raise UsageError(f'The attack raises the loss of the "stage" or of "scores"; given "{self.loss}".')

    def wrap(self, loss: Loss, model: nn.Module, data: TrainData) -> Loss:
        """Return the loss of attacked batches; a stage on features of a frozen encoder is unchanged."""
        if len(data.train.shape) == 1:
            if any(isinstance(module, ImageEncoder) for module in model.modules()):
                raise UsageError(
                    "Adversarial training changes pixels, and these are features, computed before. Train on images, with an "
                    "encoder that is not frozen, or leave adversarial out."
                )
            return loss
        objective = loss if self.loss == "stage" else scores_loss(model, data)

        def of_batch(batch: Batch) -> Mapping[str, Tensor]:
            with resting(model):
                images = self.attacked(objective, batch)
            return loss(replace(batch, images=images))

        return of_batch

    def attacked(self, loss: Loss, batch: Batch) -> Tensor:
        """Return the perturbed images of a batch; never waits for the device.

        Random numbers come from the seed of the batch's own, which do not change; each step draws the same ones.
        """
        images, seed = batch.images, batch.rng.generator.initial_seed()
        epsilon = self.epsilon * (min(1.0, batch.progress / self.warmup) if self.warmup else 1.0)
        step = epsilon * (self.step_size or 2.5 / self.steps)
        low, high = (images - epsilon).clamp_min(0), (images + epsilon).clamp_max(1)
        start = _rng(batch, seed, 1)
        x = (images + start.uniform_between(-epsilon, epsilon, *images.shape[1:])).clamp(low, high)
        with torch.enable_grad():
            for _ in range(self.steps):
                x = x.detach().requires_grad_()
                terms = loss(replace(batch, images=x, rng=_rng(batch, seed, 2)))
                total = torch.stack([term.float() for term in terms.values()]).sum()
                total = total * (len(x) / batch.rng.total)  # of a mean over the whole batch
                (gradient,) = torch.autograd.grad(total, x)
                x = (x.detach() + step * gradient.sign()).clamp(low, high)
        if self.share == 1:
            return x.detach()
        mask = start.uniform() < self.share
        return torch.where(mask.view(-1, *[1] * (images.ndim - 1)), x.detach(), images)


def scores_loss(model: nn.Module, data: TrainData) -> Loss:
    """Return the cross-entropy of a model's scores of all labels."""
    if not isinstance(model, LabelModel) or data.train.multilabel:
        reason = "has several true labels" if data.train.multilabel else "trains a part of the model, without scores"
        raise UsageError(f'This stage {reason}, so no cross-entropy can be raised. Set adversarial.loss to "stage".')
    labels = data.labels

    def of_batch(batch: Batch) -> dict[str, Tensor]:
        scores = model.score(model.encode_images(batch.images), model.encode_labels(labels))
        return {"choice": cross_entropy(scores.float(), batch.targets)}

    return of_batch


@contextmanager
def resting(model: nn.Module) -> Iterator[None]:
    """Set a model to eval mode without parameter gradients; on exit, restore everything, including buffers."""
    modes = [(module, module.training) for module in model.modules()]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        model.eval()
        for parameter in parameters:
            parameter.requires_grad_(False)
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter in parameters:
            parameter.requires_grad_(True)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _rng(batch: Batch, seed: int, purpose: int) -> BatchRng:
    """Return random numbers for the rows of a batch, repeatable per purpose."""
    generator = torch.Generator(batch.rng.device).manual_seed(mix(seed, purpose))
    return BatchRng(generator, batch.rng.rows, batch.rng.total)
