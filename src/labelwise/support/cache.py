"""The feature cache: features by encoder, and the digest of each file, kept between commands.

It is one SQLite file in the user's cache folder (``LABELWISE_CACHE``; "off" disables it). Several processes may use it at once.
It holds no pixels and no paths. The cache only saves time: a damaged file is recreated with a warning. If it cannot be
written (a full or read-only disk), one warning says so and work continues. A folder that other users may write to is not
used, since they could change answers.
"""

import atexit
import os
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import TypeVar
from warnings import warn

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import LabelwiseWarning

VARIABLE, OFF = "LABELWISE_CACHE", "off"
ENCODERS = "LABELWISE_ENCODERS"
FILE = "cache.sqlite"
GRAPHS = "encoders"  # the folder of ONNX files of published encoders
LIMIT = 2048  # megabytes, unless LABELWISE_CACHE_MB says otherwise
DAY = 86_400  # seconds; the time of last use is kept to the day
KEYS_PER_QUERY = 500
WAIT = 30.0  # seconds that one process waits for another that writes
TRIES = 5
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS names (space BLOB PRIMARY KEY, name TEXT)",
    "CREATE TABLE IF NOT EXISTS entries (space BLOB, key BLOB, value BLOB, used INTEGER, PRIMARY KEY (space, key))",
    "CREATE INDEX IF NOT EXISTS age ON entries (used)",
)
DIGEST_SIZE = 16  # bytes
DIGESTS = b"digests"  # by the stamp of a file, the digest of its content
LOOKS = b"looks"  # fingerprints by which images look alike

T = TypeVar("T")


def user_folder() -> Path:
    """Return the user's cache folder: ``LABELWISE_CACHE``, or the default of the system."""
    path = os.environ.get(VARIABLE, "")
    if path and path != OFF:
        return Path(path)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "labelwise"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "labelwise"


def encoders_folder() -> Path:
    """Return the folder of downloaded encoders: ``LABELWISE_ENCODERS``, or one in the cache folder."""
    return Path(os.environ.get(ENCODERS) or user_folder() / GRAPHS)


def is_on() -> bool:
    """Return whether the cache is used: not if ``LABELWISE_CACHE`` is off, or others may write to its folder."""
    return os.environ.get(VARIABLE) != OFF and is_own()


def is_own(folder: Path | None = None) -> bool:
    """Return whether a folder, by default ``user_folder``, is private or missing; if it is not, warn once."""
    folder = folder or user_folder()
    try:
        info = os.stat(folder)
    except OSError:
        return True
    if hasattr(os, "geteuid") and info.st_uid != os.geteuid():
        fault = "belongs to another user"
    elif info.st_mode & stat.S_IWOTH:
        fault = "can be written by every user (chmod o-w changes that)"
    else:
        return True
    if folder not in _CONNECTION.failed:
        _CONNECTION.failed.add(folder)
        words = f"The cache {folder} {fault}, so it is not used. Set {VARIABLE} to a folder of your own, or to off."
        warn(words, LabelwiseWarning, stacklevel=3)
    return False


def switched_off() -> dict[str, str]:
    """Return environment variables that disable the cache but keep the folder of encoders."""
    return {ENCODERS: str(encoders_folder()), VARIABLE: OFF}


def digest(*parts: bytes) -> bytes:
    """Return a 16-byte digest of the parts."""
    state = blake2b(digest_size=DIGEST_SIZE)
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


@dataclass(frozen=True)
class CacheContents:
    """The contents of the cache."""

    file: Path
    megabytes: float  # on disk
    limit: float  # megabytes
    encoders: Mapping[str, int]  # images encoded by each
    files: int  # number of files with a known digest


