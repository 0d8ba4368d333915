"""Zero-shot figures of methods over repeats, one JSON line for each, and a table of means with 95 % intervals.

    LABELWISE_DATA=FOLDER python benchmarks/zero_shot.py --data cub/captions --methods eszsl,clarel --repeats 10 \
        --out results.jsonl [--set clarel.sentences=minilm] [--sweep clarel.share=0,0.5,1] [--threads 1]
    python benchmarks/zero_shot.py --out results.jsonl --table
    python benchmarks/zero_shot.py --merge a.jsonl b.jsonl

A cell is one fit: data, method, settings, and a seed, which is the number of the repeat. The seed changes the draw of the
labels held out to choose settings and the gap, the start and the order of training; the test images stay the same. Cells
that the file has already are skipped, so a run that was stopped goes on where it was. Several processes may run at once, each
with a file of its own. ``--sweep`` runs a method once for each value. A setting without the name of a method in front goes
to all methods. ``seconds`` are those of ``fit``, the trial on held-out labels included; the first fit of a process also
pays for what is loaded once.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student

import labelwise
from labelwise.data import load
from labelwise.data.dataset import Dataset
from labelwise.data.sentences import _minilm
from labelwise.distributed import choose_device
from labelwise.errors import DataError, LabelwiseError, UsageError
from labelwise.evaluate.zero_shot import evaluate_zero_shot
from labelwise.fitting import fit
from labelwise.methods import Method, method_class
from labelwise.metrics import harmonic_mean
from labelwise.ops.balance import BalanceCurve
from labelwise.settings import override, to_plain
from labelwise.training import Run

Entry = dict[str, Any]
GAPS = tuple(step / 200 for step in range(51))  # alpha, where a gap scales distances
UNSEEN = tuple(step / 100 for step in range(101))  # unseen accuracies at which the curve is kept
COLUMNS = {
    "ZSL": "zero_shot",
    "u": "unseen",
    "s": "seen",
    "H": "harmonic",
    "H without gap": "harmonic_without_gap",
    "AUSUC": "area",
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One fit to be measured."""

    data: str
    method: Method
    seed: int

    @property
    def head(self) -> Entry:
        """What tells this cell from others, as plain values."""
        return {"data": self.data, "method": self.method.name, "settings": to_plain(self.method), "seed": self.seed}


def key_of(entry: Entry) -> str:
    """Return what tells a measured cell from others: data, method, settings and seed."""
    return canonical([entry["data"], entry["method"], entry["settings"], entry["seed"]])


def canonical(value: Any) -> str:
    """Return plain values as text that is the same for 1 and 1.0, and for any order of keys."""
    return json.dumps(json.loads(json.dumps(value), parse_int=float), sort_keys=True)


def variants(names: Sequence[str], sets: Sequence[str] = (), sweeps: Sequence[str] = ()) -> list[Method]:
    """Return the methods of these names with their settings, once for each value of each sweep."""
    found: dict[str, Method] = {}
    for name in names:
        kind = method_class(name)
        if not kind.zero_shot:
            raise UsageError(
                f'Method "{name}" cannot score labels that have no images, so there is nothing to measure.'
            )
        base = override(kind(), dict(_own(sets, name, names)))
        swept = [(key, value) for key, values in _own(sweeps, name, names) for value in values.split(",")]
        for method in [override(base, {key: value}) for key, value in swept] or [base]:
            found.setdefault(canonical([name, to_plain(method)]), method)
    return list(found.values())


