"""One training step: eager, or recorded as a CUDA graph and replayed, so that no kernel waits for Python.

A step of a small network is hundreds of kernels, and launching them takes longer than running them. A recording launches all
at once. Rows, images, the learning rate and the seeds of both generators are filled in before each replay. So a replayed step
draws the same random numbers and ends with the same weights as an eager one.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from labelwise.train.batches import Batch, Draw
from labelwise.train.distribution import process_mean
from labelwise.train.networks.backbone import Network
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.recording import record, reserved_bytes
from labelwise.train.stages import Loss, Stage
from labelwise.train.tensors import BatchRng

WARM = 3  # steps of a kind that are taken as they stand before one is recorded: libraries choose kernels and make workspaces in them
KINDS = 8  # most recordings, one per phase and number of rows: each keeps its memory
FEW = 50  # a stage of fewer steps than these is not recorded: a recording takes as long as some of them
ROOM = 1.1  # times the memory that a step takes must be free before it is recorded


@dataclass(eq=False, kw_only=True)
class TrainingStep:
    """The step of a stage: from rows of a batch to updated weights."""

    stage: Stage
    loss: Loss  # that of the stage, or the same over several processes
    optimizer: torch.optim.Optimizer
    parameters: Sequence[nn.Parameter]
    device: torch.device

    def __post_init__(self) -> None:
        self.generator = torch.Generator(self.device)
        self.rate = torch.zeros((), device=self.device)  # a GPU reads the learning rate where a recording finds it
        self.steps = len(self.stage.batches)
        self.place: Callable[[int], float] = float  # where in its schedule a step stands, in steps
        self.accumulate = 1  # batches whose gradients are averaged, see ``Run.accumulate``
        self._turn = (0, 1)  # which of the batches of its step is the next, from 0, and how many these are

    def lr(self, number: int) -> float:
        """Return the learning rate of a step of the stage."""
        stage = self.stage
        return stage.optimizer.lr * stage.schedule.lr_factor(self.place(number), self.steps, stage.epochs)

    def take(self, draw: Draw, number: int) -> dict[str, Tensor]:
        """Change the weights by the stage's step of this number, and return the terms of the loss."""
        self.set_rate(number)
        self._turn = self._turn_of(number)
        progress, phase = number / (self.stage.epochs * self.steps), number % self.stage.phases
        return self.descend(draw.rows, draw.images, draw.rng(self.generator), progress=progress, phase=phase)

    def _turn_of(self, number: int) -> tuple[int, int]:
        place = number % self.steps % self.accumulate
        return place, min(self.accumulate, self.steps - number % self.steps + place)

    def ends(self, number: int) -> bool:
        """Return whether weights change with the batch of this number, not with a later one."""
        place, count = self._turn_of(number)
        return place + 1 == count

    def set_rate(self, number: int) -> None:
        """Let the optimiser take the learning rate of a step."""
        if self.device.type == "cuda":
            self.rate.fill_(self.lr(number))
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate if self.device.type == "cuda" else self.lr(number)

    def descend(
        self, rows: Tensor, images: Tensor | None, rng: BatchRng, *, progress: float, phase: int
    ) -> dict[str, Tensor]:
        """Change the weights by one step, once all its batches were seen, and return the terms of the loss."""
        batch = replace(self.stage.batches.batch(rows, images, rng), progress=progress, phase=phase)
        if batch.images.ndim == 4:
            batch = replace(batch, images=batch.images.contiguous(memory_format=torch.channels_last))
        terms = self._backward(batch)
        if self._turn[0] + 1 < self._turn[1]:
            return terms
        if callable(self.stage.clip):
            self.stage.clip(self.parameters)
        elif self.stage.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters, self.stage.clip)
        self.optimizer.step()
        return terms

    def _backward(self, batch: Batch) -> dict[str, Tensor]:
        (place, count), loss = self._turn, self.loss
        if not place:
            self.optimizer.zero_grad(set_to_none=True)
        later = place + 1 < count and isinstance(loss, DistributedDataParallel)
        with loss.no_sync() if later else nullcontext():  # type: ignore[attr-defined]
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                terms = loss(batch)
            value = torch.stack([term.float() for term in self.stage.minimised(terms).values()]).sum()
            (value / count if count > 1 else value).backward()  # type: ignore[no-untyped-call]
        return process_mean(terms)


@dataclass(eq=False)
class CapturedStep:
    """A recorded step, and where it finds and leaves what changes."""

    graph: torch.cuda.CUDAGraph
    rows: Tensor
    images: Tensor | None
    terms: dict[str, Tensor]

    def replay(self, draw: Draw) -> dict[str, Tensor]:
        """Take the step for other rows and images; the next replay overwrites the terms that it returns."""
        self.rows.copy_(draw.rows)
        if self.images is not None and draw.images is not None:
            self.images.copy_(draw.images)
        self.graph.replay()
        return self.terms


