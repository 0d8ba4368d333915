"""What was computed of pictures, kept for all later commands of a user: features by encoder, and which pixels a file holds.

One SQLite file in the user's cache folder (``LABELWISE_CACHE``; "off" is none) holds features and hashes, never a pixel or a path. Several processes may
use it at once. It is a help and nothing more: entries whose checksum differs are told and computed again, a damaged
file is told and begun anew, and where it cannot be written (a full or read-only disk) that is told and all else goes on.
"""

import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from warnings import warn

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import LabelwiseWarning

VARIABLE, OFF = "LABELWISE_CACHE", "off"
FILE = "features.sqlite"
LIMIT = 2048  # megabytes, unless LABELWISE_CACHE_MB says otherwise
DAY = 86_400  # seconds; the time of last use is kept to the day
ASKED = 500  # entries asked for in one query
WAIT = 30.0  # seconds that one process waits for another that writes
TRIES = 5
TABLES = (
    "CREATE TABLE IF NOT EXISTS encoders (key BLOB PRIMARY KEY, name TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS entries (owner BLOB, key BLOB, content BLOB, checksum INTEGER, used INTEGER,"
    " PRIMARY KEY (owner, key)) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS age ON entries (used)",
)
PICTURES = b"pictures"  # the owner of entries that say which pixels a file holds
LOOKS = b"looks"  # the owner of fingerprints by which pictures look alike
QUICK = b"quick"  # the owner of graphs of encoders, and of what says whose they are

Array = npt.NDArray[np.generic]


def user_folder() -> Path:
    """Return where this user's caches lie: ``LABELWISE_CACHE``, or the folder that the system has for them."""
    named = os.environ.get(VARIABLE, "")
    if named and named != OFF:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "labelwise"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "labelwise"


def is_on() -> bool:
    """Return whether features are kept: unless ``LABELWISE_CACHE`` is off."""
    return os.environ.get(VARIABLE) != OFF


def turn_off() -> None:
    """Keep and use no features in this process and those it starts."""
    os.environ[VARIABLE] = OFF


def digest(*parts: bytes) -> bytes:
    """Return 16 bytes that are the same for the same parts."""
    state = blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


def pixel_digests(images: Array) -> list[bytes]:
    """Return a digest of each image ``[n, ...]``, of its bytes and its shape."""
    shape = repr((images.shape[1:], images.dtype.str)).encode()
    return [digest(shape, np.ascontiguousarray(image).tobytes()) for image in images]


@dataclass(frozen=True)
class Contents:
    """What the cache holds."""

    file: Path
    megabytes: float  # on disk
    limit: float  # megabytes
    encoders: Mapping[str, int]  # pictures encoded by each
    pictures: int  # entries that say which pixels a file holds


class Cache:
    """Entries of bytes by owner and key; see the top of this file."""

    def __init__(self, folder: Path | None = None) -> None:
        self.file = (folder or user_folder()) / FILE
        self.limit = float(os.environ.get("LABELWISE_CACHE_MB") or LIMIT)

    def read(self, owner: bytes, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the content of those keys that are known."""
        if not is_on() or not self.file.exists():
            return {}
        known: dict[bytes, bytes] = {}

        def ask(db: sqlite3.Connection) -> None:
            wrong, old, now = [], [], int(time.time())
            every = list(dict.fromkeys(keys))
            for some in (every[start : start + ASKED] for start in range(0, len(every), ASKED)):
                marks = ",".join("?" * len(some))
                query = f"SELECT key, content, checksum, used FROM entries WHERE owner = ? AND key IN ({marks})"
                for key, content, checksum, used in db.execute(query, (owner, *some)):
                    if checksum != zlib.crc32(owner + key + content):
                        wrong.append((owner, key))
                        continue
                    known[key] = content
                    if used < now - DAY:
                        old.append((now, owner, key))
            if wrong:
                warn(
                    f"{len(wrong)} entries of {self.file} are damaged; they are computed again.",
                    LabelwiseWarning,
                    stacklevel=2,
                )
                db.executemany("DELETE FROM entries WHERE owner = ? AND key = ?", wrong)
            if old:
                db.executemany("UPDATE entries SET used = ? WHERE owner = ? AND key = ?", old)

        self._do(ask)
        return known

    def holds(self, owner: bytes, key: bytes) -> bool:
        """Return whether something that is not empty is kept under a key, without reading it: whether it is whole shows when it is read."""
        sizes: list[tuple[int]] = []
        query = "SELECT length(content) FROM entries WHERE owner = ? AND key = ?"
        if is_on() and self.file.exists():
            self._do(lambda db: sizes.extend(db.execute(query, (owner, key))))
        return any(size for (size,) in sizes)

    def write(self, owner: bytes, entries: Mapping[bytes, bytes], name: str = "") -> None:
        """Keep these entries, and what the owner is called; where they are too many, those used longest ago go."""
        if not is_on() or not entries:
            return
        now = int(time.time())
        rows = [(owner, key, content, zlib.crc32(owner + key + content), now) for key, content in entries.items()]

        def put(db: sqlite3.Connection) -> None:
            if name:
                db.execute("INSERT OR REPLACE INTO encoders VALUES (?, ?)", (owner, name))
            db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", rows)
            page, pages, free = (
                db.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_size", "page_count", "freelist_count")
            )
            if (pages - free) * page > self.limit * 1e6:
                count = db.execute("SELECT COUNT(*) FROM entries").fetchone()[0]
                oldest = "SELECT owner, key FROM entries ORDER BY used LIMIT ?"
                db.execute(f"DELETE FROM entries WHERE (owner, key) IN ({oldest})", (max(1, count // 5),))

        self._do(put)

    def contents(self) -> Contents:
        """Return what there is."""
        encoders: dict[str, int] = {}
        pictures = [0]

        def count(db: sqlite3.Connection) -> None:
            names = dict(db.execute("SELECT key, name FROM encoders"))
            for owner, number in db.execute("SELECT owner, COUNT(*) FROM entries GROUP BY owner"):
                if owner == PICTURES:
                    pictures[0] = number
                elif owner not in (LOOKS, QUICK):
                    encoders[f"{names.get(owner, 'unknown')} {owner.hex()[:8]}"] = number

        if self.file.exists():
            self._do(count)
        size = sum(each.stat().st_size for each in self._files() if each.exists())
        return Contents(self.file, size / 1e6, self.limit, encoders, pictures[0])

    def clear(self) -> None:
        """Remove everything."""
        for each in self._files():
            each.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return [self.file.with_name(FILE + end) for end in ("", "-wal", "-shm")]

    def _do(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do something in one transaction; a damaged file is begun anew, and what cannot be done is told."""
        try:
            for attempt in range(TRIES):
                try:
                    with self._open() as db:
                        return work(db)
                except (
                    sqlite3.OperationalError
                ) as error:  # a file that two processes make at once is locked for a moment
                    if "locked" not in str(error) or attempt == TRIES - 1:
                        raise
                    time.sleep(0.1 * (attempt + 1))
                except sqlite3.DatabaseError as error:
                    warn(f"{self.file} is damaged ({error}); it is begun anew.", LabelwiseWarning, stacklevel=2)
                    self.clear()
        except (OSError, sqlite3.Error) as error:
            words = f"Features cannot be kept in {self.file} ({error}), so later commands encode again."
            warn(f"{words} Set {VARIABLE} to another folder, or to off.", LabelwiseWarning, stacklevel=2)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.file, timeout=WAIT)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            for table in TABLES:
                db.execute(table)
            with db:
                yield db