class Cache:
    """Entries of bytes by space (such as an encoder) and key (such as an image's digest)."""

    def __init__(self, folder: Path | None = None) -> None:
        self.file = (folder or user_folder()) / FILE
        self.limit = float(os.environ.get("LABELWISE_CACHE_MB") or LIMIT)

    def read(self, space: bytes, keys: Sequence[bytes], size: int | None = None) -> dict[bytes, bytes]:
        """Return the values of known keys; drop values of another size in bytes, and then check the file."""
        rows = self._read(space, keys)
        good = {key: value for key, value in rows.items() if isinstance(value, bytes) and size in (None, len(value))}
        if len(good) < len(rows):
            self.check()
        return good

    def read_rows(self, space: bytes, keys: Sequence[bytes], width: int) -> dict[bytes, npt.NDArray[np.float32]]:
        """Return the rows of ``width`` finite numbers of known keys."""
        rows = {key: np.frombuffer(value, np.float32) for key, value in self.read(space, keys, 4 * width).items()}
        return {key: row for key, row in rows.items() if np.isfinite(row).all()}

    def _read(self, space: bytes, keys: Sequence[bytes]) -> dict[bytes, object]:
        """Return the values of these keys, of any type."""
        if not is_on() or not os.path.exists(self.file):
            return {}

        def ask(db: sqlite3.Connection) -> dict[bytes, object]:
            known: dict[bytes, object] = {}
            old, now = [], int(time.time())
            every = list(dict.fromkeys(keys))
            for some in (every[start : start + KEYS_PER_QUERY] for start in range(0, len(every), KEYS_PER_QUERY)):
                marks = ",".join("?" * len(some))
                query = f"SELECT key, value, used FROM entries WHERE space = ? AND key IN ({marks})"
                for key, value, used in db.execute(query, (space, *some)):
                    known[key] = value
                    if not isinstance(used, int) or used < now - DAY:
                        old.append((now, space, key))
            if old:
                db.executemany("UPDATE entries SET used = ? WHERE space = ? AND key = ?", old)
            return known

        return self._do(ask) or {}

    def write(self, space: bytes, entries: Mapping[bytes, bytes], name: str = "") -> None:
        """Store entries, and the name of the space; if the cache is full, evict the least recently used."""
        if not is_on() or not entries:
            return
        timestamp = int(time.time())

        def put(db: sqlite3.Connection) -> None:
            if name:
                db.execute("INSERT OR REPLACE INTO names VALUES (?, ?)", (space, name))
            rows = ((space, key, value, timestamp) for key, value in entries.items())
            db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", rows)
            page, pages, free = (
                db.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_size", "page_count", "freelist_count")
            )
            if (pages - free) * page > self.limit * 1e6:
                count = db.execute("SELECT COUNT(*) FROM entries").fetchone()[0]
                oldest = "SELECT rowid FROM entries ORDER BY used LIMIT ?"
                db.execute(f"DELETE FROM entries WHERE rowid IN ({oldest})", (max(1, count // 5),))

        self._do(put)

    def contents(self) -> CacheContents:
        """Return the contents."""
        encoders: dict[str, int] = {}
        files = [0]

        def count(db: sqlite3.Connection) -> None:
            names = dict(db.execute("SELECT space, name FROM names"))
            for space, number in db.execute("SELECT space, COUNT(*) FROM entries GROUP BY space"):
                if space == DIGESTS:
                    files[0] += number
                elif space != LOOKS:
                    encoders[f"{names.get(space, 'unknown')} {space.hex()[:8]}"] = number

        if os.path.exists(self.file) and is_own(self.file.parent):
            self._do(count)
        _CONNECTION.close()  # merges everything into the one file
        size = sum(file.stat().st_size for file in (*self._files(), *self._graphs()) if file.exists())
        return CacheContents(self.file, size / 1e6, self.limit, encoders, files[0])

    def check(self) -> None:
        """Recreate the file if it is damaged; called when an entry looks wrong."""

        def ask(db: sqlite3.Connection) -> None:
            result = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if result != "ok":
                raise sqlite3.DatabaseError(result)

        if is_on() and os.path.exists(self.file):
            self._do(ask)

    def clear(self) -> None:
        """Remove all entries, and the encoder graphs next to the file."""
        self._remove()
        for file in self._graphs():
            file.unlink(missing_ok=True)

    def _graphs(self) -> list[Path]:
        return list((self.file.parent / GRAPHS).glob("*.onnx"))

    def _remove(self) -> None:
        _CONNECTION.close()
        for file in self._files():
            file.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return [self.file.with_name(FILE + end) for end in ("", "-wal", "-shm")]

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run ``work`` in one transaction; if it fails, warn once and return None."""
        try:
            for attempt in range(TRIES):
                try:
                    return _CONNECTION.do(self.file, work)
                except sqlite3.OperationalError as error:  # two processes that create it lock it for a moment
                    _CONNECTION.close()
                    if "locked" not in str(error) or attempt == TRIES - 1:
                        raise
                    time.sleep(0.1 * (attempt + 1))
                except sqlite3.DatabaseError as error:
                    warn(f"{self.file} is damaged ({error}); it is recreated.", LabelwiseWarning, stacklevel=3)
                    self._remove()
        except (OSError, sqlite3.Error) as error:
            if self.file not in _CONNECTION.failed:
                _CONNECTION.failed.add(self.file)
                words = f"Features cannot be cached in {self.file} ({error}), so later commands encode again."
                warn(f"{words} Set {VARIABLE} to another folder, or to off.", LabelwiseWarning, stacklevel=3)
        return None


class _Connection:
    """The open file of this process; reopened after a fork, or if another file is in its place."""

    def __init__(self) -> None:
        self.failed: set[Path] = set()
        self._lock = RLock()
        self._open: tuple[tuple[int, str, int, int], sqlite3.Connection] | None = None

    def do(self, file: Path, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` on the file in one transaction."""
        with self._lock:
            if self._open is None or self._open[0] != _identity(file):
                self.close()
                db = self._connect(file)
                self._open = _identity(file), db
            db = self._open[1]
            with db:
                return work(db)

    def close(self) -> None:
        """Close the file, unless it belongs to a parent process."""
        with self._lock:
            if self._open is not None:
                if self._open[0][0] == os.getpid():
                    with suppress(sqlite3.Error):
                        self._open[1].close()
                else:
                    _INHERITED.append(self._open[1])
            self._open = None

    def _connect(self, file: Path) -> sqlite3.Connection:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(file, timeout=WAIT, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA trusted_schema = OFF")
            for statement in SCHEMA:
                db.execute(statement)
            db.commit()
        except BaseException:
            db.close()
            raise
        return db


def _identity(file: Path) -> tuple[int, str, int, int]:
    """Return the identity of this process and of the file at a path."""
    try:
        stat = os.stat(file)
    except OSError:
        return os.getpid(), str(file), 0, 0
    return os.getpid(), str(file), stat.st_dev, stat.st_ino


_INHERITED: list[sqlite3.Connection] = []  # to close one that a parent process uses would disturb it
_CONNECTION = _Connection()
atexit.register(_CONNECTION.close)