class RecordedStep:
    """A step that is recorded once its kind has been taken a few times; where it cannot be, it is taken as it stands.

    A kind is a phase and a number of rows. One of its first steps is watched: if anything in it waits for the device, a recording would fail or, worse,
    keep a value that should change. The memory that this step takes is measured too: a recording keeps separate memory, and torch does not recover
    well from a recording that runs out of it.
    """

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        self.compiled = False  # whether the image encoder is compiled, too
        self.reason: str | None = None  # why it is not recorded, or not compiled
        self.failed = False  # one step could not be recorded, so none is any more
        self._networks: list[tuple[ImageEncoder, Network]] = []  # and what their backbones are compiled to
        self._forget()

    def _forget(self) -> None:
        self._taken: dict[tuple[int, int], int] = {}
        self._captured: dict[tuple[int, int], CapturedStep] = {}
        self._needs: dict[tuple[int, int], int] = {}  # bytes that a step of a kind takes

    @property
    def is_recorded(self) -> bool:
        """Whether steps are replayed."""
        return bool(self._captured)

    @property
    def words(self) -> str:
        """How steps are taken, for people."""
        kind = ("compiled" if self.compiled else "recorded") if self._captured else "eager"
        return kind if self.reason is None else f"{kind}: {self.reason}"

    def take(self, draw: Draw, number: int) -> dict[str, Tensor]:
        """Change the weights by the stage's step of this number, and return the terms of the loss, which the next step overwrites."""
        kind = (number % self.step.stage.phases, len(draw.rows))
        times_taken = self._taken[kind] = self._taken.get(kind, 0) + 1
        captured = self._captured.get(kind)
        if captured is None and times_taken == WARM and not self.failed:
            before = reserved_bytes(self.step.device)
            with _caught_warnings() as waits:
                terms = self._as_it_stands(draw, number)
            self._needs[kind] = torch.cuda.memory_reserved(self.step.device) - before
            self.failed, self.reason = bool(waits), f"it waits for the GPU ({waits[0]})" if waits else self.reason
            return terms
        if captured is None and times_taken > WARM and not self.failed and len(self._captured) < KINDS:
            captured = self._record(draw, number, kind)
        if captured is None:
            return self._as_it_stands(draw, number)
        self.step.set_rate(number)
        self.step.generator.manual_seed(draw.seed)
        return captured.replay(draw)

    def compile(self, model: nn.Module) -> None:
        """Compile what encodes images, in the steps to come, and record them again. Other passes through the model do not change."""
        encoders = [module for module in model.modules() if isinstance(module, ImageEncoder)]
        self._networks = [(encoder, torch.compile(encoder.backbone.forward, dynamic=False)) for encoder in encoders]
        self.compiled = bool(self._networks)
        self._forget()

    def _as_it_stands(self, draw: Draw, number: int) -> dict[str, Tensor]:
        try:
            with self._with_compiled():
                return self.step.take(draw, number)
        except RuntimeError as error:
            if not self.compiled or self._taken != {(number % self.step.stage.phases, len(draw.rows)): 1}:
                raise
            # The first pass compiles, before anything is changed.
            self.compiled, self._networks, self.reason = False, [], f"it cannot be compiled ({_first_line(error)})"
            return self.step.take(draw, number)

    def _record(self, draw: Draw, number: int, kind: tuple[int, int]) -> CapturedStep | None:
        """Return the recording of a step, which is not taken by it; None where that fails."""
        step, bytes_needed = self.step, self._needs[kind]
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(step.device)[0]
        if free < ROOM * bytes_needed:
            self.failed = True
            self.reason = (
                f"a recording needs {bytes_needed / 2**20:.0f} MiB of GPU memory, and {free / 2**20:.0f} are free"
            )
            return None
        rows, images = draw.rows.clone(), None if draw.images is None else draw.images.clone()
        step.set_rate(number)
        rng, stream = draw.rng(step.generator), torch.cuda.current_stream(step.device)

        def descend() -> dict[str, Tensor]:
            return step.descend(rows, images, rng, progress=float("nan"), phase=kind[0])

        try:
            with self._with_compiled():
                graph, terms = record(descend, step.device, step.generator, stream=stream)
        except RuntimeError as error:
            self.failed, self.reason = True, _first_line(error)
            return None
        self._captured[kind] = CapturedStep(graph, rows, images, terms)
        return self._captured[kind]

    @contextmanager
    def _with_compiled(self) -> Iterator[None]:
        for encoder, compiled in self._networks:
            encoder.compiled = compiled
        try:
            yield
        finally:
            for encoder, _ in self._networks:
                encoder.compiled = None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


@contextmanager
def _caught_warnings() -> Iterator[list[str]]:
    """Yield a list that is filled with what waited for a GPU meanwhile."""
    waits: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for warning in caught:
        if "called a synchronizing" in str(warning.message):
            waits.append(f"{warning.filename.rpartition('/')[2]}:{warning.lineno}")
        elif "Synchronization debug mode" not in str(warning.message):  # that this watch is new, which torch says once
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
