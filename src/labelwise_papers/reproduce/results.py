"""The file of results: one JSON line for each finished cell, appended whole or not at all.

A line is written at once and brought to the disk before anything else goes on. Where a crash left a part of a line at the
end, it is moved to a file beside it before the next line is written; a whole line that only lacks its end is kept.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labelwise.errors import DataError, StoreError

Entry = dict[str, Any]
RESULTS = "results.jsonl"
SET_ASIDE = "results.torn"


def append_result(folder: Path, entry: Mapping[str, Any]) -> None:
    """Append one line to the results in a folder; processes that do so at the same time wait for each other."""
    line = json.dumps(entry, allow_nan=False).encode() + b"\n"
    folder.mkdir(parents=True, exist_ok=True)
    with _opened(folder / RESULTS) as file:
        end = _mend(folder, file)
        written = os.write(file, line)
        if written != len(line):
            os.ftruncate(file, end)
            raise StoreError(
                f'The disk of "{folder}" is full: a result could not be written. Make room, and run again.'
            )
        os.fsync(file)
    _sync_folder(folder)


def read_results(folder: Path) -> list[Entry]:
    """Return the finished cells in a folder; what a crash left at the end is passed over."""
    path = folder / RESULTS
    if not path.exists():
        return []
    *lines, tail = path.read_bytes().split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):
        entry = _entry(line)
        if entry is None:
            raise DataError(f'Line {number} of "{path}" is no result. Move it to another file, and run again.')
        found.append(entry)
    last = _entry(tail)
    return found if last is None else [*found, last]


def _entry(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "key" in entry else None


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a file to append to, which no other process appends to meanwhile."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _mend(folder: Path, file: int) -> int:
    """Return the length of the results once they end with a whole line; a part of one is set aside."""
    length = os.fstat(file).st_size
    if not length or os.pread(file, 1, length - 1) == b"\n":
        return length
    content = os.pread(file, length, 0)
    start = content.rfind(b"\n") + 1
    tail = content[start:]
    if _entry(tail) is not None:
        os.write(file, b"\n")
        return length + 1
    with (folder / SET_ASIDE).open("ab") as aside:
        aside.write(tail + b"\n")
        aside.flush()
        os.fsync(aside.fileno())
    os.ftruncate(file, start)
    os.fsync(file)
    return start


def _sync_folder(folder: Path) -> None:
    """Bring the name of a new file to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