def _own(pairs: Sequence[str], name: str, names: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Yield key and value of those ``[method.]key=value`` that are meant for one method."""
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not value:
            raise UsageError(f'A setting is given as [method.]key=value; given "{pair}".')
        first, _, rest = key.partition(".")
        if first not in names or first == name:
            yield (rest if first == name else key), value


def run_cells(cells: Sequence[Cell], out: Path, read: Callable[[str, int], Dataset], device: str = "cpu") -> None:
    """Measure the cells that a file does not have, each appended when done; ``read`` loads a name with a seed."""
    keep = lru_cache(maxsize=1)(read)
    done = {key_of(entry) for entry in read_cells([out])} if out.exists() else set()
    about = surroundings(device)
    for cell in cells:
        if key_of(cell.head) in done:
            continue
        figures = measure(keep(cell.data, cell.seed), cell.method, Run(seed=cell.seed, device=device))
        entry = {**cell.head, **figures, **about}
        append(out, entry)
        print(f"{cell.data} {cell.method.name} {cell.seed}: H {100 * entry['harmonic']:.1f}", flush=True)


def measure(data: Dataset, method: Method, run: Run) -> Entry:
    """Return the figures of one fit on the test split."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak of memory is counted from here
    begun = time.perf_counter()
    classifier = fit(data, method, run)
    if classifier.model.device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    result = evaluate_zero_shot(classifier, data.split("test"), data.labels)
    gaps = GAPS if classifier.model.balance == "scale" else ()
    return {
        **{one.name: getattr(result, one.name) for one in fields(result) if one.name != "curve"},
        "validation_harmonic": classifier.summary.get("balance", {}).get("harmonic"),
        "gaps": gaps,
        "harmonic_at_gaps": [round(harmonic_mean(*result.curve.at(gap)), 5) for gap in gaps],
        "seen_at_unseen": seen_at(result.curve),
        "seconds": round(seconds, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def seen_at(curve: BalanceCurve) -> list[float]:
    """Return the best seen accuracy where unseen accuracy is at least 0, 0.01, ... 1; 0 where that is out of reach."""
    places = torch.searchsorted(curve.unseen, torch.tensor(UNSEEN, dtype=curve.unseen.dtype)).tolist()
    return [round(float(curve.seen[place]), 5) if place < len(curve.seen) else 0.0 for place in places]


def surroundings(device: str) -> Entry:
    """Return what the figures were measured with."""
    command = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=12"]
    commit = ""
    with suppress(OSError):  # without git, or outside a checkout, it stays unknown
        commit = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    chosen = choose_device(device)
    name = f"cuda: {torch.cuda.get_device_name(chosen)}" if chosen.type == "cuda" else chosen.type
    versions = {"torch": torch.__version__, "labelwise": labelwise.__version__, "commit": commit or "unknown"}
    return {**versions, "device": name, "threads": torch.get_num_threads()}


def append(path: Path, entry: Entry) -> None:
    """Append one line to a file in a single write, after cutting off what an interrupted write has left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(entry, allow_nan=False).encode() + b"\n"
    with open(path, "ab+", buffering=0) as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(line)
        os.fsync(file.fileno())


def read_cells(paths: Iterable[Path]) -> list[Entry]:
    """Return the cells of these files, each once (the last counts); a last line without its end is left out."""
    found: dict[str, Entry] = {}
    for path in paths:
        if not path.exists():
            raise DataError(f'No results at "{path}": no such file.')
        for number, line in enumerate(path.read_text("utf-8").split("\n")[:-1], 1):
            try:
                entry = json.loads(line)
                found[key_of(entry)] = entry
            except (json.JSONDecodeError, KeyError, TypeError):
                raise DataError(f'Line {number} of "{path}" is no result of this benchmark. Remove it.') from None
    return list(found.values())


def grouped(cells: Iterable[Entry]) -> dict[tuple[str, str, str], list[Entry]]:
    """Return the repeats of each (data, method, settings); settings are what differs from the defaults, as text."""
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for cell in cells:
        name = (cell["data"], cell["method"], ", ".join(f"{k}={v}" for k, v in changed(cell).items()))
        found.setdefault(name, []).append(cell)
    return found


def changed(cell: Entry) -> dict[str, str]:
    """Return the settings of a cell that differ from the defaults, under dotted keys."""
    usual = _flat(to_plain(method_class(cell["method"])()))
    return {key: text for key, text in _flat(cell["settings"]).items() if usual.get(key) != text}


def _flat(settings: Entry, prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = f"{value:.12g}" if isinstance(value, float) else str(value)
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of its 95 % interval by the t distribution; that is NaN for a single value."""
    n = len(values)
    if n < 2:
        return float(np.mean(values)), math.nan
    return float(np.mean(values)), float(student.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def table(cells: Iterable[Entry]) -> str:
    """Return a Markdown table with a row for each (data, method, settings); accuracies are per cent."""
    lines = ["| data | method | settings | " + " | ".join([*COLUMNS, "seconds", "n"]) + " |"]
    lines.append("|" + "---|" * (len(COLUMNS) + 5))
    for (data, method, settings), group in grouped(cells).items():
        texts = [_text([100 * cell[name] for cell in group]) for name in COLUMNS.values()]
        texts += [_text([cell["seconds"] for cell in group]), str(len(group))]
        lines.append(f"| {data} | {method} | {settings or 'defaults'} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _text(values: Sequence[float]) -> str:
    mean, half = interval(values)
    return f"{mean:.1f}" if math.isnan(half) else f"{mean:.1f} +- {half:.1f}"


@contextmanager
def sentence_vectors(path: Path) -> Iterator[None]:
    """Give the transformer the sentence vectors of a file; without that file, write in the end what it has computed."""
    known = path.exists()
    if known:
        held = torch.load(path, weights_only=True)
        _minilm().read.update(zip(held["caps"], held["minilm"].float(), strict=True))
    try:
        yield
    finally:
        if not known and (read := _minilm().read):
            part = path.with_name(path.name + ".part")
            torch.save({"caps": list(read), "minilm": torch.stack(list(read.values()))}, part)
            part.replace(path)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cub/captions", help="names, separated by commas")
    parser.add_argument("--methods", default="eszsl,clarel", help="names, separated by commas")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first repeat")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="[METHOD.]KEY=VALUE")
    parser.add_argument("--sweep", nargs="+", action="extend", default=[], metavar="[METHOD.]KEY=V1,V2,...")
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"))
    parser.add_argument("--root", help="where the data lie; the default is $LABELWISE_DATA")
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda")
    parser.add_argument("--threads", type=int, help="of torch, on the CPU")
    parser.add_argument("--sentence-cache", type=Path, metavar="FILE.pt", help="vectors of minilm; made if absent")
    parser.add_argument("--table", action="store_true", help="only print the table of --out")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="FILE", help="only print one table of these files")
    return parser


def run_command(options: argparse.Namespace) -> None:
    """Measure what the options ask for."""
    if options.threads:
        torch.set_num_threads(options.threads)
    methods = variants(options.methods.split(","), options.set, options.sweep)
    seeds = range(options.first, options.first + options.repeats)
    cells = [Cell(data=d, method=m, seed=s) for d in options.data.split(",") for s in seeds for m in methods]
    reads = any(getattr(method, "sentences", None) == "minilm" for method in methods)
    with sentence_vectors(options.sentence_cache) if reads and options.sentence_cache else nullcontext():
        run_cells(cells, options.out, lambda name, seed: load(name, seed=seed, root=options.root), options.device)


def main() -> None:
    options = arguments().parse_args()
    try:
        if not options.table and not options.merge:
            run_command(options)
        print(table(read_cells(options.merge or [options.out])))
    except LabelwiseError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
