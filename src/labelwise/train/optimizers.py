"""Settings of an optimiser and of its learning rate over time; plain values, so that a recipe can state them."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from labelwise.support.errors import UsageError
from labelwise.support.settings import setting
from labelwise.train.muon import Muon


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Which optimiser, and its settings; ``lr`` is the largest rate the schedule reaches."""

    name: Literal["sgd", "adam", "adamw", "muon"] = setting(
        "sgd", "sgd, adam, adamw (transformers) or muon (convolutions trained from scratch in few epochs)."
    )
    lr: float = setting(0.1, "Largest learning rate; use a third if the loss jumps, three times if it hardly falls.")
    momentum: float = setting(0.9, "Momentum of sgd and muon; rarely worth a change.")
    nesterov: bool = setting(True, "Nesterov momentum for sgd and muon; rarely worth a change.")
    weight_decay: float = setting(5e-4, "How fast weights shrink; raise it if training is much better than validation.")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the torch optimiser of these parameters, fused where they lie on a GPU."""
        kinds: dict[str, Callable[..., torch.optim.Optimizer]]
        kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "muon": Muon}
        if self.name not in kinds:
            raise UsageError(f'Unknown optimiser "{self.name}". Choose sgd, adam, adamw or muon.')
        weights = list(parameters)
        fused = bool(weights) and all(p.is_cuda for p in weights)
        own: dict[str, bool | float] = {"capturable": fused}  # its count of steps lies where a recorded step finds it
        if self.name in ("sgd", "muon"):
            own = {"momentum": self.momentum, "nesterov": self.nesterov and self.momentum > 0}
        return kinds[self.name](weights, lr=self.lr, weight_decay=self.weight_decay, fused=fused, **own)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How the learning rate changes: a pure function of the step, so a resumed run needs no state of it."""

    name: Literal["constant", "step", "cosine", "onecycle", "noam"] = setting(
        "onecycle", "constant, step, cosine, onecycle (up, then down to almost zero) or noam (up, then 1 / sqrt(step))."
    )
    drops: tuple[int, ...] = setting((), "Epochs at which the rate of step falls.")
    factor: float = setting(0.2, "What step multiplies the rate by at each drop.")
    warmup: float = setting(0.3, "Share of the run in which the rate of onecycle rises.")
    steps: int = setting(4_000, "Steps in which the rate of noam rises.")

    def __post_init__(self) -> None:
        if self.name not in ("constant", "step", "cosine", "onecycle", "noam"):
            raise UsageError(f'Unknown schedule "{self.name}". Choose constant, step, cosine, onecycle or noam.')
        if self.steps < 1:
            raise UsageError(f"The way up of a schedule takes at least one step; given {self.steps}.")
        if not 0 <= self.warmup < 1:
            raise UsageError(f"The warm-up is a share of the run from 0 to below 1; given {self.warmup}.")

    def lr_factor(self, step: float, steps_per_epoch: int, epochs: int) -> float:
        """Return what the full learning rate is multiplied by at a step of the run."""
        total = steps_per_epoch * epochs
        if self.name == "step":
            return self.factor ** sum(step >= drop * steps_per_epoch for drop in self.drops)
        if self.name == "noam":
            return min((step + 1) / self.steps, math.sqrt(self.steps / (step + 1)))
        if self.name == "cosine":
            return _interpolate(1.0, 0.0, step / total)
        if self.name == "onecycle":
            peak = self.warmup * total - 1
            if step < peak:
                return _interpolate(1 / 25, 1.0, step / peak)
            return _interpolate(1.0, 1 / 25e4, min(1.0, (step - peak) / max(1e-9, total - 1 - peak)))
        return 1.0


class MovingAverage:
    """A moving average of a model's weights and statistics, which often answers better than the last step.

    It begins at the weights there are. Early on less of it stays, at most ``n / (9 + n)`` at step n, so that the start of
    training is soon forgotten. Whole numbers are the model's own. (Torch's ``AveragedModel`` waits for a GPU at each step.)
    """

    def __init__(self, model: nn.Module, decay: float, *, steps: int = 0) -> None:
        if not 0 <= decay < 1:
            raise UsageError(f"The share of an average that stays must be from 0 to below 1; given {decay}.")
        self.module = deepcopy(model)
        self.decay, self.steps = decay, steps
        own, target = (
            [tensor.detach() for tensor in chain(m.parameters(), m.buffers()) if tensor.is_floating_point()]
            for m in (self.module, model)
        )
        self._numbers = own, target
        self._counts = [
            (mine, tensor)
            for mine, tensor in zip(self.module.buffers(), model.buffers(), strict=True)
            if not tensor.is_floating_point()
        ]

    def update(self) -> None:
        """Move on to the weights that the model has now."""
        self.steps += 1
        share = min(self.decay, self.steps / (9 + self.steps))
        get_ema_multi_avg_fn(share)(*self._numbers, self.steps)  # type: ignore[no-untyped-call]
        for own, newest in self._counts:
            own.copy_(newest)

    @contextmanager
    def inside(self, model: nn.Module) -> Iterator[None]:
        """Give a model the average as its weights for a while."""
        own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(self.module.state_dict())
        try:
            yield
        finally:
            model.load_state_dict(own)


def _interpolate(start: float, end: float, share: float) -> float:
    """Return the value a share of the way along half a cosine wave."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
