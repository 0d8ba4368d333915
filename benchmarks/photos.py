"""What `fit` makes of photos, beside what a person would do instead: one table over sets, examples a label and rivals.

    python benchmarks/photos.py FOLDER NAME=DATA [NAME=DATA ...] [--jobs N] [--keep docs/results/measured/photos.jsonl]

Each DATA is a folder of photos, a table or an ``.npz`` pack of pictures or features (``photo_sets.py`` makes those of the page). Pictures are
encoded once, by the frozen encoder that ``fit`` takes for a person's own; the features stay in FOLDER as ``NAME.npz``. All rivals get the same
features: ``labelwise`` is ``lw.fit`` without options; ``version 0.1`` is run from its own sources where ``--earlier`` says where
they lie (``git archive cbc9b61 src | tar x -C EARLIER``).

Every line of FOLDER/NAME.jsonl is one measured cell, written when it is done, so a run that was stopped goes on where it was: quick cells and those of
``labelwise`` come first. A cell runs in a process of its own with one thread, no longer than ``--limit``: seconds are those of the head alone,
memory is what it needed beyond the features. ``--alone`` measures one draw of some cells once more, one after another, for honest seconds.
Draws differ in the training pictures; the test pictures are those of the data, or what ``fit`` would set aside. Where the data name
domains, all but one are trained on and that one is tested, too.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import signal
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from photos_rivals import ADDING, EARLIER, LEAD, REFITTED, RIVALS, TUNED, earlier_library
from photos_tables import kept
from threadpoolctl import threadpool_limits

import labelwise as lw
from labelwise.core.metrics import accuracy, expected_calibration_error
from labelwise.fitting.encoding import write_features
from labelwise.fitting.torch_encoding import encode_dataset
from labelwise.images.dataset import Dataset, Split
from labelwise.methods import Encoder
from labelwise.train.networks.encoder import PRETRAINED

SHOTS = (1, 2, 5, 10, 20, 0)  # training pictures a label; 0 is all
HEADS = {"softmax": (5, 20, 0), "indicator": (5, 20, 0), "prototype": (5, 20)}  # shots of the slow ones
TAUGHT = (1, 2, 5, 20)  # examples of a label that is added
NEW, OLD = 0.2, 20  # share of the labels that are added later; training pictures of each of the others
TINY = 1e-12  # least probability that a likelihood is told of
COST = {
    LEAD: 0,
    "nearest mean": 0,
    "nearest neighbours": 0,
    "logistic regression": 3,
    "logistic regression, scaled": 2,
    TUNED: 50,
    "prototype": 80,
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One thing to measure."""

    name: str  # of the set
    rival: str
    shots: int  # training pictures a label; 0 is all
    draw: int = 0
    taught: bool = False  # whether labels are added later
    domain: str = ""  # the one that is tested, not trained on
    alone: bool = False  # whether nothing else ran


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where features and results are kept")
    parser.add_argument("sets", nargs="*", metavar="NAME=DATA", help="none keeps what was measured")
    parser.add_argument("--earlier", type=Path, help="sources of version 0.1; without, that is not measured")
    parser.add_argument("--shots", type=int, nargs="+", default=SHOTS, help="training pictures a label; 0 is all")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--jobs", type=int, default=1, help="cells measured at a time")
    parser.add_argument("--fit-only", action="store_true", help="add no labels later")
    parser.add_argument("--alone", action="store_true", help="measure seconds and memory of some cells with one job")
    parser.add_argument("--limit", type=int, default=120, help="seconds that one cell may take")
    parser.add_argument("--minutes", type=float, default=1e6, help="after which no cell is begun")
    parser.add_argument("--keep", type=Path, help="the one file that all measured so far goes to, for results_pages.py")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    sources = dict(word.split("=", 1) for word in options.sets)
    sets = {name: features_of(options.folder / f"{name}.npz", source) for name, source in sources.items()}
    measure_all(sets, options)
    if options.keep:
        kept(options.folder, options.keep)


