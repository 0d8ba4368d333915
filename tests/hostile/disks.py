"""Verbs that write to disks that are full, nearly full or read-only: run in a namespace of mounts, each in a fork.

    unshare -rm python -m tests.hostile.disks FOLDER [CASE ...] [--all]

FOLDER holds ``photos``, ``more`` photos and classifiers: ``b.lw`` of photos, ``s.lw`` of method softmax, ``z.lw`` of method zero_label.
What went wrong is printed, a line each; with --all how every verb ended. --quick leaves out disks that are nearly full in another way.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

PLACES = {"full": 0, "4 KB left": 4, "40 KB left": 40, "400 KB left": 400, "read-only": None}  # KB
QUICK = ("full", "40 KB left", "read-only")
SIZE = 16_384  # KB of the disk
CASES: dict[str, tuple[str, ...]] = {
    "fit": ("fit", "photos", "--out", "{}/m.lw"),
    "fit softmax": (
        "fit",
        "photos",
        "--out",
        "{}/m.lw",
        "--method",
        "softmax",
        "--encoder",
        "none",
        "--size",
        "16",
        "--set",
        "epochs=2",
    ),
    "teach": ("teach", "b.lw", "new", "photos/1/1.png", "--out", "{}/m.lw"),
    "forget": ("forget", "b.lw", "2", "--out", "{}/m.lw"),
    "calibrate": ("calibrate", "b.lw", "more", "--out", "{}/m.lw"),
    "classify csv": ("classify", "b.lw", "photos", "--csv", "{}/a.csv"),
    "classify sort": ("classify", "b.lw", "photos", "--sort-into", "{}/sorted"),
    "classify sheet": ("classify", "b.lw", "photos", "--out", "{}/a.html"),
    "classify job": ("classify", "b.lw", "photos", "--out", "{}/a.parquet"),
    "outliers job": ("outliers", "b.lw", "photos", "--out", "{}/a.parquet"),
    "retrieve index": ("retrieve", "b.lw", "photos/1/1.png", "--gallery", "photos", "--index", "{}/g.npz"),
    "retrieve lance": ("retrieve", "b.lw", "photos/1/1.png", "--gallery", "photos", "--index", "{}/g.lance"),
    "explain": ("explain", "b.lw", "photos/1/1.png", "--out", "{}/e.png"),
    "report": ("report", "b.lw", "photos", "--out", "{}/r.html"),
    "export": ("export", "s.lw", "--out", "{}/m.onnx"),
    "bake": ("serve", "b.lw", "--bake", "{}/m.lw"),
    "name": ("name", "z.lw", "photos", "--out", "{}/m.lw", "--report", "{}/report"),
    "data split": ("data", "split", "photos", "--out", "{}/s.csv"),
    "data shard": ("data", "shard", "photos", "--out", "{}/shards"),
    "data encode": ("data", "encode", "photos", "--out", "{}/f.npz"),
    "data encode job": ("data", "encode", "photos", "--encoder", "b.lw", "--out", "{}/f.parquet"),
    "data sheet": ("data", "check", "photos", "--out", "{}/sheet.png"),
    "data duplicates": ("data", "duplicates", "photos", "--out", "{}/d.parquet"),
}
GOES_ON = (
    "classify sort",
    "classify job",
    "outliers job",
    "data encode job",
    "data duplicates",
    "name",
)  # whole files stay
HALF = re.compile(r"\.part$|\.tmp$|^\.")


@contextmanager
def disk(kilobytes: int | None) -> Iterator[Path]:
    """Yield a disk with so much room, or None: one that is read-only."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}k", "none", folder], check=True)
        try:
            if kilobytes is None:
                subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
            else:
                with open(f"{folder}/filling", "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, (SIZE - kilobytes) * 1024)
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def _run(words: Sequence[str], said: str) -> None:
    """Be the shell: run a verb, with what it prints in a file."""
    from labelwise.cli.verbs import main

    with open(said, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115 - as long as the process
    sys.argv = ["labelwise", *words]
    main()


def faults(case: str, place: str) -> Iterator[str]:
    """Yield what is wrong with how a verb ends on a disk."""
    with disk(PLACES[place]) as folder, tempfile.NamedTemporaryFile() as said:
        before = sorted(folder.rglob("*"))
        words = [word.format(folder) for word in CASES[case]]
        process = get_context("fork").Process(target=_run, args=(words, said.name))
        started = time.monotonic()
        process.start()
        process.join(60)
        if process.exitcode is None:
            process.kill()
            process.join()
            yield "does not end"
            return
        text = Path(said.name).read_text().strip().replace(str(folder), "DISK")
        left = [str(each.relative_to(folder)) for each in sorted(folder.rglob("*")) if each not in before]
        ended = f"{case}, {place}: {process.exitcode}, {time.monotonic() - started:.1f} s, left {left}"
        if "--all" in sys.argv:
            print(f"  [{ended}: {' '.join(text.split())[-260:]}]", flush=True)
        if "Traceback" in text:
            yield f"a traceback: {text.splitlines()[-1]}"
        elif process.exitcode not in (0, 1, 2):
            yield f"exit code {process.exitcode}"
        elif process.exitcode and "Error: " not in text:
            yield f"no error: {text[-200:]}"
        left = [name for name in left if HALF.search(Path(name).name) or case not in GOES_ON]
        if process.exitcode and left:
            yield f"left behind: {left}"


def main(cases: Sequence[str]) -> None:
    """Print the faults of cases, all of them where none is named."""
    os.environ["COLUMNS"] = "300"
    import labelwise.cli.verbs  # noqa: F401 - once, not in each fork
    from labelwise.encoders.onnx import onnxruntime

    onnxruntime()
    for case in [case for case in cases if case in CASES] or CASES:
        for place in QUICK if "--quick" in sys.argv else PLACES:
            for fault in faults(case, place):
                print(f"{case}, {place}: {fault}", flush=True)


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    main(sys.argv[2:])
