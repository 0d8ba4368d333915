"""What many labels cost: training steps of indicator networks, of a softmax head and of the paper's form, in one run.

    python benchmarks/indicator_labels.py [--device cpu|cuda] [--labels 1000 10000 100000] [--quick] [--json FILE]

The small convnet on random 32 x 32 pictures, batch 64. A step is loss, gradient, clipping and optimiser; the optimiser goes
through the whole table of labels each time, whatever the method. The repeated form shows each image N + 1 times to the
encoder, with the same look-up of labels. Methods take turns step by step, and the median step counts; memory is the
largest that the process (CPU) or the GPU held above what it held before the model was built.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import ImageMethod, Indicator, Softmax
from labelwise.methods.indicator.method import IndicatorModel
from labelwise.methods.indicator.negatives import sample_uniformly
from labelwise.train.batches import Batch, Shard
from labelwise.train.train_data import TensorSplit, TrainData


@dataclass(frozen=True, kw_only=True)
class Repeated(Indicator):
    """The paper's own way: every image once for its label and once for each negative."""

    def loss(self, model: IndicatorModel, negatives: int) -> Callable[[Batch], dict[str, Tensor]]:
        """Return the loss on repeated images."""

        def of_batch(batch: Batch) -> dict[str, Tensor]:
            wrong = sample_uniformly(batch.rng.uniform(negatives, 2), batch.targets, len(model.spec.labels))
            asked = torch.cat([batch.targets[:, None], wrong], 1)
            codes = model.encode_images(batch.images.repeat_interleave(negatives + 1, 0))
            logits = model.predictor(codes * model.label_encoder(asked.flatten())).float().view(asked.shape)
            truth = torch.zeros_like(logits)
            truth[:, 0] = 1
            return {"pairs": binary_cross_entropy_with_logits(logits, truth, reduction="sum") / len(asked)}

        return of_batch


@dataclass(frozen=True)
class Setting:
    """What all cases share."""

    device: str
    batch: int
    side: int
    negatives: int

    def cases(self) -> dict[str, ImageMethod]:
        """Return the methods to compare."""
        n = self.negatives
        return {
            "softmax": Softmax(batch=self.batch),
            f"indicator N={n}": Indicator(negatives=n, batch=self.batch),
            f"indicator N={n} hard": Indicator(negatives=n, sampling="hard", batch=self.batch),
            "indicator all": Indicator(batch=self.batch),
            self.repeated: Repeated(negatives=n, batch=self.batch),
        }

    @property
    def repeated(self) -> str:
        """The name of the repeated form."""
        return f"repeated N={self.negatives}"

    def data(self, k: int) -> TrainData:
        """Return random pictures with random labels, four batches of them."""
        made, n = torch.Generator().manual_seed(0), 4 * self.batch
        images = torch.randint(0, 256, (n, 3, self.side, self.side), generator=made, dtype=torch.uint8)
        split = Split(images=images, targets=torch.randint(0, k, (n,), generator=made))
        labels = Labels(names=tuple(f"label {i}" for i in range(k)))
        return TrainData(train=TensorSplit.of(split), val=TensorSplit.of(split.select(range(8))), labels=labels).to(
            torch.device(self.device)
        )


def seconds_of_steps(method: ImageMethod, data: TrainData, device: str) -> Iterator[float]:
    """Yield the seconds of one training step after another."""
    torch.manual_seed(0)
    model = method.build(data.spec).to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    stage = next(iter(method.stages(model.train(), data)))
    parameters = list(stage.parameters)
    optimizer = stage.optimizer.build(parameters)
    for epoch in range(10**9):
        for draw in stage.batches.epoch(epoch, 0, Shard()):
            batch = stage.batches.batch(draw.rows, draw.images, draw.rng(torch.Generator(device)))
            _synchronize(device)
            start = time.perf_counter()
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                terms = stage.loss(batch)
            optimizer.zero_grad(set_to_none=True)
            torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(parameters, method.clip or torch.inf)
            optimizer.step()
            _synchronize(device)
            yield time.perf_counter() - start


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def step_seconds(setting: Setting, k: int, steps: int) -> dict[str, float]:
    """Return the median seconds of a step of each case; cases take turns, and the first two steps do not count."""
    data = setting.data(k)
    running = {name: seconds_of_steps(method, data, setting.device) for name, method in setting.cases().items()}
    found: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(steps + 2):
        for name, seconds in running.items():
            found[name].append(next(seconds))
    return {name: median(times[2:]) for name, times in found.items()}


def peak_memory(setting: Setting, k: int, name: str) -> float:
    """Return the MiB held at most in three steps of one case, above what was held before; on a CPU in its own process."""
    if setting.device == "cpu":
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return pool.apply(_resident, (setting, k, name))
    data = setting.data(k)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    _three_steps(setting, data, name)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def _resident(setting: Setting, k: int, name: str) -> float:
    data = setting.data(k)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = _peak()
    _three_steps(setting, data, name)
    return _peak() - before


def _three_steps(setting: Setting, data: TrainData, name: str) -> None:
    seconds = seconds_of_steps(setting.cases()[name], data, setting.device)
    for _ in range(3):
        next(seconds)


def _peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--labels", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--negatives", type=int, default=9)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="three steps with 1,000 and 10,000 labels")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    labels, steps = ([1_000, 10_000], 3) if options.quick else (options.labels, options.steps)
    setting = Setting(options.device, options.batch, options.side, options.negatives)
    print(
        f"{setting.device}, torch {torch.__version__}, batch {setting.batch}, {setting.side} x {setting.side} pictures"
    )
    print(f"{'labels':>8}  {'case':20}{'ms a step':>10}{'x softmax':>11}{'x repeated':>12}{'MiB':>8}{'x softmax':>11}")
    rows = []
    for k in labels:
        seconds = step_seconds(setting, k, steps)
        memory = {name: peak_memory(setting, k, name) for name in seconds}
        for name, taken in seconds.items():
            slower, literal = taken / seconds["softmax"], taken / seconds[setting.repeated]
            larger = memory[name] / memory["softmax"]
            rows.append({"labels": k, "case": name, "seconds": taken, "MiB": memory[name]})
            print(f"{k:8}  {name:20}{taken * 1e3:10.1f}{slower:11.2f}{literal:12.2f}{memory[name]:8.0f}{larger:11.2f}")
    if options.json:
        options.json.write_text(json.dumps({"setting": vars(setting), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
