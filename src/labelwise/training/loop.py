"""The one loop: a method yields stages, and every stage of every method is trained here."""

import json
import math
import time
import warnings
import zlib
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from labelwise.data.batches import Batch, Share, mix
from labelwise.data.dataset import TrainData
from labelwise.errors import Interrupted, LabelwiseError, LabelwiseWarning, UsageError
from labelwise.files import state_tensors, under
from labelwise.interruption import Note, noted
from labelwise.model import LabelModel
from labelwise.ops.finite import first_not_finite
from labelwise.training.checkpoint import Progress, RunFolder, load_optimizer, optimizer_tensors
from labelwise.training.distribution import (
    add_up,
    any_process,
    as_one_batch,
    choose_device,
    of_main_process,
    process_group,
)
from labelwise.training.optimizers import MovingAverage
from labelwise.training.progress import Bar, no_bar, progress_bar
from labelwise.training.stages import Method, Run, Stage
from labelwise.writable import check_room

# Times the weights: two checkpoints, each with best weights and two moments; a finished stage; the classifier.
ROOM = 10


CHUNK = 2**24  # numbers that a checksum reads at a time, since all images may be more than fits in memory


@dataclass
class _Session:
    """What the functions below share during one run."""

    run: Run
    model: LabelModel
    device: torch.device
    share: Share
    folder: RunFolder | None
    now: Progress
    written: float  # when the last checkpoint was, or the run began
    signals: Note = field(default_factory=Note)
    average: MovingAverage | None = None

    @property
    def main(self) -> bool:
        return self.share.rank == 0


def train(method: Method, data: TrainData, run: Run) -> tuple[LabelModel, dict[str, Any]]:
    """Return the trained model and a summary of the run (seconds, device, seed)."""
    device = choose_device(run.device)
    devices = [device] if device.type == "cuda" else []
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices))
        share = stack.enter_context(process_group(device))
        torch.manual_seed(run.seed)
        data = data.to(device)
        model = method.build(data.spec).to(device)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if run.folder and share.rank == 0:
            check_room(run.folder, ROOM * sum(tensor.nbytes for tensor in model.state_dict().values()))
        folder = RunFolder(run.folder, _identity(method, data, run)) if run.folder else None
        now = folder.start(run.resume, run.notes) if folder else Progress()
        stack.enter_context(as_one_batch(model, share))
        session = _Session(run, model, device, share, folder, now, written=time.monotonic())
        for remark in folder.remarks if folder and session.main else ():
            warnings.warn(remark, LabelwiseWarning, stacklevel=2)
        begun = time.monotonic() - now.seconds
        for number, stage in enumerate(method.stages(model, data)):
            if number < session.now.stage and folder:
                folder.read_stage(number, model)
            else:
                with noted(active=folder is not None) as session.signals:
                    _train_stage(session, stage, number, begun)
            torch.manual_seed(mix(run.seed, number))  # what is drawn between stages, also in a run that is resumed
        session.now.seconds = time.monotonic() - begun
        _check_weights(session, "at the end of training")
    model.eval()
    summary = {"seconds": round(session.now.seconds, 2), "device": device.type}
    return model, {**summary, "processes": share.world, "seed": run.seed, "torch": torch.__version__}


