"""Seconds from a folder of photos to a saved classifier, first and second time, beside version 0.1; and of one answer beside ``import torch``.

    python benchmarks/first_run.py PHOTOS FOLDER --earlier SOURCES [--rounds 5]

PHOTOS: ``phone_photos.py`` makes some. SOURCES is the folder ``src`` of version 0.1 (``git archive cbc9b61 src | tar x``); both are byte-compiled first, as pip does. Each run is ``labelwise fit PHOTOS`` in the shell, with a new cache in
FOLDER for the first. The files are read once before, so that none waits for the disk alone. ``photos.py --keep`` takes FOLDER/first_run.json to the results. On a busy machine wall seconds are too long for all; processor seconds say more.
"""

import argparse
import compileall
import json
import os
import platform
import shutil
import statistics
import sys
from pathlib import Path

from start import cost

EARLIER, NOW = "version 0.1", "labelwise"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("folder", type=Path, help="where classifiers, the cache and the figures go")
    parser.add_argument("--earlier", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5, help="of one answer")
    options = parser.parse_args()
    files = sorted(file for file in options.photos.rglob("*") if file.is_file())
    size = sum(len(file.read_bytes()) for file in files)
    cache = options.folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    os.environ["LABELWISE_CACHE"] = str(cache)
    here = os.environ.get("PYTHONPATH", "")
    for sources in (Path(__file__).parents[1] / "src", options.earlier):
        compileall.compile_dir(sources, quiet=1)
    times = {}
    for name, sources in ((NOW, here), (EARLIER, str(options.earlier))):
        os.environ["PYTHONPATH"] = sources
        times[name] = [fit(options.photos, options.folder / f"{name}.lw") for _ in range(2)]
        print(name, times[name], flush=True)
    os.environ["PYTHONPATH"] = here
    result = {
        "about": f"{len(files)} photos of {size / len(files) / 1e6:.1f} MB, {os.cpu_count()} cores, {platform.machine()}",
        "fit": times,
        "start": answers(options.folder / f"{NOW}.lw", files[0], options.rounds),
    }
    (options.folder / "first_run.json").write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))


def fit(photos: Path, classifier: Path) -> tuple[float, float]:
    """Return wall and processor seconds of one fit in the shell."""
    for left in (classifier, classifier.with_name(f"{classifier.name}.run")):
        shutil.rmtree(left, ignore_errors=True)
    return cost([sys.executable, "-m", "labelwise", "fit", str(photos), "--out", str(classifier)])


def answers(classifier: Path, picture: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """Return the median wall and processor seconds of one answer, and of what it is measured by."""
    ways = {
        "`import torch`": ["-c", "import torch"],
        "`labelwise classify`": ["-m", "labelwise", "classify", str(classifier), str(picture)],
    }
    times = {name: [cost([sys.executable, *words]) for words in [way] * rounds] for name, way in ways.items()}
    return {
        name: (statistics.median(wall for wall, _ in pairs), statistics.median(busy for _, busy in pairs))
        for name, pairs in times.items()
    }


if __name__ == "__main__":
    main()
