"""Two processes on one GPU train as one does: the weights of both, compared, in double precision and in single.

    python benchmarks/one_gpu.py FOLDER [--device cuda] [--steps 30]

Made pictures of five labels; softmax and SimCLR with a small network that has batch norm (torch's ``SyncBatchNorm`` where there are two processes on a GPU), and augmentation. NCCL takes one
process a device, so processes that share one speak by gloo. Each run is a process, or two of torchrun, of its own. In double precision what remains is what two
processes do differently; in single precision the order of sums decides last digits, which training makes more of.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Encoder, Softmax
from labelwise.support.files import read_tensors, write_tensors
from labelwise.support.processes import is_main_process
from labelwise.train.augment import Augment
from labelwise.train.distribution import choose_device, process_group
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.optimizers import Optimizer
from labelwise.train.pretraining import Pretrain

BATCH, SIDE, NAMES = 64, 32, ("a", "b", "c", "d", "e")


def pictures(count: int) -> Dataset:
    """Return noisy pictures, whose labels differ in colour and in a stripe."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(count) % len(NAMES)
    images = torch.rand(count, 3, SIDE, SIDE, generator=generator) * 0.6
    images[torch.arange(count), targets % 3] += 0.3
    for row, target in enumerate(targets.tolist()):
        images[row, :, 4 + 5 * target : 7 + 5 * target] += 0.1
    split = Split(images=(images * 255).byte(), targets=targets)
    return Dataset(name="made", labels=Labels(names=NAMES), splits={"train": split})


def train_here(out: Path, device: str, steps: int, precision: str) -> None:
    """Write the weights that both methods train to; one process, or all of torchrun."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    small = Encoder(backbone="convnet", width=16)
    change = Augment(size=SIDE, scale=(0.6, 1.0), flip=True, brightness=0.2)
    methods = {
        "softmax": Softmax(epochs=1, batch=BATCH, encoder=small, optimizer=Optimizer(lr=0.05), augment=change),
        "simclr": Pretrain(epochs=1, batch=BATCH, encoder=small, hidden=64, projection_size=32),
    }
    if precision == "double":
        torch.set_default_dtype(torch.float64)
        torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    data = training_data(pictures(BATCH * steps * 5 // 4))
    for name, method in methods.items():
        begun = time.perf_counter()
        with process_group(choose_device(device)):
            model, _ = train(method, data, Run(seed=5, device=device))
        if is_main_process():
            write_tensors(out / f"{precision} {name}", model.state_dict(), {})
            print(f"  {precision} {name}: {time.perf_counter() - begun:.1f} s", flush=True)


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return by how much two tensors differ at most; what is infinite alike in both does not."""
    unequal = one != other
    return float((one[unequal].double() - other[unequal].double()).abs().max()) if unequal.any() else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inside:
        train_here(chosen.folder, chosen.device, chosen.steps, chosen.inside)
        return
    own = [__file__, "--device", chosen.device, "--steps", str(chosen.steps)]
    two = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    for name, call in {"one": [sys.executable], "two": two}.items():
        print(f"{name} process{'es' if name == 'two' else ''}", flush=True)
        (chosen.folder / name).mkdir(parents=True, exist_ok=True)
        for precision in ("double", "single"):
            here = [*call, *own, "--inside", precision, str(chosen.folder / name)]
            subprocess.run(here, check=True, env=os.environ | {"LABELWISE_CACHE": "off"})
    rows = []
    for file in sorted((chosen.folder / "one").iterdir()):
        first, second = (read_tensors(chosen.folder / name / file.name)[0] for name in ("one", "two"))
        off = {key: difference(first[key], second[key]) for key in first}
        size = max(
            float(each[each.isfinite()].double().abs().max()) for each in first.values() if each.isfinite().any()
        )
        worst = max(off, key=lambda key: off[key])
        rows.append({"case": file.name, "largest_difference": off[worst], "of": worst, "largest_weight": size})
        print(rows[-1], flush=True)
    (chosen.folder / "weights.json").write_text(json.dumps({"device": chosen.device, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
