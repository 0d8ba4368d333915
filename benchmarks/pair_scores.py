"""Seconds and peak memory of the similarity of every pair of codes: factorised, and by concatenating the pairs.

    python benchmarks/pair_scores.py [--rows 2000] [--columns 2000] [--size 256] [--hidden 512] [--layers 1]
                                     [--device cpu|cuda] [--threads N] [--rounds N] [--json FILE]

Both work in pieces of bounded memory and give the same scores; the concatenation builds [piece, m, 2d] pairs and passes them
through all layers. They take turns in every round after a warm-up, and the least time of each counts. The concatenation
may be timed on a part of the rows (--share), which is then said. Peak memory is what a process or a GPU gains beyond codes
and weights, the result included. TF32 is off, so that both compute in single precision.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import leaky_relu

from labelwise.methods.prototype.learned_similarity import Similarity, SimilaritySettings

PIECE = {"cpu": 2**22, "cuda": 2**27}  # numbers of concatenated pairs at a time; fewer or more are slower or no faster
WAYS = ("factorised", "concatenated")


def concatenated(model: Similarity, a: Tensor, b: Tensor) -> Tensor:
    """Return S ``[n, m]`` as it is written, in pieces."""
    out = a.new_empty(len(a), len(b))
    across = min(len(b), max(1, PIECE[a.device.type] // (2 * a.shape[1])))
    down = max(1, PIECE[a.device.type] // (2 * a.shape[1] * across))
    for j in range(0, len(b), across):
        right = b[j : j + across]
        for i in range(0, len(a), down):
            left = a[i : i + down]
            shape = (len(left), len(right), a.shape[1])
            hidden = leaky_relu(model.input(torch.cat([left[:, None].expand(shape), right.expand(shape)], 2)), 0.1)
            if model.middle is not None:
                hidden = leaky_relu(model.middle(hidden), 0.1)
            out[i : i + down, j : j + across] = model.output(hidden)[..., 0]
    return out


def seconds(work: Callable[[], Tensor], device: str) -> float:
    begun = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def peak(way: str, work: Callable[[], Tensor], device: str) -> float:
    """Return the megabytes that one run gains, its result included; on a CPU in a process of its own."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    command = [sys.executable, __file__, *sys.argv[1:], "--peak", way]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def resident(work: Callable[[], Tensor]) -> float:
    """Return the megabytes by which the largest resident size of this process grows (Linux; elsewhere not known)."""
    try:
        before = largest_resident(forget=True)
        work()
        return largest_resident() - before
    except OSError:
        return float("nan")


def largest_resident(forget: bool = False) -> float:
    """Return the largest resident size of this process in megabytes; forget begins again at what it is now."""
    if forget:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--columns", type=int)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows that the concatenation is timed on")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", choices=WAYS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    usual = 10_000 if chosen.device == "cuda" else 2_000
    chosen.rows, chosen.columns = chosen.rows or usual, chosen.columns or usual
    return chosen


def ways(chosen: argparse.Namespace) -> dict[str, Callable[[], Tensor]]:
    """Return both ways to the scores; the concatenation takes a share of the rows."""
    torch.manual_seed(0)
    settings = SimilaritySettings(hidden=chosen.hidden, layers=chosen.layers)
    model = Similarity(chosen.size, settings).to(chosen.device).eval()
    a, b = (torch.randn(n, chosen.size, device=chosen.device) for n in (chosen.rows, chosen.columns))
    part = a[: max(1, round(chosen.share * chosen.rows))]
    return {"factorised": lambda: model(a, b), "concatenated": lambda: concatenated(model, part, b)}


@torch.no_grad()
def main() -> None:
    chosen = options()
    torch.backends.cuda.matmul.allow_tf32 = False
    if chosen.threads:
        torch.set_num_threads(chosen.threads)
    works = ways(chosen)
    if chosen.peak:
        print(resident(works[chosen.peak]))
        return
    found, literal = works["factorised"](), works["concatenated"]()
    apart = float((found[: len(literal)] - literal).abs().max())
    del found
    grown = chosen.rows / len(literal)
    rounds = [{way: seconds(work, chosen.device) for way, work in works.items()} for _ in range(chosen.rounds)]
    times = {way: min(each[way] for each in rounds) for way in WAYS}
    times["concatenated"] *= grown
    peaks = {way: peak(way, work, chosen.device) for way, work in works.items()}
    where = (
        torch.cuda.get_device_name()
        if chosen.device == "cuda"
        else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    table = Table(title=f"{chosen.rows} x {chosen.columns} codes of {chosen.size}; {where}; torch {torch.__version__}")
    for head in ("way", "seconds", "peak memory, MB"):
        table.add_column(head)
    for way in WAYS:
        table.add_row(way, f"{times[way]:.3f}", f"{peaks[way]:.0f}")
    Console().print(table)
    ratio = times["concatenated"] / times["factorised"]
    timed = "" if grown == 1 else f" (timed on {len(literal)} rows)"
    print(f"The concatenation takes {ratio:.1f} times as long{timed}; largest difference of a score {apart:.1e}.")
    if chosen.json:
        figures = {"seconds": times, "peak_mb": peaks, "ratio": ratio, "difference": apart, "where": where}
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