def measure_all(sets: dict[str, Dataset], options: argparse.Namespace) -> None:
    """Measure what is not yet measured, several cells at a time, the quickest first."""
    done = {Cell(**line["cell"]) for name in sets for line in lines_of(options.folder / f"{name}.jsonl")}
    left = [cell for name, data in sets.items() for cell in cells(name, data, options) if cell not in done]
    left.sort(key=lambda cell: cost(cell, sets[cell.name]))
    if left and not options.alone:
        versions = {"torch": torch.__version__, "sklearn": version("scikit-learn")}
        about = {**versions, "machine": f"{platform.machine()}, {os.cpu_count()} cores", "jobs": options.jobs}
        (options.folder / "machine.json").write_text(json.dumps(about))
    for count, line in enumerate(lines(sets, left, options), 1):
        with (options.folder / f"{line['cell']['name']}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        told = [f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in line.items() if k != "cell"]
        print(f"{count}/{len(left)}", *line["cell"].values(), *told, flush=True)


def lines(sets: dict[str, Dataset], left: Sequence[Cell], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the figures of cells as they are done, each measured by a process of its own, which forks so that data need not be sent."""
    fork, queue = multiprocessing.get_context("fork"), deque(left)
    running: dict[Any, tuple[Cell, ForkProcess]] = {}
    until = time.time() + 60 * options.minutes
    while running or (queue and time.time() < until):
        while queue and len(running) < (1 if options.alone else options.jobs) and time.time() < until:
            cell = queue.popleft()
            mine, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=measure, args=(theirs, sets[cell.name], cell, options))
            process.start()
            theirs.close()
            running[mine] = cell, process
        for pipe in wait(list(running)):
            cell, process = running.pop(pipe)
            figures: dict[str, Any]
            try:
                figures = cast(Connection, pipe).recv()
            except EOFError:
                process.join()
                late = process.exitcode == -signal.SIGALRM
                figures = {"error": f"takes more than {options.limit} s" if late else "broke down"}
            process.join()
            yield {"cell": asdict(cell), **figures}


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def cells(name: str, data: Dataset, options: argparse.Namespace) -> Iterator[Cell]:
    """Yield all that is to be measured of a set; all pictures are one draw, and one picture a label leaves no C to choose."""
    rivals = [rival for rival in options.rivals if rival != EARLIER or options.earlier]
    if options.alone:
        yield from (
            Cell(name=name, rival=rival, shots=shots, alone=True)
            for rival in rivals
            for shots in (5, 0)
            if shots in HEADS.get(rival, SHOTS)
        )
        return
    for shots in options.shots:
        for draw in range(options.draws if shots else 1):
            some = [rival for rival in rivals if rival not in HEADS or shots in HEADS[rival]]
            yield from (Cell(name=name, rival=r, shots=shots, draw=draw) for r in some if shots != 1 or r != TUNED)
    adding = [rival for rival in ADDING if rival.removesuffix(REFITTED) in rivals and not options.fit_only]
    yield from (Cell(name=name, rival=r, shots=OLD, draw=d, taught=True) for d in range(options.draws) for r in adding)
    domains = sorted(set(data.split("test").domains))
    yield from (Cell(name=name, rival=r, shots=0, domain=d) for d in domains for r in rivals if r not in HEADS)


def cost(cell: Cell, data: Dataset) -> float:
    """Return about how long a cell takes, in any unit; what the table is about takes no time at all."""
    images = len(data.labels) * (cell.shots or 60)
    return 0.0 if cell.rival == LEAD else COST.get(cell.rival, 20) * images * (3 if cell.taught else 1) + images


def features_of(file: Path, source: str) -> Dataset:
    """Return the features of a data set, from the file that keeps them."""
    if not file.exists():
        encoder = Encoder(backbone=PRETRAINED, frozen=True)
        data = lw.data.load(source, size=None if is_features(source) else encoder.side())
        if data.features is not None:
            return data
        begun = time.perf_counter()
        data = encode_dataset(data, encoder)
        print(f"{file.stem}: encoded in {time.perf_counter() - begun:.0f} s", flush=True)
        write_features(data, file)
    return lw.data.load(file)


def is_features(source: str) -> bool:
    return Path(source).suffix in (".npz", ".npy") and (
        Path(source).suffix == ".npy" or "features" in np.load(source).files
    )


def measure(pipe: Connection, data: Dataset, cell: Cell, options: argparse.Namespace) -> None:
    """Send the figures of one cell, or why there are none; the system ends the process where it takes too long."""
    signal.alarm(options.limit)
    torch.set_num_threads(1)
    threadpool_limits(1)
    warnings.simplefilter("ignore")
    if cell.rival == EARLIER:
        earlier_library(options.earlier)
    before = memory()
    try:
        figures = taught(data, cell) if cell.taught else tested(data, cell)
        figures["memory_mb"] = memory() - before
    except Exception as error:
        figures = {"error": f"{type(error).__name__}: {error}"}
    pipe.send(figures)


def memory() -> float:
    """Return the most memory that this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tested(data: Dataset, cell: Cell) -> dict[str, Any]:
    """Return accuracy, calibration and seconds of a rival on a draw of the training pictures."""
    pool, test = pool_of(data), data.split("test")
    if cell.domain:
        test = test.select(torch.tensor([i for i, domain in enumerate(test.domains) if domain == cell.domain]))
        pool = pool.select(torch.tensor([i for i, domain in enumerate(pool.domains) if domain != cell.domain]))
    train = drawn(pool, cell.shots, cell.draw)
    begun, processor = time.perf_counter(), time.process_time()
    chances, told = RIVALS[cell.rival](train, test.images)
    seconds, busy = time.perf_counter() - begun, time.process_time() - processor
    sure, best = chances.double().max(1)
    likelihood = chances.double().gather(1, test.targets[:, None]).clamp_min(TINY).log().mean()
    return {
        "accuracy": accuracy(best, test.targets),
        "as_trained": as_trained(best == test.targets, test.targets, train.targets),
        "ece": expected_calibration_error(sure, best == test.targets),
        "nll": -float(likelihood),
        "seconds": seconds,
        "processor": busy,
        "images": len(train),
        "tested": len(test),
        **told,
    }


def as_trained(right: torch.Tensor, targets: torch.Tensor, trained: torch.Tensor) -> float:
    """Return how often answers are right, each label counted as often as in training: what leave-one-out is an estimate of."""
    k = int(torch.cat([targets, trained]).max()) + 1
    tested, shares = (torch.bincount(each, minlength=k).double() for each in (targets, trained))
    weights = (shares / tested.clamp_min(1))[targets]
    return float((weights * right).sum() / weights.sum())


def taught(data: Dataset, cell: Cell) -> dict[str, Any]:
    """Return how often a rival is right on labels that were added with few examples, and on the others."""
    k = len(data.labels)
    order = torch.randperm(k, generator=torch.Generator().manual_seed(cell.draw))
    new = order[: max(1, round(NEW * k))]
    pool, test = pool_of(data), data.split("test")
    added = torch.isin(pool.targets, new)
    old = drawn(pool.select((~added).nonzero()[:, 0]), cell.shots, cell.draw)
    rest = pool.select(added.nonzero()[:, 0])
    is_new = torch.isin(test.targets, new)
    begun = time.perf_counter()
    figures: dict[str, Any] = {}
    answers = ADDING[cell.rival](old, [drawn(rest, number, cell.draw) for number in TAUGHT], test.images)
    for number, best in zip(TAUGHT, answers, strict=True):
        right = (best == test.targets).double()
        figures |= {f"new_{number}": float(right[is_new].mean()), f"old_{number}": float(right[~is_new].mean())}
    return {**figures, "seconds": time.perf_counter() - begun, "images": len(old)}


def pool_of(data: Dataset) -> Split:
    """Return all pictures that may be trained on."""
    train = data.split("train")
    return train.join(data.split("val")) if "val" in data.splits and len(data.split("val")) else train


def drawn(split: Split, shots: int, draw: int) -> Split:
    """Return so many pictures a label, or all, in an order of this draw."""
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(draw))
    groups = [order[split.targets[order] == label] for label in split.present]
    return split.select(torch.cat([group[: shots or None] for group in groups]))


if __name__ == "__main__":
    main()
