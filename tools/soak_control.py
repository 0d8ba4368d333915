"""What plain SQLite, without labelwise, keeps of its commits where the disk under it fails: the control of ``soak.py``.

    python tools/soak_control.py [--tries 32] [--fault shutdown]

A program commits one number after another, with the settings of the store, and tells each that SQLite reported as committed. The disk is made to
fail: ``shutdown`` is the ioctl that the soak uses, ``abort`` is ``mount -o remount,abort``. It is mounted again, and the numbers that are
missing are counted. It takes the rights of root.
"""

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from soak_machine import Disk

from labelwise.server.databases import DURABLE

FILE = "control.sqlite"
WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
for pragma in sys.argv[2:]:
    connection.execute("PRAGMA " + pragma)
connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)")
(number,) = connection.execute("SELECT coalesce(max(number), 0) FROM numbers").fetchone()
while True:
    number += 1
    connection.execute("INSERT INTO numbers VALUES (?)", (number,))
    print(number, flush=True)
"""


def lost(disk: Disk, fault: str, seconds: float) -> int:
    """Return how many numbers that were told are missing after the fault."""
    file = disk.home / FILE
    pragmas = ["journal_mode=WAL", *(f"{name}={value}" for name, value in DURABLE.items())]
    words = [sys.executable, "-c", WRITER, str(file), *pragmas]
    with tempfile.TemporaryFile() as told:
        writer = subprocess.Popen(words, stdout=told, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        if fault == "abort":
            subprocess.run(["mount", "-o", "remount,abort", str(disk.home)], check=False, capture_output=True)
        else:
            disk.fail()
        time.sleep(0.3)
        writer.kill()
        writer.wait()
        lines = os.pread(told.fileno(), 2**24, 0).split(b"\n")[:-1]  # what follows the last line end was cut off
    disk.mend()
    if not file.exists():
        return len(lines)
    with closing(sqlite3.connect(file)) as connection:
        kept = {number for (number,) in connection.execute("SELECT number FROM numbers")}
    return len({int(line) for line in lines} - kept)


def main() -> None:
    """Print in how many tries something was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=32)
    parser.add_argument("--fault", choices=("shutdown", "abort"), default="shutdown")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        disk = Disk(home, Path(folder, "disk.img"))
        if not disk.mounted:
            sys.exit("A disk of its own takes the rights of root, and mkfs.ext4.")
        try:
            found = [lost(disk, given.fault, 0.5 + 0.05 * number) for number in range(given.tries)]
        finally:
            disk.close()
    print(
        f"{given.fault}: in {sum(map(bool, found))} of {given.tries} tries commits were lost, {sum(found)} in all; SQLite {sqlite3.sqlite_version}"
    )


if __name__ == "__main__":
    main()
