"""The one loop: a method yields stages, and every stage of every method is trained here."""

import math
import time
import warnings
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from labelwise.data.batches import Batch, Shard, mix
from labelwise.data.dataset import TrainData
from labelwise.errors import Interrupted, LabelwiseError, LabelwiseWarning, UsageError
from labelwise.files import state_tensors, under
from labelwise.interruption import Note, noted
from labelwise.model import LabelModel
from labelwise.ops.finite import first_not_finite
from labelwise.training.checkpoint import Progress, RunFolder, load_optimizer, optimizer_tensors, run_identity
from labelwise.training.distribution import (
    any_process,
    as_one_batch,
    choose_device,
    distributed,
    of_main_process,
    process_group,
    process_mean,
)
from labelwise.training.optimizers import MovingAverage
from labelwise.training.progress import Bar, no_bar, progress_bar
from labelwise.training.stages import Loss, Method, Run, Stage
from labelwise.writable import check_room

# Times the weights: two checkpoints, each with best weights and two moments; a finished stage; the classifier.
ROOM = 10


@dataclass
class _Session:
    """What the functions below share during one run."""

    run: Run
    model: LabelModel
    device: torch.device
    shard: Shard
    folder: RunFolder | None
    now: Progress
    begun: float = field(init=False)  # when the run would have begun, had it never been interrupted
    saved: float = field(init=False)  # when the last checkpoint was written, or the run began
    signals: Note = field(default_factory=Note)

    def __post_init__(self) -> None:
        self.saved = time.monotonic()
        self.begun = self.saved - self.now.seconds

    @property
    def main(self) -> bool:
        return self.shard.rank == 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun


@dataclass
class _State:
    """What one stage changes beside the weights of the model."""

    stage: Stage
    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    loss: Loss
    average: MovingAverage | None
    best: dict[str, Tensor] = field(default_factory=dict)


def train(method: Method, data: TrainData, run: Run) -> tuple[LabelModel, dict[str, Any]]:
    """Return the trained model and a summary of the run (seconds, device, seed)."""
    device = choose_device(run.device)
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
        shard = stack.enter_context(process_group(device))
        torch.manual_seed(run.seed)
        data = data.to(device)
        model = method.build(replace(data.spec, view=method.view)).to(device)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if run.folder and shard.rank == 0:
            check_room(run.folder, ROOM * sum(tensor.nbytes for tensor in model.state_dict().values()))
        folder = RunFolder(run.folder, run_identity(method, data, run)) if run.folder else None
        now = folder.start(run.resume, run.notes) if folder else Progress()
        stack.enter_context(as_one_batch(model, shard))
        session = _Session(run, model, device, shard, folder, now)
        for remark in folder.remarks if folder and session.main else ():
            warnings.warn(remark, LabelwiseWarning, stacklevel=2)
        for number, stage in enumerate(method.stages(model, data)):
            if number < session.now.stage and folder:
                folder.read_stage(number, model)
            else:
                with noted(active=folder is not None) as session.signals:
                    _train_stage(session, stage, number)
            torch.manual_seed(mix(run.seed, number))  # what is drawn between stages, also in a run that is resumed
        _check_weights(session, "at the end of training")
    model.eval()
    summary = {"seconds": round(session.seconds, 2), "device": device.type}
    return model, {**summary, "processes": shard.world, "seed": run.seed, "torch": torch.__version__}


def _train_stage(session: _Session, stage: Stage, number: int) -> None:
    state = _begin_stage(session, stage, number)
    now, steps = session.now, len(stage.batches)
    bar_of = progress_bar if session.run.progress and session.main else no_bar
    with bar_of(stage.name, stage.epochs, steps, now.epoch * steps + now.step) as bar:
        while now.epoch < stage.epochs and not _out_of_patience(stage, now):
            _train_epoch(session, state, bar)
            try:
                _end_epoch(session, state)
            except KeyboardInterrupt:
                if session.folder is None:
                    raise
                _save(session, session.folder, state)
                raise _interrupted(session.folder, stage, now) from None
    if state.average:
        session.model.load_state_dict(state.average.module.state_dict())
    if state.best:
        session.model.load_state_dict(state.best)
    session.now = Progress(stage=number + 1)
    if session.folder and session.main:
        session.folder.write_stage(number, session.model)
        session.now.seconds = session.seconds
        session.folder.write(session.now, {})


def _begin_stage(session: _Session, stage: Stage, number: int) -> _State:
    """Return the state to train from: of a new stage, or of the checkpoint where the run is resumed within it."""
    model, parameters = session.model, [p for p in stage.parameters if p.requires_grad]
    if not parameters or not len(stage.batches):
        raise UsageError(f'Stage "{stage.name}" has nothing to train: no parameter or no image.')
    resumed = session.now.stage == number and bool(session.now.epoch or session.now.step)
    if not resumed:
        session.now = Progress(stage=number)
    average, done = None, session.now.epoch * len(stage.batches) + session.now.step
    if stage.average is not None:
        average = MovingAverage(model, stage.average, infinite=model.infinite, steps=done)
    optimizer = stage.optimizer.build(parameters)
    state = _State(stage, parameters, optimizer, distributed(stage.loss, parameters, session.shard), average)
    if resumed:
        _restore(session, state)
    return state


