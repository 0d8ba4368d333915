"""Run each cell once: a stopped cell resumes from its checkpoint, and a finished one is never repeated.

A process holds a lock on a cell's folder while it runs it, and writes the result before it lets go. The lock ends with the
process, however that ends. So several processes, started together or by several people, share the cells of one folder.
"""

import gc
import json
import math
import multiprocessing
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import MISSING, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import labelwise
from labelwise.methods.registry import method_class
from labelwise.support.errors import Interrupted, LabelwiseError, UsageError
from labelwise.support.processes import end_with_parent, stop_on_signals
from labelwise.support.settings import to_plain
from labelwise.support.writable import sole_writer
from labelwise.train.distribution import choose_device
from labelwise.train.method import Run
from labelwise_papers.recipe import merged
from labelwise_papers.reproduce.cells import Cell
from labelwise_papers.reproduce.measures import measure
from labelwise_papers.reproduce.results import Entry, append_result, read_results
from labelwise_papers.reproduce.sources import read_source
from labelwise_papers.reproduce.subject import Subject

Tell = Callable[[str], None]
STOPPED = "Stopped; checkpoints are written. Run the same command again, and it goes on."
KEPT = "The training is kept. Run the same command again to measure only."
STOP_SECONDS = 60  # for workers to write their checkpoints


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where cells are run."""

    out: Path  # the folder of results, checkpoints and plots
    root: Path | None = None  # where benchmarks lie; None is the variable ``LABELWISE_DATA``
    device: str = "auto"
    threads: int | None = None  # of torch; None leaves it unchanged


def run_cells(cells: Sequence[Cell], place: Place, tell: Tell) -> list[str]:
    """Run the cells that have no result yet, one after another; return what failed, in words. ``tell`` hears how far it is."""
    if place.threads:
        torch.set_num_threads(place.threads)
    (place.out / "cells").mkdir(parents=True, exist_ok=True)
    failures = []
    for number, cell in enumerate(cells, 1):
        if is_done(cell, place.out):
            continue
        folder = place.out / "cells" / cell.key
        with ExitStack() as stack:
            try:
                stack.enter_context(sole_writer(folder))
            except UsageError:
                tell(f"{cell.title}: another process is at it")
                continue
            if not is_done(cell, place.out):  # by another process, before this one had the lock
                tell(f"[{number}/{len(cells)}] {cell.title}")
                try:
                    entry = _same_elsewhere(cell, place.out) or run_cell(cell, place, folder)
                    append_result(place.out, entry)
                    if entry.get("failed"):
                        raise LabelwiseError(f"{'; '.join(map(': '.join, entry['failed'].items()))}\n{KEPT}")
                except (Interrupted, KeyboardInterrupt):
                    raise Interrupted(STOPPED) from None
                except Exception as error:  # one cell that fails, for want of memory perhaps, must not stop a night
                    why = str(error) if isinstance(error, LabelwiseError) else traceback.format_exc()
                    failures.append(f"{cell.title}: {error}")
                    tell(f"{cell.title} failed: {why}")
                    _give_back()
                    continue
            shutil.rmtree(folder, ignore_errors=True)
            _give_back()
    return failures


def _give_back() -> None:
    """Let go of memory of the GPU that a cell no longer uses: other workers may share it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def is_done(cell: Cell, out: Path) -> bool:
    """Return whether a cell has a result, of all its measures."""
    return any(entry["key"] == cell.key and not entry.get("failed") for entry in read_results(out))


def _same_elsewhere(cell: Cell, out: Path) -> Entry | None:
    """Return the result of a cell that was trained in the same way and measured as well, as this cell's; None without one.

    Official files and a packed form have the same name, so a cell that wants official files is run.
    """
    if cell.source.official:
        return None
    own = json.loads(json.dumps(cell.configuration))
    for entry in read_results(out):
        other = _with_later_settings(entry["configuration"], own["method"])
        alike = all(own[part] == other.get(part) for part in ("source", "method", "settings", "quick"))
        measured = all(
            name in other["measures"] and own["options"].get(name) == other["options"].get(name)
            for name in own["measures"]
        )
        if entry["seed"] == cell.seed and alike and measured and not entry.get("failed"):
            names = {"key": cell.key, "recipe": cell.recipe.name, "data": cell.data, "row": cell.row.name}
            return {**entry, **names, "same_as": f"{entry['recipe']}, {entry['row']}"}
    return None


