"""Checkpoints: one safetensors file, written whole or not at all, read without unpickling anything."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from labelwise.errors import StoreError, UsageError


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


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part, even after a crash."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Write tensors and a JSON document in one safetensors file."""
    plain = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(plain, metadata={"about": json.dumps(about)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the JSON document of a file that ``write_tensors`` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            about: dict[str, Any] = json.loads((file.metadata() or {}).get("about", "{}"))
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise StoreError(f"Cannot read {path.name}: {error}. The file is damaged or is no safetensors file.") from None
    return tensors, about


def state_tensors(prefix: str, module: nn.Module) -> dict[str, Tensor]:
    """Return the module's state under names that start with ``prefix/``."""
    return {f"{prefix}/{name}": tensor for name, tensor in module.state_dict().items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix/``, without it."""
    return {name.removeprefix(f"{prefix}/"): t for name, t in tensors.items() if name.startswith(f"{prefix}/")}


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


def refuse_unfinished(folder: Path) -> None:
    """Raise an error where a folder holds a run that can be continued."""
    if (folder / "checkpoint.safetensors").exists():
        raise UsageError(
            f"An unfinished run lies in {folder}. Continue it with --resume, or delete that folder to start again."
        )


class RunFolder:
    """The folder of one training run: ``log.jsonl``, ``checkpoint.safetensors`` and each finished stage's weights."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self.identity = dict(identity)
        self.log = path / "log.jsonl"

    def start(self, resume: bool, notes: Iterable[Mapping[str, Any]] = ()) -> Progress:
        """Return where to begin; refuse to overwrite a run that can be resumed, or to resume another run."""
        checkpoint = self.path / "checkpoint.safetensors"
        if not resume:
            refuse_unfinished(self.path)
        if checkpoint.exists():
            _, about = read_tensors(checkpoint)
            self._check_identity(about["identity"])
            progress = Progress(**about["progress"])
            self._cut_log(progress)
            return progress
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomically(self.log, "".join(json.dumps(note) + "\n" for note in notes).encode())
        return Progress()

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
        """Write the checkpoint."""
        about = {"identity": self.identity, "progress": asdict(progress)}
        write_tensors(self.path / "checkpoint.safetensors", tensors, about)

    def read(self) -> dict[str, Tensor]:
        """Return the tensors of the checkpoint."""
        return read_tensors(self.path / "checkpoint.safetensors")[0]

    def write_stage(self, number: int, model: nn.Module) -> None:
        """Keep the weights at the end of a stage, so that a resumed run passes through it."""
        write_tensors(self.path / f"stage-{number}.safetensors", state_tensors("model", model), {})

    def write_snapshot(self, stage: int, epochs: int, model: nn.Module) -> None:
        """Keep the weights as they are after so many epochs of a stage."""
        path = self.path / f"snapshot-{stage}-{epochs:05d}.safetensors"
        write_tensors(path, state_tensors("model", model), {"stage": stage, "epochs": epochs})

    def snapshots(self) -> dict[int, Path]:
        """Return the files with the weights that were kept in the last stage, by the number of epochs, in order."""
        found = sorted(self.path.glob("snapshot-*-*.safetensors"), key=_numbers)
        last = _numbers(found[-1])[0] if found else 0
        return {_numbers(path)[1]: path for path in found if _numbers(path)[0] == last}

    def read_stage(self, number: int, model: nn.Module) -> None:
        """Load the weights at the end of a finished stage."""
        tensors, _ = read_tensors(self.path / f"stage-{number}.safetensors")
        model.load_state_dict(under("model", tensors))


def _numbers(snapshot: Path) -> tuple[int, int]:
    """Return the stage and the epochs that the name of a snapshot says."""
    _, stage, epochs = snapshot.stem.split("-")
    return int(stage), int(epochs)
