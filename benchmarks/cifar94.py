"""Seconds from the command to a saved classifier of CIFAR-10 that is right on 94 % of test pictures, on a GPU.

    python benchmarks/cifar94.py [--seeds 5] [--methods softmax indicator] [--json FILE]
    python benchmarks/cifar94.py --trials [--json FILE]

Each run is ``labelwise fit cifar10 ...`` in a process of its own, imports, reading and saving included; the test pictures are looked at after it, by
``labelwise evaluate``. ``--trials`` is how the settings were chosen: on the 5,000 validation pictures that ``fit`` sets aside, one seed each.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any

SETTINGS = {
    "epochs": "25",
    "batch": "512",
    "encoder.backbone": "resnet18",
    "optimizer.lr": "0.4",
    "schedule.warmup": "0.25",
    "augment.padding": "4",
    "augment.flip": "true",
    "augment.erase": "8",
    "view.mirror": "true",
}
TRIALS: list[dict[str, str]] = [
    {"epochs": "16", "augment.erase": "0"},
    {"epochs": "16"},
    {"epochs": "20"},
    {"epochs": "20", "augment.erase": "0"},
    {"epochs": "20", "optimizer.lr": "0.2"},
    {"epochs": "20", "optimizer.lr": "0.2", "optimizer.weight_decay": "1e-3"},
    {"epochs": "24"},
    {"epochs": "24", "optimizer.lr": "0.2", "optimizer.weight_decay": "1e-3"},
]


def command(method: str, settings: dict[str, str], seed: int, out: Path) -> list[str]:
    """Return the words of the shell."""
    words = [f"--set={name}={value}" for name, value in settings.items()]
    return [
        sys.executable,
        "-m",
        "labelwise",
        "fit",
        "cifar10",
        "--method",
        method,
        "--encoder",
        "none",
        *words,
        "--seed",
        str(seed),
        "--out",
        str(out),
        "--json",
    ]


def fitted(method: str, settings: dict[str, str], seed: int, out: Path) -> dict[str, Any]:
    """Return the wall seconds of a fit, and what it says of itself."""
    begun = time.perf_counter()
    done = subprocess.run(command(method, settings, seed, out), capture_output=True, text=True, check=False)
    wall = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    training = json.loads(done.stdout)["training"]
    return {
        "method": method,
        "seed": seed,
        "set": settings,
        "seconds": wall,
        "training_seconds": training["seconds"],
        "validation": training["validation_accuracy"],
        "engine": training.get("engine"),
    }


def tested(model: Path) -> float:
    """Return the accuracy on test pictures."""
    import labelwise as lw

    test = lw.data.load("cifar10").split("test")
    answers = lw.load(model).scores(test.images).log_odds.argmax(1).cpu()
    return float((answers == test.targets).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["softmax", "indicator"])
    parser.add_argument("--trials", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = trials(Path(folder)) if options.trials else runs(Path(folder), options.methods, options.seeds)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


def trials(folder: Path) -> list[dict[str, Any]]:
    """Return what each choice of settings gives on validation pictures; four at a time, so seconds do not count."""

    def trial(number: int) -> dict[str, Any]:
        row = fitted("softmax", SETTINGS | TRIALS[number], 0, folder / f"{number}.lw")
        print(json.dumps(row | {"set": TRIALS[number]}), flush=True)
        return row

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(trial, range(len(TRIALS))))


def runs(folder: Path, methods: list[str], seeds: int) -> list[dict[str, Any]]:
    """Return the seconds and the accuracy on test pictures of each method and seed, one after another."""
    rows = []
    for method in methods:
        own = []
        for seed in range(seeds):
            out = folder / f"{method}-{seed}.lw"
            row = fitted(method, SETTINGS, seed, out)
            own.append(row | {"accuracy": tested(out)})
            print(json.dumps({key: value for key, value in own[-1].items() if key != "set"}), flush=True)
        right, wall = ([row[key] for row in own] for key in ("accuracy", "seconds"))
        print(
            f"{method}: {mean(right):.2%} +- {stdev(right) if seeds > 1 else 0:.2%} in {mean(wall):.1f} s, at most {max(wall):.1f} s",
            flush=True,
        )
        rows += own
    return rows


if __name__ == "__main__":
    main()
