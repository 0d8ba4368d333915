"""Seconds from the command to a saved classifier of CIFAR-10 that is right on 94 % of test pictures, on a GPU.

    python benchmarks/cifar94.py [--seeds 5] [--methods softmax indicator] [--json FILE]
    python benchmarks/cifar94.py --trials [--json FILE]

Each run is ``labelwise fit cifar10 ...`` in a process of its own, imports, reading and saving included; the test pictures are looked at after it. A small fit before them
byte-compiles all modules, as pip does with what it installs. ``--trials`` tries settings near these on 5,000 training pictures that are not trained on, one seed
each, in one process, so that their seconds are those of training.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

import labelwise as lw
from labelwise.api import open_on
from labelwise.fitting.division import split_rows
from labelwise.images.dataset import Split
from labelwise.methods import METHODS
from labelwise.methods.shared.linear import EncoderModel
from labelwise.support.settings import override
from labelwise.train.loop import train
from labelwise.train.model import LabelModel
from labelwise.train.train_data import TensorSplit, TrainData

SETTINGS = {
    "epochs": "13",
    "batch": "512",
    "encoder.backbone": "resnet18",
    "optimizer.name": "muon",
    "optimizer.lr": "0.07",
    "optimizer.momentum": "0.6",
    "schedule.warmup": "0.1",
    "augment.padding": "2",
    "augment.flip": "true",
    "view.mirror": "true",
}
SGD = {"optimizer.name": "sgd", "optimizer.lr": "0.4", "optimizer.momentum": "0.9"}
TRIALS: list[dict[str, str]] = [
    {},
    SGD,
    {"optimizer.lr": "0.05"},
    {"optimizer.lr": "0.1"},
    {"epochs": "12"},
    {"epochs": "16"},
    {"augment.padding": "4"},
    {"schedule.warmup": "0.25"},
]


def command(method: str, settings: dict[str, str], seed: int, out: Path, data: str = "cifar10") -> list[str]:
    """Return the words of the shell."""
    words = [f"--set={name}={value}" for name, value in settings.items()]
    fit = [sys.executable, "-m", "labelwise", "fit", data, "--method", method, "--encoder", "none", *words]
    return [*fit, "--seed", str(seed), "--out", str(out), "--json"]


def fitted(words: list[str], compiled: Path) -> tuple[float, dict[str, Any]]:
    """Return the wall seconds of a fit, and what it says of itself."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=kept | {"PYTHONPYCACHEPREFIX": str(compiled)}
    )
    wall = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return wall, json.loads(done.stdout)["training"]


def right(model: LabelModel, split: Split) -> float:
    """Return the share of pictures whose label has the highest score."""
    assert isinstance(model, EncoderModel)
    with torch.no_grad():
        scores = model.score(model.encode_all(split.images), model.encode_labels(model.spec.labels))
    return float((scores.argmax(1).cpu() == split.targets.cpu()).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["softmax", "indicator"])
    parser.add_argument("--trials", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for row in trials(options.methods) if options.trials else runs(Path(folder), options.methods, options.seeds):
            rows.append(row)
            print(json.dumps(row), flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1))
    for method in [] if options.trials else options.methods:
        accuracy, wall = ([row[key] for row in rows if row["method"] == method] for key in ("accuracy", "seconds"))
        spread = stdev(accuracy) if options.seeds > 1 else 0.0
        print(f"{method}: {mean(accuracy):.2%} +- {spread:.2%} in {mean(wall):.1f} s, at most {max(wall):.1f} s")


def trials(methods: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what each choice of settings gives on pictures that are set aside."""
    whole = lw.data.load("cifar10")
    kept, held = split_rows(whole.split("train"), whole.split("train").strata, 0.1, 0)
    data = TrainData(train=TensorSplit.of(kept), val=TensorSplit.of(held), labels=whole.labels)
    for method in methods:
        for changes in TRIALS:
            settings = override(METHODS[method](), SETTINGS | changes)
            model, summary = train(settings, data, lw.Run(device="cuda"))
            yield {"method": method, "set": changes, "accuracy": right(model, held), "seconds": summary["seconds"]}


def runs(folder: Path, methods: list[str], seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the seconds and the accuracy on test pictures of each method and seed, one after another."""
    test, compiled = lw.data.load("cifar10").split("test"), folder / "compiled"
    for method in methods:
        few = {**SETTINGS, "epochs": "1", "batch": "16", "encoder.backbone": "convnet"}
        fitted(command(method, few, 0, folder / f"{method}.lw", "digits"), compiled)
        for seed in range(seeds):
            out = folder / f"{method}-{seed}.lw"
            wall, about = fitted(command(method, SETTINGS, seed, out), compiled)
            answers = open_on(out, "cuda").scores(test.images).best
            yield {
                "method": method,
                "seed": seed,
                "seconds": wall,
                "training_seconds": about["seconds"],
                "accuracy": float((answers == test.targets).double().mean()),
                "engine": about.get("engine"),
            }


if __name__ == "__main__":
    main()