def _train_epoch(session: _Session, state: _State, bar: Bar) -> None:
    now, run, stage = session.now, session.run, state.stage
    sums = {name: torch.tensor(value, device=session.device) for name, value in now.sums.items()}
    seed, steps = mix(run.seed, now.stage, now.epoch), len(stage.batches)
    session.model.train()
    for batch in stage.batches.epoch(seed, now.step, session.shard):
        torch.manual_seed(mix(seed, now.step, 0))  # alike in all processes, and not the seed of the batch's own rng
        done = now.epoch * steps + now.step
        lr = stage.optimizer.lr * stage.schedule.lr_factor(done, steps, stage.epochs)
        for group in state.optimizer.param_groups:
            group["lr"] = lr
        terms = _step(session, state, replace(batch, done=done / (stage.epochs * steps)))
        for name, value in terms.items():
            sums[name] = sums.get(name, torch.zeros((), device=session.device)) + value
        now.step += 1
        bar(stage.minimised(sums), now.step, lr)
        if (folder := session.folder) is None:
            continue
        stop = any_process(session.signals.kind is not None, session.device)
        if stop or time.monotonic() - session.saved > run.checkpoint_seconds:
            now.sums = {name: value.item() for name, value in sums.items()}
            _save(session, folder, state)
        if stop:
            raise _interrupted(folder, stage, now)
    now.sums = {name: value.item() for name, value in sums.items()}


def _step(session: _Session, state: _State, batch: Batch) -> dict[str, Tensor]:
    """Change the weights by one step, and return the terms of the loss."""
    stage = state.stage
    if batch.images.ndim == 4:
        batch = replace(batch, images=batch.images.contiguous(memory_format=torch.channels_last))
    with torch.autocast(session.device.type, torch.bfloat16, enabled=session.device.type == "cuda"):
        terms = state.loss(batch)
    loss = torch.stack([term.float() for term in stage.minimised(terms).values()]).sum()
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    if callable(stage.clip):
        stage.clip(state.parameters)
    elif stage.clip is not None:
        nn.utils.clip_grad_norm_(state.parameters, stage.clip)
    state.optimizer.step()
    if state.average:
        state.average.update_parameters(session.model)
    return process_mean(terms)


def _end_epoch(session: _Session, state: _State) -> None:
    """Check and validate the weights after an epoch, keep them where they are the best so far, and write the log."""
    now, stage, model = session.now, state.stage, session.model
    means = {name: value / now.step for name, value in now.sums.items()}
    terms = stage.minimised(means)
    loss = sum(terms.values())
    where = f"in epoch {now.epoch + 1} of stage {stage.name}"
    if not math.isfinite(loss):
        raise _diverged(session, f"The loss is {loss} {where}")
    _check_weights(session, where)
    with state.average.inside(model) if state.average else nullcontext():
        merit = _validate(session, stage)
        if merit is not None and (now.best is None or merit > now.best):
            now.best, now.best_epoch = merit, now.epoch
            state.best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        if session.folder and session.main and session.run.snapshots and (now.epoch + 1) % session.run.snapshots == 0:
            session.folder.write_snapshot(now.stage, now.epoch + 1, model)
    if session.folder and session.main:
        entry = {"stage": stage.name, "stage_number": now.stage, "epoch": now.epoch, "loss": loss, "terms": terms}
        entry |= {"measured": {name: means[name] for name in stage.measured}} if stage.measured else {}
        session.folder.append_log({**entry, "validation": merit, "seconds": round(session.seconds, 3)})
    now.epoch, now.step, now.sums = now.epoch + 1, 0, {}


def _validate(session: _Session, stage: Stage) -> float | None:
    """Return the stage's figure of merit on validation data, None where it has none."""
    if stage.validate is None:
        return None
    session.model.eval()
    with torch.no_grad(), session.signals.let_through():
        return of_main_process(stage.validate(), session.device)


def _out_of_patience(stage: Stage, now: Progress) -> bool:
    return stage.patience is not None and now.best is not None and now.epoch - 1 - now.best_epoch >= stage.patience


def _save(session: _Session, folder: RunFolder, state: _State) -> None:
    """Write a checkpoint."""
    session.saved = time.monotonic()
    if not session.main:
        return
    _check_weights(session, f"after step {session.now.step} of epoch {session.now.epoch + 1}")
    session.now.seconds = session.seconds
    tensors = {**state_tensors("model", session.model), **optimizer_tensors(state.optimizer)}
    tensors |= {f"best/{name}": tensor for name, tensor in state.best.items()}
    tensors |= state_tensors("average", state.average.module) if state.average else {}
    folder.write(session.now, tensors)


def _restore(session: _Session, state: _State) -> None:
    """Take model and state from the checkpoint."""
    assert session.folder is not None, "only a run with a folder can be resumed"
    tensors = session.folder.read()
    session.model.load_state_dict(under("model", tensors))
    load_optimizer(state.optimizer, tensors)
    if state.average:
        state.average.module.load_state_dict(under("average", tensors))
    state.best = {name: tensor.to(session.device) for name, tensor in under("best", tensors).items()}


def _interrupted(folder: RunFolder, stage: Stage, now: Progress) -> Interrupted:
    """Return what a run ends with that was stopped after its checkpoint was written."""
    return Interrupted(
        f"Stopped in stage {stage.name}, epoch {now.epoch + 1} of {stage.epochs}. Nothing is lost: the checkpoint is "
        f"in {folder.path}; continue with the same command and --resume."
    )


def _check_weights(session: _Session, where: str) -> None:
    """Raise an error where the model holds what is not a finite number, so that it is neither kept nor saved."""
    bad = first_not_finite(session.model.state_dict(), session.model.infinite)
    if bad is not None:
        raise _diverged(session, f'"{bad}" of the model is not finite (NaN or infinity) {where}')


def _diverged(session: _Session, what: str) -> LabelwiseError:
    """Return the error of a run that went wrong; what it kept before stays."""
    kept = f" What was kept before lies in {session.folder.path}." if session.folder else ""
    return LabelwiseError(
        f"{what}: training diverged. Lower the learning rate (--set optimizer.lr=...), or check the data for extreme "
        f"values, and start again.{kept}"
    )
