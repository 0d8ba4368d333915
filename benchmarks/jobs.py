"""Answers about very many small pictures: one process, several, and Ray, with equal rows; and what kills on the way do.

    python benchmarks/jobs.py FOLDER [--pictures 100000] [--workers 2] [--side 64 --data finches] [--ways one several ray killed ray-killed]

FOLDER gets pictures of 32 x 32, or ``--side`` (made anew where they are missing), a classifier of the embedded digits, or ``--data``, and the answers. Each way is ``labelwise classify MODEL
pictures --out ...`` in the shell, start and imports included. "killed" ends one process of the pool, and then the whole command, by SIGKILL on the way, and runs the command again; "ray-killed" ends
two actors of Ray, one after another. Processor seconds are those of all processes that the command waited for, so of Ray's own only some.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.dataset
from PIL import Image


def pictures(folder: Path, count: int, side: int) -> Path:
    """Return a folder of so many pictures."""
    rng = np.random.default_rng(0)
    for i in range(count):
        file = folder / "pictures" / f"{i // 1000:04d}" / f"{i:07d}.png"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8)).save(file, compress_level=1)
    return folder / "pictures"


def command(folder: Path, name: str, *words: str) -> tuple[Path, list[str]]:
    """Return where answers go, and the words of the shell."""
    out = folder / f"{name}.parquet"
    return out, [
        sys.executable,
        "-m",
        "labelwise",
        "classify",
        str(folder / "model.lw"),
        str(folder / "pictures"),
        "--out",
        str(out),
        "--json",
        *words,
    ]


def timed(folder: Path, name: str, *words: str) -> float:
    """Return the wall seconds of a run from nothing."""
    out, call = command(folder, name, *words)
    shutil.rmtree(out, ignore_errors=True)
    begun = time.perf_counter()
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def killed(folder: Path, name: str, *words: str) -> float:
    """Return the wall seconds of a run of which a worker, and then the whole, was killed, and of the one that goes on."""
    out, call = command(folder, name, *words)
    shutil.rmtree(out, ignore_errors=True)
    begun = time.perf_counter()
    process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def strike() -> None:
        for share in (8, 4):
            while len(list(out.glob("part-*"))) < len(list((folder / "pictures").iterdir())) * 2 // share:
                time.sleep(0.05)
            if share == 8:
                workers = subprocess.run(
                    ["pgrep", "-P", str(process.pid), "-f", "spawn_main"], capture_output=True, text=True, check=False
                ).stdout.split()
                os.kill(int(workers[0]), signal.SIGKILL)
        os.killpg(process.pid, signal.SIGKILL)

    striker = threading.Thread(target=strike)
    striker.start()
    process.wait()
    striker.join()
    print(f"  killed with {len(list(out.glob('part-*')))} files written", flush=True)
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def actors_killed(folder: Path, name: str, *words: str) -> float:
    """Return the wall seconds of a run on Ray of which two actors were killed."""
    out, call = command(folder, name, *words)
    shutil.rmtree(out, ignore_errors=True)
    begun, gone = time.perf_counter(), set[str]()
    process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    total = len(list((folder / "pictures").iterdir())) * 2
    for share in (8, 3):
        while len(list(out.glob("part-*"))) < total // share and process.poll() is None:
            time.sleep(0.05)
        found = subprocess.run(["pgrep", "-f", "^ray::RayWorker"], capture_output=True, text=True, check=False).stdout
        number = next(each for each in found.split() if each not in gone)
        gone.add(number)
        os.kill(int(number), signal.SIGKILL)
        print(
            f"  killed actor {number} of {found.split()} with {len(list(out.glob('part-*')))} files written", flush=True
        )
    assert process.wait() == 0
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--ways", nargs="+", default=["one", "several", "ray", "killed", "ray-killed"])
    options = parser.parse_args()
    folder, workers = options.folder.absolute(), ["--workers", str(options.workers)]
    os.environ["OMP_NUM_THREADS"] = "1"
    pictures(folder, options.pictures, options.side)
    if not (folder / "model.lw").exists():
        fit = [
            "fit",
            options.data,
            "--method",
            "softmax",
            "--encoder",
            "none",
            "--set",
            "epochs=3",
            "--device",
            "cpu",
            "--out",
            str(folder / "model.lw"),
        ]
        subprocess.run(
            [sys.executable, "-m", "labelwise", *fit], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    ways = {
        "one": ([], timed),
        "several": (workers, timed),
        "ray": (["--workers", "ray:" + workers[-1]], timed),
        "killed": (workers, killed),
        "ray-killed": (["--workers", "ray:" + workers[-1]], actors_killed),
    }
    first, seconds = None, {}
    for name in options.ways:
        words, way = ways[name]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds[name] = way(folder, name, *words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        table = pyarrow.dataset.dataset(folder / f"{name}.parquet").to_table()
        rows = table.num_rows, len(set(table["file"].to_pylist()))
        first = table if first is None else first
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3
        print(
            f"{name}: {seconds[name]:.1f} s (processor {processor:.1f}), {seconds[options.ways[0]] / seconds[name]:.2f} x; rows {rows[0]}, of them different files {rows[1]}; equal to the first: {table.equals(first)}; largest process so far {peak:.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
