"""The training loop: methods yield stages, and every stage is trained here."""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from labelwise.support.errors import Interrupted, LabelwiseError, UsageError
from labelwise.support.files import state_tensors, with_prefix
from labelwise.support.processes import deferred_signals, is_restarted
from labelwise.support.rows import mix
from labelwise.support.writable import check_room
from labelwise.train.batches import Shard
from labelwise.train.checkpoint import RunFolder, RunProgress, load_optimizer, optimizer_tensors, run_identity
from labelwise.train.distribution import (
    any_process,
    as_one_batch,
    choose_device,
    distributed,
    of_main_process,
    process_group,
)
from labelwise.train.method import Method, Run
from labelwise.train.model import LabelModel, first_not_finite
from labelwise.train.optimizers import MovingAverage
from labelwise.train.progress_bar import Bar, progress_bar
from labelwise.train.run_folder import sole_run
from labelwise.train.stages import Stage
from labelwise.train.step import WARM, RecordedStep, TrainingStep
from labelwise.train.step_engine import StepEngine, own_stream
from labelwise.train.train_data import TrainData

AHEAD = 16  # steps queued ahead of the GPU in timed stages
START = (
    WARM + 2
)  # warm-up steps before the clock starts: libraries load kernels, which took 9 seconds, and a step is recorded
# Disk space in units of the weights: two checkpoints with best weights and two moments; a finished stage; the classifier.
ROOM = 10


def train(method: Method, data: TrainData, run: Run) -> tuple[LabelModel, dict[str, Any]]:
    """Train a model; return the model and a summary of the run (seconds, device, seed)."""
    device = choose_device(run.device)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        shard = stack.enter_context(process_group(device))
        stack.enter_context(sole_run(run.folder))
        stack.enter_context(own_stream(device, tries=method.tries_kernels and not run.exact))
        torch.manual_seed(run.seed)
        data = data.to(device)
        model = method.build(replace(data.spec, view=method.view)).to(device)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if run.folder and shard.rank == 0:
            check_room(run.folder, ROOM * sum(tensor.nbytes for tensor in model.state_dict().values()))
        folder = RunFolder(run.folder, run_identity(method, data, run)) if run.folder else None
        progress = folder.start(run.resume or is_restarted(), run.notes) if folder else RunProgress()
        if folder:
            stack.callback(folder.finish)
        stack.enter_context(as_one_batch(model, shard))
        loop = _Loop(run, model, device, shard, folder, progress)
        for number, stage in enumerate(method.stages(model, data)):
            if folder and number < loop.progress.stage:
                folder.read_weights(f"stage-{number}", model)
            else:
                loop.train_stage(stage, number)
            torch.manual_seed(mix(run.seed, number))  # random numbers between stages, also in a resumed run
        loop.check_weights("at the end of training")
    model.eval()
    summary = {"seconds": round(loop.seconds, 2), "device": device.type}
    summary |= {"engine": loop.engine.words} if loop.engine.words else {}
    return model, {**summary, "processes": shard.world, "seed": run.seed, "torch": torch.__version__}


