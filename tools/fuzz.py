"""Coverage-guided fuzzing of every parser that reads a user's file, with atheris (pip install atheris).

    python tools/fuzz.py PARSER|all [--seconds 60] [--keep FOLDER] [--json FILE]

A crash is any exception that is not for people (``LabelwiseError``), and any input that takes more than two gigabytes. Files that
crash are kept, and fuzzing goes on. ``tests/hostile/test_parsers.py`` is the quick form of this in the suite.
"""

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "src")]
ROOM = 2 << 30  # bytes that an input may take beside what the process takes before
CODE = ("labelwise", "labelwise_papers", "tests.hostile.parsers", "scipy.io", "json", "csv", "tomllib", "zipfile")


def fuzz(name: str, seconds: float, keep: Path) -> None:
    """Fuzz one parser in this process, print what came of it as JSON, and exit."""
    import atheris
    import torch  # noqa: F401 - before what is instrumented, which it need not be

    with atheris.instrument_imports(include=list(CODE)):
        from tests.hostile.parsers import PARSERS

    parser = PARSERS[name]
    folder, seeds = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    for i, seed in enumerate(parser.seeds()):
        (seeds / str(i)).write_bytes(seed)
        parser.accepts(seed, folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, resource.RLIM_INFINITY))
    end, runs, accepted = time.monotonic() + seconds, 0, 0
    crashes: dict[str, str] = {}

    def one(content: bytes) -> None:
        nonlocal runs, accepted
        runs += 1
        try:
            accepted += parser.accepts(content, folder)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {error!s:.100}"
            if where not in crashes:
                crashes[where] = hashlib.sha256(content).hexdigest()[:16]
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}-{crashes[where]}").write_bytes(content)
        if time.monotonic() > end:
            memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
            figures = {"parser": name, "executions": runs, "read": accepted, "MB": memory, "crashes": crashes}
            print(json.dumps(figures), flush=True)
            os._exit(0)

    atheris.Setup([sys.argv[0], str(seeds), "-timeout=60", "-rss_limit_mb=0", "-max_len=65536", "-verbosity=0"], one)
    atheris.Fuzz()


def main() -> None:
    """Fuzz one parser or all, each in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parser")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--keep", type=Path, default=Path("crashes"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ.setdefault("LABELWISE_MAX_GB", "0.1")
    if given.here:
        fuzz(given.parser, given.seconds, given.keep)
    from tests.hostile.parsers import PARSERS

    rows = []
    for name in PARSERS if given.parser == "all" else [given.parser]:
        words = [name, "--seconds", str(given.seconds), "--keep", str(given.keep), "--here"]
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=False)
        last = done.stdout.strip().rpartition("\n")[2]
        died: dict[str, Any] = {
            "parser": name,
            "crashes": {f"the process ended with {done.returncode}": done.stderr[-2000:]},
        }
        row: dict[str, Any] = json.loads(last) if last.startswith("{") else died
        rows.append(row)
        counts = " | ".join(f"{row.get(key, '-'):,}" for key in ("executions", "read")) if "read" in row else "- | -"
        print(f"| {name} | {counts} | {len(row['crashes'])} | {row.get('MB', '-')} |", flush=True)
        for where, file in row["crashes"].items():
            print(f"    {where}: {file}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any(row["crashes"] for row in rows))


if __name__ == "__main__":
    main()
