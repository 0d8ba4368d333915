"""Run cells: each once, whoever runs it; one that was stopped goes on from its checkpoint, a finished one is never repeated.

A process holds a lock on a cell's folder while it runs it, and writes the result before it lets go. The lock ends with the
process, however that ends. So several processes, started together or by several people, share the cells of one folder.
"""

import fcntl
import math
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import torch

from labelwise.errors import Interrupted, LabelwiseError
from labelwise.interruption import stopping, unbroken
from labelwise.training.distribution import choose_device
from labelwise.training.stages import Run
from labelwise_papers.reproduce.cells import Cell
from labelwise_papers.reproduce.measures import measure
from labelwise_papers.reproduce.results import Entry, append_result, read_results
from labelwise_papers.reproduce.sources import read_source
from labelwise_papers.reproduce.subject import Subject
from labelwise_papers.reproduce.surroundings import surroundings

Tell = Callable[[str], None]
STOPPED = "Stopped; checkpoints are written. Run the same command again, and it goes on."
STOP_SECONDS = 60  # for workers to write their checkpoints


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where cells are run.

    Attributes:
        out: the folder of results, checkpoints and pictures.
        root: where benchmarks lie; None is the variable ``LABELWISE_DATA``.
        device: ``auto``, ``cpu`` or ``cuda``.
        threads: of torch; None leaves it as it is.
    """

    out: Path
    root: Path | None = None
    device: str = "auto"
    threads: int | None = None


def run_cells(cells: Sequence[Cell], place: Place, tell: Tell) -> list[str]:
    """Run the cells that have no result yet, one after another; return what failed, in words.

    Args:
        cells: what is wanted.
        place: where.
        tell: is told what begins and what is done.
    """
    if place.threads:
        torch.set_num_threads(place.threads)
    failures = []
    for number, cell in enumerate(cells, 1):
        if is_done(cell, place.out):
            continue
        with _claimed(cell, place.out) as own:
            if not own:
                tell(f"{cell.title}: another process is at it")
                continue
            if is_done(cell, place.out):
                shutil.rmtree(_folder(cell, place.out), ignore_errors=True)
                continue
            tell(f"[{number}/{len(cells)}] {cell.title}")
            try:
                entry = run_cell(cell, place)
            except (Interrupted, KeyboardInterrupt):
                raise Interrupted(STOPPED) from None
            except Exception as error:  # one cell that fails, for want of memory perhaps, must not stop a night's work
                why = str(error) if isinstance(error, LabelwiseError) else traceback.format_exc()
                failures.append(f"{cell.title}: {error}")
                tell(f"{cell.title} failed: {why}")
                continue
            append_result(place.out, entry)
            shutil.rmtree(_folder(cell, place.out), ignore_errors=True)
    return failures


def is_done(cell: Cell, out: Path) -> bool:
    """Return whether a cell has a result."""
    return any(entry["key"] == cell.key for entry in read_results(out))


def run_cell(cell: Cell, place: Place) -> Entry:
    """Return the result of one cell, as it is written."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak of memory is counted from here
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    subject = Subject(
        name=f"{cell.recipe.paper}-{cell.recipe.table}-{cell.data}-{cell.row.name}-{cell.seed}".replace(
            "/", "_"
        ).replace(" ", "_"),
        data=read_source(cell.source, place.root, cell.seed),
        method=cell.recipe.method(cell.row, cell.data),
        run=Run(seed=cell.seed, device=place.device, folder=_folder(cell, place.out) / "fit"),
        pictures=place.out / "pictures",
        root=place.root,
    )
    figures = measure(subject, cell.measures, cell.options)
    fitted = subject.__dict__.get("classifier")
    return {
        "key": cell.key,
        "recipe": cell.recipe.name,
        "data": cell.data,
        "row": cell.row.name,
        "seed": cell.seed,
        "quick": cell.quick,
        "figures": {name: _finite(value) for name, value in figures.items()},
        "seconds": round(time.perf_counter() - begun, 2),
        "training_seconds": None if fitted is None else fitted.origin.summary.get("training", {}).get("seconds"),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "peak_device_mib": round(torch.cuda.max_memory_allocated() / 2**20) if torch.cuda.is_available() else None,
        "configuration": cell.configuration,
        **surroundings(choose_device(place.device)),
    }


def _finite(value: Any) -> Any:
    """Return a figure as JSON can hold it: what is no number is None."""
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return [_finite(each) for each in value] if isinstance(value, list) else value


def _folder(cell: Cell, out: Path) -> Path:
    return out / "cells" / cell.key


@contextmanager
def _claimed(cell: Cell, out: Path) -> Iterator[bool]:
    """Yield whether this process alone may run a cell now; others are refused until it lets go or ends."""
    folder = _folder(cell, out)
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _locked(file)
    finally:
        os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with stopping(""):
        try:
            run_cells(cells, place, lambda text: print(text, file=sys.stderr, flush=True))
        except (Interrupted, KeyboardInterrupt):
            os._exit(1)  # its checkpoint is written


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


@unbroken()
def _stop(workers: Sequence[Any]) -> None:
    """Tell the workers to stop, and wait until they have written their checkpoints."""
    started = [worker for worker in workers if worker.pid is not None]
    for worker in started:
        worker.terminate()
    for worker in started:
        worker.join(STOP_SECONDS)
        if worker.exitcode is None:
            worker.kill()