def _with_later_settings(configuration: Entry, method: str) -> Entry:
    """Return a configuration with the defaults of settings that came after it was written, and without unset ones that are gone."""
    if configuration.get("method") != method or not configuration.get("settings"):
        return configuration
    defaults = {
        each.name: each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(method_class(method))
    }
    plain = json.loads(json.dumps(to_plain(defaults)))
    stated = {name: value for name, value in configuration["settings"].items() if name in plain or value is not None}
    return {**configuration, "settings": merged(plain, stated)}


def run_cell(cell: Cell, place: Place, folder: Path) -> Entry:
    """Return the result of one cell, as it is written; its checkpoints are in the folder."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak of memory is counted from here
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    name = f"{cell.recipe.paper}-{cell.recipe.table}-{cell.data}-{cell.row.name}-{cell.seed}.png"
    subject = Subject(
        data=read_source(cell.source, place.root, cell.seed),
        method=cell.recipe.method(cell.row, cell.data),
        run=Run(seed=cell.seed, device=place.device, folder=folder / "fit", snapshots=cell.snapshots),
        picture=place.out / "pictures" / name.replace("/", "_").replace(" ", "_"),
        root=place.root,
    )
    figures, failed = measure(subject, cell.measures, cell.options)
    fitted = subject.__dict__.get("classifier")
    training = {} if fitted is None else fitted.origin.summary.get("training", {})
    device = choose_device(place.device)
    return {
        "key": cell.key,
        "recipe": cell.recipe.name,
        "data": cell.data,
        "row": cell.row.name,
        "seed": cell.seed,
        "quick": cell.quick,
        "figures": {name: _finite(value) for name, value in figures.items()},
        "failed": failed,
        "seconds": round(time.perf_counter() - started, 2),
        "training_seconds": training.get("seconds"),
        "engine": training.get("engine"),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "peak_device_mib": round(torch.cuda.max_memory_allocated() / 2**20) if cuda else None,
        "configuration": cell.configuration,
        "commit": commit(),
        "versions": {
            "labelwise": labelwise.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "device": f"cuda: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _finite(value: Any) -> Any:
    """Return a figure as JSON can hold it: what is no number is None."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return [_finite(each) for each in value] if isinstance(value, list) else value


@cache
def commit() -> str:
    """Return the commit of the checkout that this package is in; "" where it is installed, or git is not there."""

    def git(*words: str) -> str:
        command = ["git", "--no-optional-locks", *words]
        result = subprocess.run(command, cwd=Path(labelwise.__file__).parent, capture_output=True, text=True)
        return result.stdout.strip() if result.returncode == 0 else ""

    with suppress(OSError):
        if git("ls-files", "--error-unmatch", "__init__.py"):
            return git("describe", "--always", "--dirty", "--abbrev=12")
    return ""


def run_in_workers(cells: Sequence[Cell], place: Place, workers: int) -> list[str]:
    """Run cells in several processes at a time; return what failed. A signal to stop reaches all of them.

    Small networks leave a GPU waiting for Python, so several cells on one are faster together; seconds are then those of a
    shared machine. A worker whose parent has ended stops as if it were told to.
    """
    context = multiprocessing.get_context("spawn")
    share = place if place.threads else replace(place, threads=max(1, (os.cpu_count() or 1) // workers))
    running = [context.Process(target=_work, args=(cells, share)) for _ in range(workers)]
    try:
        for worker in running:
            worker.start()
        for worker in running:
            worker.join()
    except KeyboardInterrupt:
        _stop(running)
        raise Interrupted(STOPPED) from None
    return [f"{cell.title}: not finished; run the same command again" for cell in cells if not is_done(cell, place.out)]


def _work(cells: Sequence[Cell], place: Place) -> None:
    """Run cells in a worker process."""
    end_with_parent()
    with stop_on_signals(), suppress(Interrupted, KeyboardInterrupt):  # its checkpoint is written
        run_cells(cells, place, lambda text: print(text, file=sys.stderr, flush=True))


def _stop(workers: Sequence[Any]) -> None:
    """Tell the workers to stop, and wait until they have written their checkpoints."""
    started = [worker for worker in workers if worker.pid is not None]
    for worker in started:
        worker.terminate()
    for worker in started:
        worker.join(STOP_SECONDS)
        if worker.exitcode is None:
            worker.kill()
