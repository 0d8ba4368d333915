"""Seconds of one `labelwise classify` in the shell beside `python -c "import torch"`, in turn, in one run.

    python benchmarks/start.py MODEL PICTURE [--rounds 7]

MODEL is a saved classifier, PICTURE a file. Both wall and processor seconds are medians; on a busy machine only the second mean much.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence


def cost(command: Sequence[str]) -> tuple[float, float]:
    """Return wall and processor seconds of a command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("picture")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    python = [sys.executable]
    ways = {
        "import torch": [*python, "-c", "import torch"],
        "labelwise --help": [*python, "-m", "labelwise", "--help"],
        "labelwise classify": [*python, "-m", "labelwise", "classify", options.model, options.picture],
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, command in ways.items():
            times[name].append(cost(command))
    print("| command | wall s | processor s | x import torch (processor) |\n|---|---|---|---|")
    base = statistics.median(cpu for _, cpu in times["import torch"])
    for name, pairs in times.items():
        wall, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(f"| `{name}` | {wall:.2f} | {cpu:.2f} | {cpu / base:.2f} |")


if __name__ == "__main__":
    main()
