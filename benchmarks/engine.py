"""Images a second of training on a GPU, beside a plain loop: as it stands, recorded, and compiled and recorded.

    python benchmarks/engine.py [--batches 256 512] [--rounds 3] [--only plain simclr ...] [--json FILE]
    python benchmarks/engine.py --trace FILE.json     # what the processor and the GPU do in an epoch of recorded steps

ResNet-18 with the small stem, 50,000 random pictures of 32 x 32 on the device, bf16, channels-last, crop and flip, SGD with momentum. The plain loop is
what one would write by hand: no clipping, no log, no progress, no seed for each step. Ours is ``train()`` with a run folder; its epochs are read off the log, the
first left out. Ways take turns; the median over rounds counts.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.profiler import ProfilerActivity, profile, record_function

from labelwise.images.dataset import Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Encoder, Indicator, Softmax
from labelwise.train import loop
from labelwise.train.augment import Augment
from labelwise.train.loop import train
from labelwise.train.method import Method, Run
from labelwise.train.optimizers import Optimizer
from labelwise.train.pretraining import Pretrain
from labelwise.train.progress_bar import Bar
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TensorSplit, TrainData

DEVICE = torch.device("cuda", 0)
NETWORK = Encoder(backbone="resnet18")
AUGMENT = Augment(padding=4, flip=True)


def random_data(n: int, k: int = 10) -> TrainData:
    """Return random pictures with random labels."""
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, 3, 32, 32), generator=rng, dtype=torch.uint8)
    split = Split(images=images, targets=torch.randint(0, k, (n,), generator=rng))
    return TrainData(
        train=TensorSplit.of(split),
        val=TensorSplit.of(split.select(range(8))),
        labels=Labels(names=tuple(f"label {i}" for i in range(k))),
    )


class Plain:
    """A loop as one would write it."""

    def __init__(self, data: TrainData, batch: int, way: str) -> None:
        self.images, self.targets = data.train.images.to(DEVICE), data.train.targets.to(DEVICE)
        body = NETWORK.build((3, 32, 32)).to(DEVICE)
        self.network = nn.Sequential(body, nn.Linear(body.code_size, 10).to(DEVICE))
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.forward = torch.compile(self.network, dynamic=False) if way == "compiled" else self.network
        self.lr = torch.tensor(0.1, device=DEVICE)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=self.lr, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True
        )
        self.rows = torch.zeros(batch, dtype=torch.int64, device=DEVICE)
        self.generator, self.batch = torch.Generator(DEVICE).manual_seed(0), batch
        self.graph: torch.cuda.CUDAGraph | None = None
        if way != "eager":
            self._record()

    def step(self, rows: Tensor) -> None:
        """Change the weights by the images at these rows."""
        images = AUGMENT(self.images[rows], BatchRng(self.generator, slice(0, self.batch), self.batch))
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = cross_entropy(self.forward(images).float(), self.targets[rows])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def _record(self) -> None:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            for _ in range(5):
                self.step(self.rows)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph):
            self.step(self.rows)
        self.graph = graph

    def epoch(self) -> float:
        """Return the seconds of an epoch."""
        torch.cuda.synchronize()
        begun = time.perf_counter()
        order = torch.randperm(len(self.images), device=DEVICE)
        for rows in torch.split(order, self.batch)[: len(self.images) // self.batch]:
            if self.graph is None:
                self.step(rows)
            else:
                self.rows.copy_(rows)
                self.graph.replay()
        torch.cuda.synchronize()
        return time.perf_counter() - begun


def of_plain(data: TrainData, batch: int, way: str) -> tuple[float, str]:
    """Return the images a second of a plain loop, and its way."""
    loop = Plain(data, batch, way)
    loop.epoch()
    return len(data.train) // batch * batch / median(loop.epoch() for _ in range(4)), way


def of_ours(data: TrainData, method: Method, engine: str) -> tuple[float, str]:
    """Return the images a second of ``train``, and how its steps were taken."""
    with tempfile.TemporaryDirectory() as folder:
        _, summary = train(method, data, Run(device="cuda", folder=Path(folder), engine=engine))
        log = [json.loads(line) for line in (Path(folder) / "log.jsonl").read_text().splitlines()]
    times = [later["seconds"] - sooner["seconds"] for sooner, later in pairwise(log)]
    batch = method.batch  # type: ignore[attr-defined]
    return len(data.train) // batch * batch / median(times), ", ".join(summary.get("engine", {}).values()) or "eager"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pictures", type=int, default=50_000)
    parser.add_argument("--only", nargs="*", default=["plain", "softmax", "indicator", "simclr"])
    parser.add_argument("--engines", nargs="+", default=["eager", "recorded", "compiled"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--trace", type=Path)
    options = parser.parse_args()
    if options.trace:
        traced(options.trace)
        return
    torch.backends.cudnn.benchmark = True
    data, rows = random_data(options.pictures), []
    for batch in options.batches:
        common: dict[str, Any] = {
            "epochs": 5,
            "batch": batch,
            "encoder": NETWORK,
            "augment": AUGMENT,
            "optimizer": Optimizer(lr=0.1),
        }
        methods = {
            "softmax": Softmax(**common),
            "indicator, all": Indicator(**common),
            "indicator, N=3": Indicator(**common, negatives=3),
        }
        ways: dict[str, Callable[[], Any]] = {}
        for engine in options.engines:
            if "plain" in options.only:
                ways[f"plain, {engine}"] = partial(of_plain, data, batch, engine)
            for name, method in methods.items():
                if name.partition(",")[0] in options.only:
                    ways[f"{name}, {engine}"] = partial(of_ours, data, method, engine)
        rows += measured(ways, batch, options.rounds)
    if "simclr" in options.only:
        simclr = Pretrain(epochs=4, batch=1024, encoder=NETWORK)
        ways = {f"simclr, {engine}": partial(of_ours, data, simclr, engine) for engine in options.engines}
        rows += measured(ways, 1024, max(1, options.rounds - 1))
    if options.json:
        options.json.write_text(
            json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, indent=1)
        )


def traced(file: Path) -> None:
    """Write the trace of training (for chrome://tracing), and print how often an epoch waits for the GPU, and how busy that is."""
    train_epoch = loop._Loop._train_epoch

    def marked(self: loop._Loop, bar: Bar) -> None:
        with record_function("epoch"):
            train_epoch(self, bar)

    data = random_data(20_480)
    method = Softmax(epochs=5, batch=512, encoder=NETWORK, augment=AUGMENT, optimizer=Optimizer(lr=0.1))
    loop._Loop._train_epoch = marked  # type: ignore[method-assign]
    with (
        tempfile.TemporaryDirectory() as folder,
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen,
    ):
        train(method, data, Run(device="cuda", folder=Path(folder), engine="recorded"))
    seen.export_chrome_trace(str(file))
    events = [each for each in json.loads(file.read_text())["traceEvents"] if each.get("ph") == "X"]
    for epoch in [each for each in events if each["name"] == "epoch" and each.get("cat") == "user_annotation"][-2:]:
        begun, ended = epoch["ts"], epoch["ts"] + epoch["dur"]
        inside = [each for each in events if begun <= each["ts"] < ended]
        starts = [each["ts"] for each in inside if each["name"] == "cudaGraphLaunch"]
        waits = [each["ts"] for each in inside if each.get("cat") == "cuda_runtime" and "Synchronize" in each["name"]]
        between = sum(starts[0] < each < starts[-1] for each in waits)
        kinds = ("kernel", "gpu_memcpy", "gpu_memset")
        kernels = sorted((each["ts"], each["dur"]) for each in inside if each.get("cat") in kinds)
        busy, until = 0.0, begun
        for start, length in kernels:
            busy, until = busy + max(0.0, start + length - max(start, until)), max(until, start + length)
        print(
            f"epoch of {epoch['dur'] / 1e3:.1f} ms, {len(starts)} steps, the last one started after {(starts[-1] - begun) / 1e3:.1f} ms: {len(kernels)} kernels and "
            f"copies, the GPU busy {busy / (kernels[-1][0] - kernels[0][0]):.1%} of the time; {len(waits)} waits, {between} between the first step and the last"
        )


def measured(ways: dict[str, Callable[[], Any]], batch: int, rounds: int) -> list[dict[str, Any]]:
    """Return the median images a second of each way over rounds in turn, and print them."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    engines = {}
    for _ in range(rounds):
        for name, way in ways.items():
            begun = time.perf_counter()
            rate, engines[name] = way()
            rates[name].append(rate)
            print(
                f"batch {batch}  {name}: {rate:,.0f} images/s ({engines[name]}; {time.perf_counter() - begun:.1f} s)",
                flush=True,
            )
            torch.cuda.empty_cache()
    rows = [
        {"batch": batch, "way": name, "rate": median(values), "rates": values, "engine": engines[name]}
        for name, values in rates.items()
    ]
    for row in rows:
        print(f"batch {batch}  {row['way']:28} {row['rate']:>9,.0f}")
    return rows


if __name__ == "__main__":
    main()
