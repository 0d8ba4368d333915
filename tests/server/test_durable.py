"""A change is on disk before it is answered, as far as SQLite and the system can say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from labelwise.server.databases import sqlite_engine
from labelwise.server.store import FILE

STRONGEST = {"synchronous": 3, "fullfsync": 1, "checkpoint_fullfsync": 1}  # EXTRA, F_FULLFSYNC of macOS
CHANGES = """
import sys
from labelwise.server.store import Position, Record, Store
store = Store(sys.argv[1], "model")
known = Position()
for number in range(3):
    print(number, flush=True)
    news, _ = store.change(known, lambda _: Record("teach", {"label": "x"}))
    known = news.position
    print("done", flush=True)
"""


def test_no_stronger_setting_is_left(tmp_path: Path) -> None:
    with sqlite_engine(tmp_path / FILE, read_only=False).connect() as connection:
        assert {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in STRONGEST} == STRONGEST
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
def test_files_and_the_folders_that_name_them_are_synced_before_the_answer(tmp_path: Path) -> None:
    """Every change syncs the log; the first one the new folders, too."""
    trace = tmp_path / "trace"
    watched = ["strace", "-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,write", "-e", "signal=none", "-o", str(trace)]
    tried = subprocess.run([*watched, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("this machine lets no process be watched")
    place = tmp_path / "a new" / "state"
    subprocess.run([*watched, sys.executable, "-c", CHANGES, str(place)], check=True, stdout=subprocess.DEVNULL)
    before, *changes = re.split(r'write\(1<.*?>, "\d', trace.read_text())
    for folder in (place, place.parent, tmp_path):
        assert re.search(rf"fsync\(\d+<{re.escape(os.fspath(folder))}>\)", before), folder
    assert len(changes) == 3
    for change in changes:
        synced, _, _ = change.partition('"done')
        assert re.search(rf"f(data)?sync\(\d+<{re.escape(os.fspath(place / FILE))}-wal>\) += 0", synced)