def _seed(device: torch.device, seed: int) -> None:
    """Seed torch's generator of one device; ``torch.manual_seed`` seeds all devices, which takes half a small step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(seed)


def _out_of_patience(stage: Stage, progress: RunProgress) -> bool:
    if not stage.keeps_best:
        return stage.patience is not None and progress.best_epoch < 0 and progress.epoch >= stage.patience
    return (
        stage.patience is not None
        and progress.best is not None
        and progress.epoch - 1 - progress.best_epoch >= stage.patience
    )


@dataclass
class _Loop:
    """The run and its current stage; a stage has epochs, an epoch has steps."""

    run: Run
    model: LabelModel
    device: torch.device
    shard: Shard
    folder: RunFolder | None
    progress: RunProgress

    def __post_init__(self) -> None:
        self.saved = time.monotonic()  # time of the last checkpoint, or of the start
        self.begun = self.saved - self.progress.seconds  # start time of an uninterrupted run
        self.writer = self.folder if self.shard.rank == 0 else None  # only the main process writes
        self.engine = StepEngine(self.run.engine, self.device, processes=self.shard.world)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def train_stage(self, stage: Stage, number: int) -> None:
        """Train the model, from the checkpoint if the run is resumed in this stage."""
        with deferred_signals(active=self.folder is not None) as self.signals, _threads(stage.threads):
            self._begin(stage, number)
            progress, visible = self.progress, self.run.progress and self.shard.rank == 0
            with progress_bar(stage.name, stage.epochs, self.share_done, visible=visible) as bar:
                while self.share_done < 1 and not _out_of_patience(stage, progress):
                    self._train_epoch(bar)
                    try:
                        self._end_epoch()
                    except KeyboardInterrupt:
                        if self.folder is None:
                            raise
                        raise self._stop(self.folder) from None
            self.engine.record(stage, self.step)
            if self.average:
                self.model.load_state_dict(self.average.module.state_dict())
            if self.best:
                self.model.load_state_dict(self.best)
            self.progress = RunProgress(stage=number + 1, seconds=self.seconds)
            if self.writer:
                self.writer.write_weights(f"stage-{number}", self.model)
                self.writer.write(self.progress, {})

    def _begin(self, stage: Stage, number: int) -> None:
        self.stage, self.parameters = stage, [p for p in stage.parameters if p.requires_grad]
        if not self.parameters or not len(stage.batches):
            raise UsageError(f'Stage "{stage.name}" has nothing to train: no parameter or no image.')
        resumed = self.progress.stage == number and bool(self.progress.epoch or self.progress.step)
        self.progress = self.progress if resumed else RunProgress(stage=number, began=self.seconds)
        self.optimizer = stage.optimizer.build(self.parameters)
        loss = distributed(stage.loss, self.parameters, self.shard)
        step = TrainingStep(
            stage=stage, loss=loss, optimizer=self.optimizer, parameters=self.parameters, device=self.device
        )
        step.accumulate = self.run.accumulate if stage.phases == 1 else 1
        if stage.seconds is not None:
            step.place = lambda _: self.share_done * stage.epochs * step.steps
        steps_left = (stage.epochs - self.progress.epoch) * step.steps
        self.step, self.lr, self.ends = self.engine.prepare(step, steps_left, self.model), step.lr, step.ends
        self.average: MovingAverage | None = None
        self.best: dict[str, Tensor] = {}  # best weights by validation
        if stage.average is not None:
            steps_done = self.progress.epoch * -(-step.steps // step.accumulate) + self.progress.step // step.accumulate
            self.average = MovingAverage(self.model, stage.average, steps=steps_done)
        if resumed and self.folder:
            tensors = self.folder.read()
            self.model.load_state_dict(with_prefix("model", tensors))
            load_optimizer(self.optimizer, tensors)
            if self.average:
                self.average.module.load_state_dict(with_prefix("average", tensors))
            self.best = {name: tensor.to(self.device) for name, tensor in with_prefix("best", tensors).items()}
        elif stage.begins_well:
            self._validate(-1)

    def _train_epoch(self, bar: Bar) -> None:
        progress, stage, steps, begun = (
            self.progress,
            self.stage,
            len(self.stage.batches),
            (self.progress.step, time.monotonic()),
        )
        replayed = isinstance(self.step, RecordedStep) and self.step.is_recorded  # recording takes seconds
        sums = {name: torch.tensor(value, device=self.device) for name, value in progress.sums.items()}
        seed = mix(self.run.seed, progress.stage, progress.epoch)
        self.model.train()
        for draw in stage.batches.epoch(seed, progress.step, self.shard):
            # Equal in all processes, and different from the batch's own seed.
            _seed(self.device, mix(seed, progress.step, 0))
            number = progress.epoch * steps + progress.step
            for name, value in self.step.take(draw, number).items():
                sums.setdefault(name, torch.zeros((), device=self.device)).add_(value)
            is_last = self.ends(number)
            if self.average and is_last:
                self.average.update()
            progress.step += 1
            bar(stage.minimised(sums), progress.step, self.lr(number), self.share_done)
            if self._clock_ends_epoch():
                break
            if self.folder is None or not is_last:  # gradients are not kept
                continue
            stop = any_process(self.signals.received is not None, self.device)
            if stop or time.monotonic() - self.saved > self.run.checkpoint_seconds:
                progress.sums = {name: value.item() for name, value in sums.items()}
                if stop:
                    raise self._stop(self.folder)
                self._save()
        progress.sums = {name: value.item() for name, value in sums.items()}
        # A timed stage cannot spend unknown time on compiling.
        if replayed and progress.step > begun[0] and stage.seconds is None:
            seconds = (time.monotonic() - begun[1]) * steps / (progress.step - begun[0])  # of a whole epoch
            self.engine.consider_compiling(self.step, (stage.epochs - progress.epoch - 1) * seconds, self.model)

    @property
    def share_done(self) -> float:
        """The finished share of the stage: of its time, or of its steps."""
        progress, stage, steps = self.progress, self.stage, len(self.stage.batches)
        if stage.seconds is None:
            return (progress.epoch * steps + progress.step) / (stage.epochs * steps)
        if not progress.epoch and progress.step < START:
            return 0.0
        return min(1.0, of_main_process((self.seconds - progress.began) / stage.seconds, self.device))

    def _clock_ends_epoch(self) -> bool:
        """Return whether the epoch's time is over; waits for the GPU now and then, since steps are queued ahead."""
        if self.stage.seconds is None:
            return False
        starts = not self.progress.epoch and self.progress.step == START
        if self.device.type == "cuda" and (starts or self.progress.step % AHEAD == 0):
            torch.cuda.current_stream(self.device).synchronize()
        if starts:
            self.progress.began = self.seconds
        return self.share_done * self.stage.epochs >= self.progress.epoch + 1

    def _end_epoch(self) -> None:
        """Finish an epoch: check and validate the weights, keep the best, and write the log."""
        progress, stage = self.progress, self.stage
        means = {name: value / progress.step for name, value in progress.sums.items()}
        terms = stage.minimised(means)
        loss, place = sum(terms.values()), f"in epoch {progress.epoch + 1} of stage {stage.name}"
        if not math.isfinite(loss):
            raise self._diverged(f"The loss is {loss} {place}")
        self.check_weights(place)
        with self.average.inside(self.model) if self.average else nullcontext():
            merit = self._validate(progress.epoch)
            if self.writer and self.run.snapshots and (progress.epoch + 1) % self.run.snapshots == 0:
                self.writer.write_weights(f"snapshot-{progress.stage}-{progress.epoch + 1:05d}", self.model)
        if self.writer:
            entry = {
                "stage": stage.name,
                "stage_number": progress.stage,
                "epoch": progress.epoch,
                "loss": loss,
                "terms": terms,
            }
            entry |= {"measured": {name: means[name] for name in stage.logged_terms}} if stage.logged_terms else {}
            self.writer.append_log({**entry, "validation": merit, "seconds": round(self.seconds, 3)})
        progress.epoch, progress.step, progress.sums = progress.epoch + 1, 0, {}

    def _validate(self, epoch: int) -> float | None:
        """Return the validation figure after an epoch, if any; keep the weights if it is the best."""
        if self.stage.validate is None:
            return None
        self.model.eval()
        with torch.no_grad(), self.signals.interruptible():
            merit = self.progress.merit = of_main_process(self.stage.validate(), self.device)
        if self.progress.best is None or merit > self.progress.best:
            self.progress.best, self.progress.best_epoch = merit, epoch
            if self.stage.keeps_best:
                self.best = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return merit

    def _save(self) -> None:
        self.saved = time.monotonic()
        if self.writer is None:
            return
        self.check_weights(f"after step {self.progress.step} of epoch {self.progress.epoch + 1}")
        self.progress.seconds = self.seconds
        tensors = {**state_tensors("model", self.model), **optimizer_tensors(self.optimizer)}
        tensors |= {f"best/{name}": tensor for name, tensor in self.best.items()}
        tensors |= state_tensors("average", self.average.module) if self.average else {}
        self.writer.write_meanwhile(self.progress, tensors)

    def _stop(self, folder: RunFolder) -> Interrupted:
        """Write a checkpoint, and return the exception that ends the run."""
        self._save()
        folder.finish()
        return Interrupted(
            f"Stopped in stage {self.stage.name}, epoch {self.progress.epoch + 1} of {self.stage.epochs}. Nothing is lost: the "
            f"checkpoint is in {folder.path}; continue with the same command and --resume."
        )

    def check_weights(self, place: str) -> None:
        """Raise an error if a weight is not finite, before it is kept or saved."""
        bad = first_not_finite(self.model.state_dict())
        if bad is not None:
            raise self._diverged(f'"{bad}" of the model is not finite (NaN or infinity) {place}')

    def _diverged(self, subject: str) -> LabelwiseError:
        """Return the error of a diverged run; earlier checkpoints remain."""
        remains = f" The last checkpoint is in {self.folder.path}." if self.folder else ""
        return LabelwiseError(
            f"{subject}: training diverged. Lower the learning rate (--set optimizer.lr=...) or check the data for extreme "
            f"values, then start again.{remains}"
        )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Set torch's number of CPU threads while open; None leaves it unchanged."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
