"""Checkpoints of a training run, and the folder that keeps them."""

import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labelwise.data.dataset import TrainData
from labelwise.errors import StoreError, UsageError
from labelwise.files import (
    has_checksum,
    read_tensors,
    state_tensors,
    under,
    write_atomically,
    write_tensors,
)
from labelwise.training.stages import Method, Run

CHUNK = 2**24  # numbers that a checksum reads at a time, since all images may be more than fits in memory
NEWEST, BEFORE = "checkpoint.safetensors", "previous.safetensors"


@dataclass
class Progress:
    """Where training stands: the next step to take, and sums over the steps of this epoch so far."""

    stage: int = 0
    epoch: int = 0
    step: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_epoch: int = -1
    sums: dict[str, float] = field(default_factory=dict)


def run_identity(method: Method, data: TrainData, run: Run) -> dict[str, Any]:
    """Return what must be the same for a run to be continued."""
    targets = data.train.targets if data.train.truths is None else data.train.truths
    content, images = zlib.crc32(targets.cpu().numpy().tobytes()), data.train.images
    for part in torch.split(images, max(1, CHUNK // math.prod(images.shape[1:]))):
        content = zlib.crc32(part.cpu().contiguous().numpy().data, content)
    settings: dict[str, Any] = json.loads(json.dumps(asdict(method)))
    about = {"method": method.name, "seed": run.seed, "images": len(data.train), "data": content}
    return {**about, "labels": list(data.labels.names), **{f"set {key}": value for key, value in settings.items()}}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state as tensors named ``optimizer/<parameter>/<what>``."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer/{index}/{what}": torch.as_tensor(value)
        for index, entry in state.items()
        for what, value in entry.items()
        if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what ``optimizer_tensors`` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in under("optimizer", tensors).items():
        index, what = name.split("/")
        state.setdefault(int(index), {})[what] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    # Files keep no memory layout, and a fused optimiser wants that of the parameter.
    for parameter, kept in optimizer.state.items():
        for what, tensor in kept.items():
            if isinstance(tensor, Tensor) and tensor.shape == parameter.shape:
                kept[what] = torch.empty_like(parameter).copy_(tensor)


def has_checkpoint(folder: Path) -> bool:
    """Return whether a folder holds a run that can be resumed."""
    return any((folder / name).is_file() for name in (NEWEST, BEFORE))


def refuse_unfinished(folder: Path) -> None:
    """Raise an error where a folder holds a run that can be continued."""
    if has_checkpoint(folder):
        raise UsageError(
            f"An unfinished run lies in {folder}. Continue it with --resume, or delete that folder to start again."
        )


class RunFolder:
    """The folder of one training run: ``log.jsonl``, the last two checkpoints and each finished stage's weights.

    Attributes:
        remarks: what the user should know about the checkpoint that the run goes on from.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.identity = dict(identity)
        self.log = path / "log.jsonl"
        self.remarks: tuple[str, ...] = ()
        self._whole = path / NEWEST  # the newest checkpoint that is not damaged

    def start(self, resume: bool, notes: Iterable[Mapping[str, Any]] = ()) -> Progress:
        """Return where to begin; refuse to overwrite a run that can be resumed, or to resume another run."""
        if not resume:
            refuse_unfinished(self.path)
        if has_checkpoint(self.path):
            progress = self._newest_whole()
            self._cut_log(progress)
            return progress
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.log, "".join(json.dumps(note) + "\n" for note in notes).encode())
        return Progress()

    def _newest_whole(self) -> Progress:
        """Return where the newest checkpoint that can be read stands; ``remarks`` then tell what is wrong with others."""
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
            remarks = [f"{fault} The run in {self.path} goes on from {before}" for fault in faults]
            if not has_checksum(path):
                remarks.append(f"{path} has no checksum, as version 0.1 wrote it: if it is damaged, nobody can tell.")
            self.remarks = tuple(remarks)
            return progress
        raise StoreError(
            f"The run in {self.path} cannot be resumed. {' '.join(faults)} Put a copy of the folder in its place if there is "
            f"one, or delete {self.path} and start again without --resume."
        )

    def _read_whole(self, path: Path) -> tuple[dict[str, Any], Progress]:
        """Return the identity and the place of a checkpoint, if it and the finished stages before it can be read."""
        _, about = read_tensors(path)
        try:
            identity, progress = about["identity"], Progress(**about["progress"])
        except (KeyError, TypeError):
            raise StoreError(f"{path.name} is damaged: it does not say where the run stands.") from None
        for number in range(progress.stage):
            read_tensors(self._stage(number))
        return identity, progress

    def _check_identity(self, stored: Mapping[str, Any]) -> None:
        now = json.loads(json.dumps(self.identity))
        changed = [key for key in {*stored, *now} if stored.get(key) != now.get(key)]
        if changed:
            lines = "; ".join(f"{key}: was {stored.get(key)}, now {now.get(key)}" for key in sorted(changed))
            raise UsageError(
                f"The run in {self.path} was started differently, so it cannot be resumed ({lines}). "
                "Use the same settings and data, or delete that folder to start again."
            )

    def _cut_log(self, progress: Progress) -> None:
        if self.log.exists():
            lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]
            kept = [
                x for x in lines if (x.get("stage_number", -1), x.get("epoch", -1)) < (progress.stage, progress.epoch)
            ]
            write_atomically(self.log, "".join(json.dumps(x) + "\n" for x in kept).encode())

    def append_log(self, entry: Mapping[str, Any]) -> None:
        """Append one line to ``log.jsonl``."""
        with self.log.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def write(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Write the checkpoint, and keep the one before; a damaged one is not kept."""
        about = {"identity": self.identity, "progress": asdict(progress)}
        newest = self.path / NEWEST
        write_tensors(newest, tensors, about, keep=self.path / BEFORE if self._whole == newest else None)
        self._whole = newest

    def read(self) -> dict[str, Tensor]:
        """Return the tensors of the checkpoint that the run goes on from."""
        return read_tensors(self._whole)[0]

    def _stage(self, number: int) -> Path:
        return self.path / f"stage-{number}.safetensors"

    def write_stage(self, number: int, model: nn.Module) -> None:
        """Keep the weights at the end of a stage, so that a resumed run passes through it."""
        write_tensors(self._stage(number), state_tensors("model", model), {})

    def write_snapshot(self, stage: int, epochs: int, model: nn.Module) -> None:
        """Keep the weights as they are after so many epochs of a stage."""
        path = self.path / f"snapshot-{stage}-{epochs:05d}.safetensors"
        write_tensors(path, state_tensors("model", model), {"stage": stage, "epochs": epochs})

    def snapshots(self) -> dict[int, Path]:
        """Return the files with the weights that were kept in the last stage, by the number of epochs, in order."""
        paths = sorted(self.path.glob("snapshot-*-*.safetensors"), key=_numbers)
        last = _numbers(paths[-1])[0] if paths else 0
        return {_numbers(path)[1]: path for path in paths if _numbers(path)[0] == last}

    def read_stage(self, number: int, model: nn.Module) -> None:
        """Load the weights at the end of a finished stage."""
        tensors, _ = read_tensors(self._stage(number))
        model.load_state_dict(under("model", tensors))


def _numbers(snapshot: Path) -> tuple[int, int]:
    """Return the stage and the epochs that the name of a snapshot says."""
    _, stage, epochs = snapshot.stem.split("-")
    return int(stage), int(epochs)
