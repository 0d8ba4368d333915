"""The file of results: one JSON line for each finished cell, and the whole file is replaced at once.

A result is on the disk before anything else goes on.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labelwise.support.errors import DataError, StoreError
from labelwise.support.files import read_regular
from labelwise.support.writable import write_atomically

Entry = dict[str, Any]
RESULTS = "results.jsonl"


def append_result(folder: Path, entry: Mapping[str, Any]) -> None:
    """Append one line to the results in a folder, in place of what it has of the same cell; processes wait for each other."""
    line = json.dumps(entry, allow_nan=False).encode() + b"\n"
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        lines = [each for each in _lines(folder) if (_entry(each) or {}).get("key") != entry["key"]]
        write_atomically(folder / RESULTS, *(each + b"\n" for each in lines), line)
        os.fsync(handle)
    except OSError as error:
        raise StoreError(
            f'A result could not be written to "{folder}": {error.strerror}. If its disk is full, make room; run again.'
        ) from None
    finally:
        os.close(handle)


def read_results(folder: Path) -> list[Entry]:
    """Return the finished cells in a folder."""
    results = []
    for number, line in enumerate(_lines(folder), 1):
        entry = _entry(line)
        if entry is None:
            raise DataError(
                f'Line {number} of "{folder / RESULTS}" is no result. Move it to another file, and run again.'
            )
        results.append(entry)
    return results


def _lines(folder: Path) -> list[bytes]:
    path = folder / RESULTS
    return read_regular(path).splitlines() if path.exists() else []


def _entry(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "key" in entry else None
