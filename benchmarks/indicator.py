"""The indicator paper's tables: every row of a recipe over seeds, one JSON line for each fit, beside the paper's figures.

    LABELWISE_DATA=FOLDER python benchmarks/indicator.py RECIPE.toml ... --out results.jsonl --runs FOLDER [--workers 6]
    python benchmarks/indicator.py RECIPE.toml --out results.jsonl --table

Recipes lie in ``src/labelwise/recipes/indicator``. A cell is one row of a recipe with one seed. Cells that the file has
already are skipped, and one that was stopped goes on from its checkpoint, so a run can be stopped at any time. Small networks
leave a GPU waiting for Python, so several cells are trained at a time (``--workers``); seconds are then those of a shared GPU.
``held`` images are set aside from the training images to calibrate probabilities; test images are looked at once, at the end.
"""

import argparse
import json
import math
import multiprocessing
import os
import signal
import statistics
import tomllib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from labelwise.core import Classifier
from labelwise.data import load
from labelwise.data.dataset import Dataset
from labelwise.data.splits import split_off
from labelwise.errors import Interrupted
from labelwise.evaluate.answers import answer_calibration, yes_rates
from labelwise.evaluate.closed import evaluate_closed
from labelwise.evaluate.neighbours import nearest_labels
from labelwise.evaluate.outliers import evaluate_outliers
from labelwise.evaluate.probe import probe_codes
from labelwise.evaluate.saliency import salient_share
from labelwise.fitting import fit
from labelwise.methods import method_class
from labelwise.settings import from_plain
from labelwise.training import Method, Run

Entry = dict[str, Any]
SALIENCY_IMAGES = 5_000


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One fit to be measured."""

    recipe: Path
    row: str
    seed: int
    data: str
    runs: Path | None
    device: str

    @property
    def head(self) -> Entry:
        """What tells this cell from others."""
        return {"recipe": self.recipe.stem, "row": self.row, "seed": self.seed}


@cache
def read_recipe(path: Path) -> Entry:
    """Return the content of a recipe."""
    return tomllib.loads(path.read_text())


def method_of(recipe: Entry, row: Entry) -> Method:
    """Return the method of a row with the recipe's settings and then its own."""
    values = merged(recipe.get("settings", {}), row.get("settings", {}))
    return from_plain(method_class(row["method"]), values)


def merged(below: Entry, above: Entry) -> Entry:
    """Return nested settings with those of ``above`` in place of those of ``below``."""
    both = dict(below)
    for key, value in above.items():
        both[key] = merged(both[key], value) if isinstance(value, dict) and key in both else value
    return both


@cache
def data_of(source: str, size: int | None, held: int, images: int | None) -> Dataset:
    """Return the data with ``held`` training images as validation images, and no more than ``images`` to train on."""
    data = load(source, size=size)
    whole = data.split("train").join(data.splits["val"]) if "val" in data.splits else data.split("train")
    kept, val = split_off(whole.targets, held / len(whole), 0)
    train = whole.select(kept)
    if images is not None:
        train = train.select(split_off(train.targets, images / len(train), 1)[1])
    return replace(data, splits={"train": train, "val": whole.select(val), "test": data.split("test")})


@cache
def strange_images(source: str, shape: tuple[int, ...]) -> Tensor:
    """Return all images of another set, brought to this shape ``[n, c, h, w]``."""
    from labelwise.data.pictures import as_batch

    data = load(source, size=shape[1])
    return as_batch(torch.cat([split.images for split in data.splits.values()]), shape)


