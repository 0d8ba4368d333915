"""The toy experiment of invertible zero-shot flows over seeds: one JSON line for each run, a table and a picture.

    python benchmarks/izf_toy.py --out toy.jsonl [--kinds flow,gan] [--seeds 5] [--steps 4000]
    python benchmarks/izf_toy.py --out toy.jsonl --table [--picture docs/pictures/izf-toy.png]

Runs that the file has already are skipped, so one that was stopped goes on where it was; several processes may run at once,
each with a file of its own and ``--table a.jsonl b.jsonl`` for all of them. A run succeeds where the centre of what is
generated for the unseen label is within 0.15 of (1, 1) and every seen centre within 0.1 of its own. The picture shows the run
of median unseen error of each kind.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_args

import torch

from labelwise.errors import DataError, UsageError, listing
from labelwise.toy import Kind, draw_toy, run_toy

Entry = dict[str, Any]
UNSEEN, SEEN = 0.15, 0.1  # how far centres may be off
DRAWN: tuple[Kind, ...] = ("flow", "gan", "vae")


def measure(kind: Kind, seed: int, steps: int) -> Entry:
    """Return the figures of one run."""
    begun = time.perf_counter()
    found = run_toy(kind, seed, steps)
    return {
        "kind": kind,
        "seed": seed,
        "steps": steps,
        "unseen": found.unseen.tolist(),
        "unseen_error": found.unseen_error,
        "seen_error": found.seen_error,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def run_all(kinds: Sequence[Kind], seeds: int, steps: int, out: Path) -> None:
    """Append the runs that a file does not have, seed by seed."""
    done = {(entry["kind"], entry["seed"], entry["steps"]) for entry in (read([out]) if out.exists() else [])}
    for seed in range(seeds):
        for kind in kinds:
            if (kind, seed, steps) in done:
                continue
            entry = measure(kind, seed, steps)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
            print(f"{kind} {seed}: unseen {entry['unseen_error']:.3f}, seen {entry['seen_error']:.3f}", flush=True)


def read(files: Sequence[Path]) -> list[Entry]:
    """Return the runs in these files; a last line that was cut off is left out."""
    found = []
    for file in files:
        if not file.exists():
            raise DataError(f"There is no file {file}. Run the benchmark with --out {file} first.")
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                if number < len(lines):
                    raise DataError(f"Line {number} of {file} is no JSON. Remove it, and run again.") from None
    return found


def succeeds(entry: Entry) -> bool:
    """Return whether all centres are where they should be."""
    return bool(entry["unseen_error"] < UNSEEN and entry["seen_error"] < SEEN)


def table(entries: Sequence[Entry]) -> str:
    """Return the means and standard deviations of every kind as a table in Markdown."""
    lines = [
        "| generator | runs | unseen centre off by | worst seen centre off by | succeeds |",
        "|---|---|---|---|---|",
    ]
    for kind in get_args(Kind):
        runs = [entry for entry in entries if entry["kind"] == kind]
        if runs:
            errors = [spread([entry[key] for entry in runs]) for key in ("unseen_error", "seen_error")]
            share = f"{sum(map(succeeds, runs))} of {len(runs)}"
            lines.append(f"| {' | '.join([f'`{kind}`', str(len(runs)), *errors, share])} |")
    return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    """Return a mean and standard deviation in words; a run that went astray makes them infinite."""
    if not all(math.isfinite(value) for value in values):
        return "diverges"
    return f"{fmean(values):.2f} ± {stdev(values) if len(values) > 1 else 0.0:.2f}"


def draw(entries: Sequence[Entry], path: Path) -> None:
    """Write the data and what the median run of the flow, the GAN and the autoencoder generates."""
    chosen = []
    for kind in DRAWN:
        runs = sorted((e for e in entries if e["kind"] == kind), key=lambda e: float(e["unseen_error"]))
        if not runs:
            raise UsageError(f"The picture needs runs of {listing(DRAWN)}; there are none of {kind}.")
        middle = runs[(len(runs) - 1) // 2]
        chosen.append(run_toy(kind, middle["seed"], middle["steps"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    draw_toy(chosen).savefig(path, dpi=90)


def main(words: Sequence[str] | None = None) -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("izf_toy.jsonl"))
    parser.add_argument("--kinds", default=",".join(get_args(Kind)))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", type=Path, nargs="*", metavar="FILE", help="run nothing; use --out and these files")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args(words)
    torch.set_num_threads(given.threads)
    if given.table is None:
        run_all(given.kinds.split(","), given.seeds, given.steps, given.out)
    entries = read(given.table or [given.out])
    print(table(entries))
    if given.picture:
        draw(entries, given.picture)


if __name__ == "__main__":
    main()
