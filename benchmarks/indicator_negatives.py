"""What negatives cost: epochs of softmax, indicator and the paper's literal form, in one run.

    python benchmarks/indicator_negatives.py [--device cpu|cuda] [--json FILE]

The literal form repeats each image N + 1 times. On a CPU: the small convnet on 48 x 48 pictures. On a GPU: ResNet-18 on
CIFAR-shaped pictures, batch 256. Pictures are random bytes: the cost does not depend on what they show. Methods take
turns, a few epochs each, and the median epoch counts; memory is the largest the process (CPU) or the GPU held.
"""

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Encoder, ImageMethod, Indicator, Softmax
from labelwise.methods.indicator.method import IndicatorModel
from labelwise.methods.indicator.negatives import sample_wrong_labels
from labelwise.train.batches import Batch
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.train_data import TensorSplit, TrainData


@dataclass(frozen=True, kw_only=True)
class Literal(Indicator):
    """The paper's own way: every image once for its label and once for each negative."""

    def loss(self, model: IndicatorModel, negatives: int) -> Callable[[Batch], dict[str, Tensor]]:
        """Return the loss on repeated images."""

        def of_batch(batch: Batch) -> dict[str, Tensor]:
            k = len(model.spec.labels)
            wrong = sample_wrong_labels(batch.rng.uniform(k), batch.targets, min(negatives, k - 1))
            asked = torch.cat([batch.targets[:, None], wrong], 1)
            times = asked.shape[1]
            codes = model.encode_images(batch.images.repeat_interleave(times, 0))
            logits = model.predictor(codes * model.label_encoder(asked.flatten()))[:, 0].float()
            truth = (torch.arange(times, device=logits.device) == 0).float().repeat(len(batch.targets))
            return {"pairs": binary_cross_entropy_with_logits(logits, truth, reduction="sum") / len(batch.targets)}

        return of_batch


def random_data(k: int, n: int, side: int) -> TrainData:
    """Return random pictures with random labels."""
    made = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, 3, side, side), generator=made, dtype=torch.uint8)
    split = Split(images=images, targets=torch.randint(0, k, (n,), generator=made))
    return TrainData(
        train=TensorSplit.of(split),
        val=TensorSplit.of(split.select(range(8))),
        labels=Labels(names=tuple(f"label {i}" for i in range(k))),
    )


def epoch_seconds(method: ImageMethod, data: TrainData, device: str) -> list[float]:
    """Return the seconds of each epoch but the first."""
    with tempfile.TemporaryDirectory() as folder:
        train(method, data, Run(device=device, folder=Path(folder) / "run", checkpoint_seconds=1e9))
        lines = (Path(folder) / "run" / "log.jsonl").read_text().splitlines()
    ends = [json.loads(line)["seconds"] for line in lines]
    return [after - before for before, after in pairwise(ends)]


def cases(device: str) -> dict[str, tuple[ImageMethod, int]]:
    """Return the methods to compare and how many labels each has."""
    gpu = device == "cuda"
    encoder = Encoder(backbone="resnet18" if gpu else "convnet")
    common = {"encoder": encoder, "epochs": 4 if gpu else 3, "batch": 256 if gpu else 128}
    return {
        "softmax, 10 labels": (Softmax(**common), 10),  # type: ignore[arg-type]
        "indicator N=9, 10 labels": (Indicator(negatives=9, **common), 10),  # type: ignore[arg-type]
        "literal N=9, 10 labels": (Literal(negatives=9, **common), 10),  # type: ignore[arg-type]
        "softmax, 1000 labels": (Softmax(**common), 1000),  # type: ignore[arg-type]
        "indicator N=9, 1000 labels": (Indicator(negatives=9, **common), 1000),  # type: ignore[arg-type]
        "indicator N=999, 1000 labels": (Indicator(negatives=999, **common), 1000),  # type: ignore[arg-type]
    }


def peak_memory(name: str, device: str) -> float:
    """Return the MiB held at most while one case trains; on a CPU in a process of its own, above what it held before."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        _one_epoch(name, device)
        return torch.cuda.max_memory_allocated() / 2**20
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_resident, (name, device))


def _one_epoch(name: str, device: str) -> None:
    method, k = cases(device)[name]
    n, side = (5_000, 32) if device == "cuda" else (512, 48)
    epoch_seconds(method, random_data(k, n, side), device)


def _resident(name: str, device: str) -> float:
    Path("/proc/self/clear_refs").write_text("5")  # a child starts with the peak of its parent: forget it
    before = _peak()
    _one_epoch(name, device)
    return _peak() - before


def _peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    n, side = (50_000, 32) if options.device == "cuda" else (2_048, 48)
    data = {k: random_data(k, n, side) for k in (10, 1000)}
    seconds: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, (method, k) in cases(options.device).items():
            seconds.setdefault(name, []).extend(epoch_seconds(method, data[k], options.device))
    memory = {name: peak_memory(name, options.device) for name in seconds}
    print(f"{options.device}, torch {torch.__version__}, {n} images of {side} x {side}, median epoch")
    print(f"{'case':32}{'s an epoch':>12}{'x softmax':>12}{'peak MiB':>12}{'x softmax':>12}")
    rows = []
    for name, times in seconds.items():
        base = f"softmax, {name.rsplit(', ', 1)[1]}"
        slower, larger = median(times) / median(seconds[base]), memory[name] / memory[base]
        rows.append(
            {"case": name, "seconds": median(times), "time_ratio": slower, "MiB": memory[name], "memory_ratio": larger}
        )
        print(f"{name:32}{median(times):12.3f}{slower:12.2f}{memory[name]:12.0f}{larger:12.2f}")
    if options.json:
        options.json.write_text(json.dumps({"device": options.device, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