def _train_stage(session: _Session, stage: Stage, number: int, begun: float) -> None:
    parameters = [p for p in stage.parameters if p.requires_grad]
    if not parameters or not len(stage.batches):
        raise UsageError(f'Stage "{stage.name}" has nothing to train: no parameter or no image.')
    optimizer = stage.optimizer.build(parameters)
    best: dict[str, Tensor] = {}
    session.average = None if stage.average is None else MovingAverage(session.model, stage.average)
    if session.now.stage == number and (session.now.epoch or session.now.step):
        best = _restore(session, optimizer)
    else:
        session.now = Progress(stage=number)
    steps, now = len(stage.batches), session.now
    bar_of = progress_bar if session.run.progress and session.main else no_bar
    with bar_of(stage.name, stage.epochs, steps, now.epoch * steps + now.step) as bar:
        while now.epoch < stage.epochs and not _out_of_patience(stage, now):
            _train_epoch(session, stage, (optimizer, parameters, best), begun, bar)
            try:
                best = _end_epoch(session, stage, best, begun)
            except KeyboardInterrupt:
                _write(session, optimizer, best, begun)
                raise _interrupted(session, stage) from None
    if session.average:
        session.average.put_into(session.model)
    if best:
        session.model.load_state_dict(best)
    session.now = Progress(stage=number + 1)
    if session.folder and session.main:
        session.folder.write_stage(number, session.model)
        session.now.seconds = time.monotonic() - begun
        session.folder.write(session.now, {})


def _train_epoch(
    session: _Session,
    stage: Stage,
    state: tuple[torch.optim.Optimizer, list[nn.Parameter], dict[str, Tensor]],
    begun: float,
    bar: Bar,
) -> None:
    optimizer, parameters, best = state
    now, run, share = session.now, session.run, session.share
    sums = {name: torch.tensor(value, device=session.device) for name, value in now.sums.items()}
    session.model.train()
    seed = mix(run.seed, now.stage, now.epoch)
    for batch in stage.batches.epoch(seed, now.step, share):
        torch.manual_seed(mix(seed, now.step, 0))  # alike in all processes, and not the seed of the batch's own draws
        before = now.epoch * len(stage.batches) + now.step
        rate = stage.schedule.share(before, len(stage.batches), stage.epochs)
        for group in optimizer.param_groups:
            group["lr"] = stage.optimizer.lr * rate
        batch = replace(batch, done=before / (stage.epochs * len(stage.batches)))
        terms = _step(session, stage, batch, optimizer, parameters)
        if session.average:
            session.average.follow(session.model, before)
        for name, value in terms.items():
            sums[name] = sums.get(name, torch.zeros((), device=session.device)) + value
        now.step += 1
        bar(stage.minimised(sums), now.step, stage.optimizer.lr * rate)
        due = time.monotonic() - session.written > run.checkpoint_seconds
        if session.folder is None:
            continue
        stop = any_process(session.signals.kind is not None, session.device)
        if stop or due:
            now.sums = {name: value.item() for name, value in sums.items()}
            _write(session, optimizer, best, begun)
            session.written = time.monotonic()
        if stop:
            raise _interrupted(session, stage)
    now.sums = {name: value.item() for name, value in sums.items()}


def _interrupted(session: _Session, stage: Stage) -> Interrupted:
    """Return what a run ends with that was stopped after its checkpoint was written."""
    place = session.folder.path if session.folder else None
    return Interrupted(
        f"Stopped in stage {stage.name}, epoch {session.now.epoch + 1} of {stage.epochs}. Nothing is lost: the checkpoint is "
        f"in {place}; continue with the same command and --resume."
    )


def _step(
    session: _Session,
    stage: Stage,
    batch: Batch,
    optimizer: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
) -> dict[str, Tensor]:
    shared, weight = session.share.world > 1, len(batch.targets) / batch.draws.total
    if batch.images.ndim == 4:
        batch = replace(batch, images=batch.images.contiguous(memory_format=torch.channels_last))
    with torch.autocast(session.device.type, torch.bfloat16, enabled=session.device.type == "cuda"):
        terms = stage.loss(batch)
    loss = torch.stack([term.float() for term in stage.minimised(terms).values()]).sum()
    optimizer.zero_grad(set_to_none=True)
    (loss * weight if shared else loss).backward()  # type: ignore[no-untyped-call]
    told = {name: term.detach() * weight if shared else term.detach() for name, term in terms.items()}
    if shared:  # means over the rows of this process become those over the whole batch
        add_up([*(p.grad for p in parameters if p.grad is not None), *told.values()])
    if callable(stage.clip):
        stage.clip(parameters)
    elif stage.clip is not None:
        nn.utils.clip_grad_norm_(parameters, stage.clip)
    optimizer.step()
    return told


