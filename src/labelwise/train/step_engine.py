"""How a device takes the steps of a run: eagerly, recorded and replayed, or with the image encoder compiled, too."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from labelwise.train.stages import Stage
from labelwise.train.step import FEW, RecordedStep, TrainingStep

LONG = 200  # seconds of recorded steps from which on compiling, which takes half a minute, pays by a fifth of them


class StepEngine:
    """Chooses how the steps of each stage are taken (``wanted``: ``Run.engine``), and says afterwards how they were."""

    def __init__(self, kind: str, device: torch.device, *, processes: int) -> None:
        self.wanted, self.device, self.processes = kind, device, processes
        self.words: dict[str, str] = {}  # how a GPU took the steps of each stage, by its name
        self.failed = False  # whether a step could not be recorded

    def prepare(self, step: TrainingStep, steps_left: int, model: nn.Module) -> TrainingStep | RecordedStep:
        """Return the step as the engine takes it, of a stage with this many steps left."""
        stage = step.stage
        if self.device.type != "cuda" or self.wanted == "eager":
            return step
        reasons = {
            "there are several processes": self.processes > 1,
            "gradients are accumulated": step.accumulate > 1,
            "its steps differ": not stage.recordable,
            "a recording failed before": self.failed,
            "it is short": steps_left < FEW,
        }
        for reason in (reason for reason, holds in reasons.items() if holds):
            self.words[stage.name] = f"eager: {reason}"
            return step
        recorded_step = RecordedStep(step)
        if self.wanted == "compiled":
            recorded_step.compile(model)
        return recorded_step

    def consider_compiling(self, step: TrainingStep | RecordedStep, seconds_left: float, model: nn.Module) -> None:
        """Compile the image encoder if the rest of the stage, in seconds, is long enough."""
        if self.wanted == "auto" and isinstance(step, RecordedStep) and seconds_left > LONG:
            step.compile(model)

    def record(self, stage: Stage, step: TrainingStep | RecordedStep) -> None:
        """Note how the steps of a finished stage were taken."""
        if isinstance(step, RecordedStep):
            self.words[stage.name], self.failed = step.words, step.failed


@contextmanager
def own_stream(device: torch.device, *, tries: bool = True) -> Iterator[None]:
    """While open, a GPU works in a separate stream, which recording requires; with ``tries`` it uses the fastest of several kernels."""
    if device.type != "cuda":
        yield
        return
    own, default = torch.cuda.Stream(device), torch.cuda.current_stream(device)  # type: ignore[no-untyped-call]
    own.wait_stream(default)
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, tries
    try:
        with torch.cuda.stream(own):
            yield
    finally:
        torch.backends.cudnn.benchmark = before
        default.wait_stream(own)
