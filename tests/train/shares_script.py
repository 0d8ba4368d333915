"""Fits on a folder and on shards of the same images, and counts the pictures that each process decodes: in one and in two processes.

By torchrun it fits on shards alone, and ends the last process with SIGKILL in the middle of an epoch, the first time that it is started.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import ImageFile
from safetensors.torch import save_file

from labelwise.data import load
from labelwise.fitting.fit import fit
from labelwise.methods import Discriminant, Encoder, Method, Softmax
from labelwise.support.files import state_tensors, write_tensors
from labelwise.support.processes import is_main_process
from labelwise.train.batches import Batch, ShuffledBatches
from labelwise.train.distribution import process_group
from labelwise.train.method import Run
from labelwise.train.optimizers import Optimizer
from tests.changed import model_of

SIDE = 8


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def frozen(out: Path) -> Encoder:
    """An encoder that keeps its weights, which lie in a file."""
    torch.manual_seed(3)
    network = Encoder(backbone="convnet", width=4).build((3, SIDE, SIDE)).backbone
    file = out / f"weights-{rank()}.safetensors"
    save_file(network.state_dict(), file)
    return Encoder(backbone="convnet", width=4, weights=str(file), frozen=True)


@contextmanager
def counted(counts: dict[str, int], name: str, most: float = float("inf")) -> Iterator[None]:
    """While open, each picture that is decoded and each batch counts; after so many batches the process ends as if the machine had failed."""
    load_pixels, made = ImageFile.ImageFile.load, ShuffledBatches.batch
    batches = f"{name} batches"
    counts |= {name: 0, batches: 0}

    def decode(self: ImageFile.ImageFile) -> Any:
        counts[name] += bool(self.tile)
        return load_pixels(self)

    def batch(self: ShuffledBatches, *words: Any) -> Batch:
        counts[batches] += 1
        if counts[batches] > most:
            os.kill(os.getpid(), signal.SIGKILL)
        return made(self, *words)

    setattr(ImageFile.ImageFile, "load", decode)  # noqa: B010
    setattr(ShuffledBatches, "batch", batch)  # noqa: B010
    try:
        yield
    finally:
        setattr(ImageFile.ImageFile, "load", load_pixels)  # noqa: B010
        setattr(ShuffledBatches, "batch", made)  # noqa: B010


def fits(source: Path, out: Path, kill: bool = False) -> None:
    """Fit one after another, and write weights and counts."""
    counts: dict[str, int] = {}
    small, slow = Encoder(backbone="convnet", width=4), Optimizer(lr=0.05)
    cases: dict[str, tuple[str, Method]] = {
        "trained": ("shards", Softmax(epochs=3, batch=10, encoder=small, optimizer=slow))
    }
    if not kill:
        closed = Discriminant(encoder=frozen(out))
        cases |= {"folder": ("folder", closed), "shards": ("shards", closed)}
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    most = 9 if kill and first and rank() == 1 else float("inf")
    for name, (place, method) in cases.items():
        with process_group(torch.device("cpu")), counted(counts, name, most):
            data = load(source / place, size=SIDE, group="none")
            run = Run(seed=5, device="cpu", folder=out / f"{name}.run", checkpoint_seconds=0, accumulate=2)
            classifier = fit(data, method, run)
        if is_main_process():
            assert classifier.origin.train_digests is not None
            tensors = {
                "hashes": torch.from_numpy(np.array(sorted(classifier.origin.train_digests.tolist()), np.uint8)),
                **state_tensors("model", model_of(classifier)),
            }
            write_tensors(out / name, tensors, {})
    (out / f"counts-{rank()}.json").write_text(json.dumps(counts))