def _end_epoch(session: _Session, stage: Stage, best: dict[str, Tensor], begun: float) -> dict[str, Tensor]:
    now = session.now
    means = {name: value / now.step for name, value in now.sums.items()}
    terms = stage.minimised(means)
    total = sum(terms.values())
    where = f"in epoch {now.epoch + 1} of stage {stage.name}"
    if not math.isfinite(total):
        raise _diverged(session, f"The loss is {total} {where}")
    _check_weights(session, where)
    with session.average.inside(session.model) if session.average else nullcontext():
        merit = _merit(session, stage)
        if merit is not None and (now.best is None or merit > now.best):
            now.best, now.best_epoch = merit, now.epoch
            best = {name: tensor.clone() for name, tensor in session.model.state_dict().items()}
        if session.folder and session.main and session.run.snapshots and (now.epoch + 1) % session.run.snapshots == 0:
            session.folder.write_snapshot(now.stage, now.epoch + 1, session.model)
    if session.folder and session.main:
        entry = {"stage": stage.name, "stage_number": now.stage, "epoch": now.epoch, "loss": total, "terms": terms}
        entry |= {"measured": {name: means[name] for name in stage.measured}} if stage.measured else {}
        session.folder.append_log({**entry, "validation": merit, "seconds": round(time.monotonic() - begun, 3)})
    now.epoch, now.step, now.sums = now.epoch + 1, 0, {}
    return best


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


def _merit(session: _Session, stage: Stage) -> float | None:
    """Return the stage's figure of merit on validation data, None where it has none."""
    if stage.validate is None:
        return None
    session.model.eval()
    with torch.no_grad(), session.signals.let_through():
        return of_main_process(stage.validate(), session.device)


def _out_of_patience(stage: Stage, now: Progress) -> bool:
    return stage.patience is not None and now.best is not None and now.epoch - 1 - now.best_epoch >= stage.patience


def _write(session: _Session, optimizer: torch.optim.Optimizer, best: dict[str, Tensor], begun: float) -> None:
    if session.folder is None or not session.main:
        return
    _check_weights(session, f"after step {session.now.step} of epoch {session.now.epoch + 1}")
    session.now.seconds = time.monotonic() - begun
    kept = {f"best/{name}": tensor for name, tensor in best.items()}
    if session.average:
        kept |= {f"average/{name}": tensor for name, tensor in session.average.state.items()}
    tensors = {**state_tensors("model", session.model), **optimizer_tensors(optimizer), **kept}
    session.folder.write(session.now, tensors)


def _restore(session: _Session, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    if session.folder is None:
        raise AssertionError("only a run with a folder can be resumed")
    tensors = session.folder.read()
    session.model.load_state_dict(under("model", tensors))
    load_optimizer(optimizer, tensors)
    if session.average:
        session.average.load(under("average", tensors))
    return {name: tensor.to(session.device) for name, tensor in under("best", tensors).items()}


def _identity(method: Method, data: TrainData, run: Run) -> dict[str, Any]:
    """Return what must be the same for a run to be continued."""
    said = data.train.targets if data.train.truths is None else data.train.truths
    content, images = zlib.crc32(said.cpu().numpy().tobytes()), data.train.images
    for part in torch.split(images, max(1, CHUNK // math.prod(images.shape[1:]))):
        content = zlib.crc32(part.cpu().contiguous().numpy().data, content)
    settings: dict[str, Any] = json.loads(json.dumps(asdict(method)))  # type: ignore[call-overload]
    about = {"method": method.name, "seed": run.seed, "images": len(data.train), "data": content}
    return {**about, "labels": list(data.labels.names), **{f"set {key}": value for key, value in settings.items()}}