def measure(cell: Cell) -> Entry:
    """Return the figures of one cell."""
    torch.set_num_threads(2)
    recipe = read_recipe(cell.recipe)
    row = next(row for row in recipe["rows"] if row["name"] == cell.row)
    data = data_of(cell.data, recipe.get("size"), recipe["held"], recipe.get("images"))
    folder = cell.runs / f"{cell.recipe.stem}-{cell.row}-{cell.seed}".replace(" ", "_") if cell.runs else None
    started = folder is not None and (folder / "log.jsonl").exists()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    run = Run(seed=cell.seed, device=cell.device, folder=folder, resume=started)
    try:
        made = fit(data, method_of(recipe, row), run)
    except Interrupted:
        os._exit(1)  # its checkpoint is written; a worker that went on would begin the next cell
    figures: Entry = {**cell.head, "images": len(data.split("train")), "seconds": made.summary["training"]["seconds"]}
    if torch.cuda.is_available():
        figures["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return {**figures, "figures": figures_of(made, data, recipe, row)}


def figures_of(made: Classifier, data: Dataset, recipe: Entry, row: Entry) -> Entry:
    """Return what is measured of one classifier, rates in per cent."""
    train, test = data.split("train"), data.split("test")
    closed = evaluate_closed(made, test, data.labels)
    answers = answer_calibration(made, test, data.labels)
    found: Entry = {"accuracy": 100 * closed.accuracy}
    found |= {"ece_before": answers.every.before.ece, "ece_after": answers.every.after.ece}
    for name in recipe.get("outliers", ()):
        strange = strange_images(name, made.model.spec.shape)
        for sign in ("confidence", "both"):
            result = evaluate_outliers(made, test.images, strange, sign=sign)
            found[name if sign == "confidence" else f"{name} (both signs)"] = 100 * result.auroc
    wanted = row.get("analyses", ())
    if "saliency" in wanted:
        few = train.images[:SALIENCY_IMAGES]
        found["saliency"] = 100 * salient_share(made, few, train.targets[:SALIENCY_IMAGES], batch=256).share
    if "probe" in wanted:
        found["probe"] = 100 * probe_codes(made, train, test, data.labels).probe
    if "neighbours" in wanted:
        found["neighbours"] = {one.label: one.nearest[0] for one in nearest_labels(made, 1).labels}
    if "answers" in wanted:
        rates = yes_rates(made, test, data.labels).raw
        found |= {f"yes_{kind}": 100 * getattr(rates, kind) for kind in ("right", "wrong", "ones", "zeros")}
    return found


def cells_of(options: argparse.Namespace, done: set[str]) -> Iterator[Cell]:
    """Yield the cells that are not measured yet, seed by seed."""
    for path in options.recipes:
        recipe = read_recipe(path)
        rows = [row["name"] for row in recipe["rows"] if not options.rows or row["name"] in options.rows]
        for seed in range(options.seeds or recipe["seeds"]):
            for row in rows:
                cell = Cell(
                    recipe=path,
                    row=row,
                    seed=seed,
                    data=options.data or recipe["data"],
                    runs=options.runs,
                    device=options.device,
                )
                if json.dumps(cell.head) not in done:
                    yield cell


def read_results(path: Path) -> list[Entry]:
    """Return the cells measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(recipe: Entry, entries: list[Entry]) -> str:
    """Return the figures of a recipe as a table: mean and standard deviation over seeds, and the paper's."""
    names = [name for name in {key: 0 for entry in entries for key in entry["figures"]} if name != "neighbours"]
    lines = [
        f"| | {' | '.join(names)} | seconds | peak MiB | seeds |",
        "|---" * (len(names) + 4) + "|",
    ]
    for row in recipe["rows"]:
        own = [entry for entry in entries if entry["row"] == row["name"]]
        if not own:
            continue
        cells = [
            in_words([e["figures"][n] for e in own if n in e["figures"]], row.get("expect", {}).get(n)) for n in names
        ]
        seconds = statistics.mean(entry["seconds"] for entry in own)
        memory = max(entry.get("peak_mib", 0) for entry in own)
        lines.append(f"| {row['name']} | {' | '.join(cells)} | {seconds:.0f} | {memory} | {len(own)} |")
    return "\n".join(lines)


def in_words(values: list[float], paper: float | None) -> str:
    """Return mean, deviation, and the paper's figure in brackets."""
    if not values:
        return ""
    digits = 2 if max(abs(v) for v in values) >= 1 or paper is not None else 4
    spread = f" +- {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    ours = "-" if any(math.isnan(v) for v in values) else f"{statistics.mean(values):.{digits}f}{spread}"
    return ours if paper is None else f"{ours} ({paper:g})"


def stop(*_: object) -> None:
    """End all workers, which write their checkpoints, and then this process."""
    workers = multiprocessing.active_children()
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(60)
    os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, help="folder of checkpoints; without it a stopped cell begins again")
    parser.add_argument("--rows", nargs="*", help="only these rows")
    parser.add_argument("--seeds", type=int, help="another number of seeds than the recipe's")
    parser.add_argument("--data", help="read the data from here instead of where the recipe says")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print what is measured, train nothing")
    options = parser.parse_args()
    if not options.table:
        done = {json.dumps({k: e[k] for k in ("recipe", "row", "seed")}) for e in read_results(options.out)}
        signal.signal(signal.SIGTERM, stop)
        with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
            for future in as_completed([pool.submit(measure, cell) for cell in cells_of(options, done)]):
                with options.out.open("a") as file:
                    file.write(json.dumps(future.result()) + "\n")
    for path in options.recipes:
        found = [entry for entry in read_results(options.out) if entry["recipe"] == path.stem]
        print(f"\n{read_recipe(path)['title']}\n\n{table(read_recipe(path), found)}")


if __name__ == "__main__":
    main()
