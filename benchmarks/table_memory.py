"""What reading features costs in memory: the largest the process held while reading, over the size of the features.

    python benchmarks/table_memory.py [--rows 100000] [--size 512] [--kinds npy npz csv parquet]

Each kind of file is written to a temporary folder and read, both in processes of their own: a process inherits the peak of
the one that started it. Counted is the peak (ru_maxrss) less
what the process held before it began to read. ``parquet`` needs pyarrow and is left out without it.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

SUFFIXES = {"npy": ".npy", "npz": ".npz", "csv": ".csv", "parquet": ".parquet"}
BLOCK = 1000


def blocks(rows: int, size: int) -> Iterator[np.ndarray]:
    """Yield the features, a block of rows at a time."""
    drawn = np.random.default_rng(0)
    for start in range(0, rows, BLOCK):
        yield drawn.standard_normal((min(BLOCK, rows - start), size), dtype=np.float32)


def labels_of(rows: int) -> list[str]:
    return [f"label {i * 7919 % 100}" for i in range(rows)]


def write(kind: str, file: Path, rows: int, size: int) -> None:
    """Write the same features and labels as one kind of file."""
    labels = labels_of(rows)
    if kind == "csv":
        with file.open("w", encoding="utf-8") as stream:
            stream.write(",".join(["label", *(f"f{j}" for j in range(size))]) + "\n")
            for start, block in enumerate(blocks(rows, size)):
                for label, row in zip(labels[start * BLOCK :], block.tolist(), strict=False):
                    stream.write(f"{label}," + ",".join(f"{value:.7g}" for value in row) + "\n")
        return
    features = np.concatenate(list(blocks(rows, size)))
    if kind == "npy":
        np.save(file, features)
        file.with_suffix(".csv").write_text("\n".join(["label", *labels]) + "\n", encoding="utf-8")
    elif kind == "npz":
        np.savez_compressed(file, features=features, labels=np.array(labels))
    else:
        columns = {"label": labels} | {f"f{j}": features[:, j] for j in range(size)}
        import_module("pyarrow.parquet").write_table(import_module("pyarrow").table(columns), file)


def resident() -> int:
    """Return the bytes this process holds now (Linux), or its peak so far (elsewhere)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return peak()


def peak() -> int:
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else found * 1024


def measure(file: Path) -> None:
    """Read a file in this process and print what it cost."""
    from labelwise.images.sources.image_tables import table
    from labelwise.images.sources.packs import features

    if file.suffix == ".parquet":
        import_module("pyarrow.parquet")
    before, start = resident(), time.perf_counter()
    data = table(file) if file.suffix in (".csv", ".parquet") else features(file)
    seconds = time.perf_counter() - start
    size = sum(split.images.nbytes for split in data.splits.values())
    print(json.dumps({"bytes": size, "extra": peak() - before, "before": before, "seconds": seconds}))


def run(*arguments: str) -> str:
    """Return what this script prints in a process of its own."""
    return subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--kinds", nargs="+", choices=SUFFIXES, default=list(SUFFIXES))
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(given.kinds[0], given.write, given.rows, given.size)
        return
    if given.measure:
        measure(given.measure)
        return
    for kind in given.kinds:
        if kind == "parquet" and find_spec("pyarrow") is None:
            print("parquet: pyarrow is not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "table").with_suffix(SUFFIXES[kind])
            shape = ["--rows", str(given.rows), "--size", str(given.size)]
            run("--kinds", kind, *shape, "--write", str(file))
            found = json.loads(run("--measure", str(file)))
            print(
                f"{kind}: features {found['bytes'] / 1e6:.0f} MB, peak {found['extra'] / 1e6:.0f} MB above "
                f"{found['before'] / 1e6:.0f} MB, ratio {found['extra'] / found['bytes']:.2f}, {found['seconds']:.1f} s"
            )


if __name__ == "__main__":
    main()
