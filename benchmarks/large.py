"""Large cases: time and peak memory of fit, save, load, classify, evaluate and teach as images and labels grow.

    python benchmarks/large.py [--sizes 50000:500 200000:2000 1000000:10000] [--size 512] [--method discriminant]
                               [--tested 20000] [--limit 480] [--json FILE]

Features are random: labels have means with a spectrum that falls off, images lie around them. Each size runs in a process of its
own. "mb" is what a step takes at its peak above what was there before it (Linux); "x" is the processor time of a step divided by that
of the size before, over the growth of what it is given: images for fit, labels for the same test images and for teach, the file for save and
load. 1 is linear. No further size is begun after ``--limit`` seconds.
"""

import argparse
import gc
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from gallery import resident
from rich.console import Console
from rich.table import Table
from torch import Tensor

import labelwise as lw
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.test_set import select_test_set
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import METHODS

NEW = 20  # labels that are taught, one after another, from five images each
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak() -> float:
    """Return the megabytes that this process held at most since the peak was cleared."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def step(name: str, work: Callable[[], Any], told: dict[str, Any]) -> Any:
    """Return what a step returns, and note its seconds and its peak."""
    gc.collect()
    before = resident()
    CLEAR.write_text("5")
    begun, processor = time.perf_counter(), time.process_time()
    result = work()
    told |= {f"{name}_s": time.perf_counter() - begun, f"{name}_cpu_s": time.process_time() - processor}
    told |= {f"{name}_mb": peak() - before}
    print("  {}: {:.1f} s, of a processor {:.1f} s, {:.0f} MB".format(name, *list(told.values())[-3:]), flush=True)
    return result


def features(count: int, means: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return features ``[count, d]``, not negative, and their labels, each label as often as any other."""
    drawn = torch.Generator().manual_seed(seed)
    targets = torch.arange(count) % len(means)
    rows = torch.empty(count, means.shape[1])
    for part in torch.split(torch.arange(count), 100_000):
        rows[part] = (
            torch.randn(len(part), means.shape[1], generator=drawn).mul_(0.7).add_(means[targets[part]]).relu_()
        )
    return rows, targets


def case(images: int, labels: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return seconds and megabytes of each step at one size."""
    told: dict[str, Any] = {"images": images, "labels": labels}
    drawn = torch.Generator().manual_seed(0)
    means = torch.randn(labels + NEW, chosen.size, generator=drawn) * torch.arange(1, chosen.size + 1) ** -0.25
    names = Labels(names=tuple(f"label {i}" for i in range(labels)))

    def data() -> Dataset:
        train, test = features(images, means[:labels], 1), features(chosen.tested, means[:labels], 2)
        splits = {key: Split(images=x, targets=y) for key, (x, y) in {"train": train, "test": test}.items()}
        return Dataset(name="large", labels=names, splits=splits)

    dataset = step("data", data, told)
    classifier = step("fit", lambda: lw.fit(dataset, METHODS[chosen.method]()), told)
    with tempfile.TemporaryDirectory() as folder:
        step("save", lambda: lw.save(classifier, Path(folder) / "large.lw"), told)
        told["file_mb"] = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 2**20
        classifier = step("load", lambda: lw.load(Path(folder) / "large.lw"), told)
    test = dataset.split("test")
    answers = step("classify", lambda: lw.classify(classifier, test.images), told)
    told["right"] = sum(
        one.top[0][0] == names.names[int(y)] for one, y in zip(answers, test.targets, strict=True)
    ) / len(test)
    result = step(
        "evaluate", lambda: evaluate_closed(select_test_set(classifier, dataset, "test").evaluate(classifier)), told
    )
    told["accuracy"], told["ece"] = result.accuracy, result.ece
    examples = [means[labels + i] + 0.7 * torch.randn(5, chosen.size, generator=drawn) for i in range(NEW)]

    def teach() -> Any:
        more = classifier
        for i, rows in enumerate(examples):
            more = lw.teach(more, f"new {i}", examples=rows.relu())
        return more

    if chosen.method != "softmax":
        step("teach", teach, told)
    return told


def growth(rows: list[dict[str, Any]]) -> None:
    """Add to each row how much faster than its work the time of a step grew since the row before."""
    work = {"fit": 0, "classify": 1, "evaluate": 1, "teach": 1, "save": 2, "load": 2}
    for before, row in pairwise(rows):
        more = (row["images"] / before["images"], row["labels"] / before["labels"], row["file_mb"] / before["file_mb"])
        for name, kind in work.items():
            if f"{name}_s" in row:
                row[f"{name}_x"] = row[f"{name}_cpu_s"] / before[f"{name}_cpu_s"] / more[kind]


def _apart(images: int, labels: int, chosen: argparse.Namespace) -> dict[str, Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(case, (images, labels, chosen))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["50000:500", "200000:2000", "1000000:10000"])
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--method", default="discriminant", choices=sorted(METHODS))
    parser.add_argument("--tested", type=int, default=20_000)
    parser.add_argument("--limit", type=float, default=480, help="seconds after which no further size is begun")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, {chosen.method}", flush=True
    )
    begun, rows = time.perf_counter(), list[dict[str, Any]]()
    for images, labels in (map(int, size.split(":")) for size in chosen.sizes):
        if time.perf_counter() - begun > chosen.limit:
            print(f"{images} images are left out: {chosen.limit:.0f} s are over.")
            break
        print(f"{images:,} images, {labels:,} labels", flush=True)
        rows.append(_apart(images, labels, chosen))
    growth(rows)
    table = Table("", *(f"{row['images']:,} / {row['labels']:,}" for row in rows))
    for key in dict.fromkeys(key for row in rows for key in row):
        table.add_row(key, *(f"{row[key]:.4g}" if key in row else "" for row in rows))
    Console(width=120).print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
