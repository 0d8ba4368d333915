"""Checkpoints of a training run, and their folder."""

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labelwise.support.errors import LabelwiseWarning, StoreError, UsageError
from labelwise.support.files import read_tensors, read_text, state_tensors, with_prefix, write_tensors
from labelwise.support.processes import is_main_process
from labelwise.support.writable import write_atomically
from labelwise.train.method import Method, Run
from labelwise.train.run_folder import BEFORE, NEWEST, has_checkpoint, refuse_unfinished
from labelwise.train.train_data import TrainData

CHUNK = 2**24  # numbers hashed at a time, since all images may not fit in memory


@dataclass
class RunProgress:
    """The progress of training: the next step, and sums over this epoch so far."""

    stage: int = 0
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    began: float = 0.0  # seconds of the run at the start of this stage
    merit: float | None = None  # latest validation figure
    best: float | None = None
    best_epoch: int = -1
    sums: dict[str, float] = field(default_factory=dict)


def run_identity(method: Method, data: TrainData, run: Run) -> dict[str, Any]:
    """Return the identity of a run, which must match to continue it."""
    content, images, source = sha256(data.train.targets.cpu().numpy().tobytes()), data.train.images, data.train.source
    parts = torch.split(images, max(1, CHUNK // math.prod(images.shape[1:]))) if source is None else ()
    for piece in (part.cpu().numpy().tobytes() for part in parts) if source is None else source.digests():
        content.update(piece)
    settings: dict[str, Any] = json.loads(json.dumps(asdict(method)))
    identity = {"method": method.name, "seed": run.seed, "images": len(data.train), "data": content.hexdigest()}
    identity |= {"accumulate": run.accumulate} if run.accumulate > 1 else {}
    return {**identity, "labels": list(data.labels.names), **{f"set {key}": value for key, value in settings.items()}}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state as tensors named ``optimizer/<parameter>/<what>``."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer/{index}/{name_in_state}": torch.as_tensor(value)
        for index, entry in state.items()
        for name_in_state, value in entry.items()
        if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the result of ``optimizer_tensors``."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in with_prefix("optimizer", tensors).items():
        index, name_in_state = name.split("/")
        state.setdefault(int(index), {})[name_in_state] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    # Files lose the memory layout, which a fused optimiser takes from the parameter.
    for parameter, entries in optimizer.state.items():
        for name_in_state, tensor in entries.items():
            if isinstance(tensor, Tensor) and tensor.shape == parameter.shape:
                entries[name_in_state] = torch.empty_like(parameter).copy_(tensor)


class RunFolder:
    """The folder of one training run: ``log.jsonl``, the last two checkpoints and each finished stage's weights."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.identity = dict(identity)
        self.log = path / "log.jsonl"
        self._whole = path / NEWEST  # newest intact checkpoint
        self._writing: Future[None] | None = None

    def start(self, resume: bool, notes: Iterable[Mapping[str, Any]] = ()) -> RunProgress:
        """Return the starting point; refuse to overwrite a resumable run, or to resume a different one."""
        if not resume:
            refuse_unfinished(self.path)
        if has_checkpoint(self.path):
            progress = self._newest_whole()
            self._cut_log(progress)
            return progress
        self.path.mkdir(parents=True, exist_ok=True)
        self._start_log(notes)
        return RunProgress()

    def _newest_whole(self) -> RunProgress:
        """Return the progress of the newest intact checkpoint; warn about damaged ones."""
        faults = []
        for path in (path for name in (NEWEST, BEFORE) if (path := self.path / name).is_file()):
            try:
                identity, progress = self._read_whole(path)
            except StoreError as fault:
                faults.append(str(fault))
                continue
            self._check_identity(identity)
            self._whole = path
            before = f"the checkpoint before it: stage {progress.stage + 1}, epoch {progress.epoch + 1}."
            for damage in faults if is_main_process() else ():
                remark = f"{damage} The run in {self.path} goes on from {before}"
                warnings.warn(remark, LabelwiseWarning, stacklevel=4)
            return progress
        raise StoreError(
            f"The run in {self.path} cannot be resumed. {' '.join(faults)} Put a copy of the folder in its place if there is "
            f"one, or delete {self.path} and start again without --resume."
        )

    def _read_whole(self, path: Path) -> tuple[dict[str, Any], RunProgress]:
        """Return the identity and progress of a checkpoint, if it and all finished stages are intact."""
        _, document = read_tensors(path)
        try:
            identity, progress = document["identity"], RunProgress(**document["progress"])
        except (KeyError, TypeError):
            raise StoreError(f"{path.name} is damaged: it lacks the progress of the run.") from None
        for number in range(progress.stage):
            read_tensors(self._weights(f"stage-{number}"))
        return identity, progress

    def _check_identity(self, stored: Mapping[str, Any]) -> None:
        own = self.identity
        differences = [key for key in {*stored, *own} if stored.get(key) != own.get(key)]
        if differences:
            lines = "; ".join(f"{key}: was {stored.get(key)}, now {own.get(key)}" for key in sorted(differences))
            raise UsageError(
                f"The run in {self.path} was started differently, so it cannot be resumed ({lines}). "
                "Use the same settings and data, or delete that folder to start again."
            )

    def _cut_log(self, progress: RunProgress) -> None:
        """Remove log entries of epochs that will be repeated."""
        texts = read_text(self.log).splitlines() if self.log.exists() else []
        entries = [json.loads(text) for text in texts if text.endswith("}")]
        end = (progress.stage, progress.epoch)
        self._start_log(entry for entry in entries if (entry.get("stage_number", -1), entry.get("epoch", -1)) < end)

    def _start_log(self, entries: Iterable[Mapping[str, Any]]) -> None:
        write_atomically(self.log, "".join(json.dumps(entry) + "\n" for entry in entries).encode())

    def append_log(self, entry: Mapping[str, Any]) -> None:
        """Append one line to ``log.jsonl``."""
        with self.log.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def write_meanwhile(self, progress: RunProgress, tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint; on a GPU, a thread writes while training continues."""
        self.finish()
        if not any(tensor.is_cuda for tensor in tensors.values()):
            self.write(progress, tensors)
            return
        copies = {name: tensor.to("cpu", non_blocking=True, copy=True) for name, tensor in tensors.items()}
        copy_event, snapshot = torch.cuda.Event(), replace(progress, sums=dict(progress.sums))  # type: ignore[no-untyped-call]
        copy_event.record()

        def write() -> None:
            copy_event.synchronize()
            self._write(snapshot, copies)

        writer = ThreadPoolExecutor(1)
        self._writing = writer.submit(write)
        writer.shutdown(wait=False)

    def finish(self) -> None:
        """Wait until the checkpoint is written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def write(self, progress: RunProgress, tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint and keep the previous one, unless it is damaged."""
        self.finish()
        self._write(progress, tensors)

    def _write(self, progress: RunProgress, tensors: Mapping[str, Tensor]) -> None:
        document = {"identity": self.identity, "progress": asdict(progress)}
        newest = self.path / NEWEST
        write_tensors(newest, tensors, document, keep=self.path / BEFORE if self._whole == newest else None)
        self._whole = newest

    def read(self) -> dict[str, Tensor]:
        """Return the tensors of the checkpoint to continue from."""
        return read_tensors(self._whole)[0]

    def _weights(self, name: str) -> Path:
        return self.path / f"{name}.safetensors"

    def write_weights(self, name: str, model: nn.Module) -> None:
        """Save weights under a name: after a finished stage, which a resumed run skips, or after some epochs."""
        write_tensors(self._weights(name), state_tensors("model", model), {})

    def read_weights(self, name: str, model: nn.Module) -> None:
        """Load weights by name."""
        model.load_state_dict(with_prefix("model", read_tensors(self._weights(name))[0]))


def state_copy(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's state."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}
