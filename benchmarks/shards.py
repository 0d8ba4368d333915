"""Shards larger than memory: an encoder trained, and a closed form fitted, on gigabytes of pictures with a limit on memory.

python benchmarks/shards.py --gigabytes 5 --limit-gb 1 --folder /tmp/shards-benchmark
"""

import argparse
import io
import json
import resource
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

SIDE, SHARD = 640, 250e6  # pixels of a picture; bytes of a shard
LABELS = ("amber", "brown", "coral", "denim")
TINTS = ((60, 30, 0), (30, 20, 10), (60, 20, 30), (0, 20, 60))


def picture(number: int) -> bytes:
    """A picture that hardly compresses: noise, with a tint by its label; one in four is a JPEG, the others are PNG."""
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 190, (SIDE, SIDE, 3), np.uint8) + np.array(TINTS[number % len(LABELS)], np.uint8)
    stream = io.BytesIO()
    image = Image.fromarray(pixels)
    if number % 4:
        image.save(stream, "PNG", compress_level=0)
    else:
        image.save(stream, "JPEG", quality=92)
    return stream.getvalue()


def write_shard(folder: Path, number: int) -> int:
    """Write a shard and return how many pictures it has."""
    count = 0
    with tarfile.open(folder / f"noise-{number:04d}.tar", "w") as tar:
        while tar.offset < SHARD:
            key = number * 100_000 + count
            kind = "png" if key % 4 else "jpg"
            for suffix, content in ((kind, picture(key)), ("cls", LABELS[key % len(LABELS)].encode())):
                entry = tarfile.TarInfo(f"{key:08d}.{suffix}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            count += 1
    return count


def measured(words: list[str], limit: float) -> dict[str, float]:
    """Run a command with so many gigabytes of memory for its data, and return its seconds and the most memory it had (RSS)."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit * 1e9), int(limit * 1e9)))

    begin, peak = time.monotonic(), 0.0
    with subprocess.Popen(words, preexec_fn=limited) as process:
        while process.poll() is None:
            status = Path(f"/proc/{process.pid}/status").read_text()
            high = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
            peak = max(peak, *high) if high else peak
            time.sleep(0.2)
    if process.returncode:
        sys.exit(f"{' '.join(words)} ended with {process.returncode}")
    return {"seconds": round(time.monotonic() - begin, 1), "rss_gb": round(peak * 1024 / 1e9, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--limit-gb", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("shards-benchmark"))
    parser.add_argument("--closed-form", action="store_true", help="also the default method, on a frozen encoder")
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    shards = given.folder / "shards"
    shards.mkdir(parents=True)
    try:
        begin = time.monotonic()
        with ProcessPoolExecutor(2) as pool:
            counts = list(pool.map(partial(write_shard, shards), range(round(given.gigabytes * 1e9 / SHARD))))
        size = sum(file.stat().st_size for file in shards.iterdir()) / 1e9
        row = {"gigabytes": round(size, 2), "pictures": sum(counts), "limit_gb": given.limit_gb, "epochs": given.epochs}
        print(json.dumps(row | {"seconds to write": round(time.monotonic() - begin, 1)}), flush=True)
        fit = [sys.executable, "-m", "labelwise", "--no-cache", "fit", str(shards), "--json", "--out"]
        scratch = [*fit, str(given.folder / "scratch.lw"), "--method", "softmax", "--encoder", "none", "--size", "64"]
        found = measured([*scratch, "--set", f"epochs={given.epochs}"], given.limit_gb)
        print(json.dumps({"trained from scratch": found}), flush=True)
        if given.closed_form:
            print(json.dumps({"closed form": measured([*fit, str(given.folder / "closed.lw")], given.limit_gb)}))
    finally:
        shutil.rmtree(given.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
