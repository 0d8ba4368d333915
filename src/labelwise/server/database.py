"""Changes on disk: one SQLite database beside a saved classifier. A change is one transaction, on disk before it is acknowledged.

The write-ahead log is emptied after every change, for SQLite takes a damaged log for a torn one; where a reader keeps it from being
emptied, and at the first change, a mark beside it says how many changes there must be.
"""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labelwise.server.journal import NAME, state_of_journal
from labelwise.server.lessons import State
from labelwise.server.records import COLUMNS, FORMAT, Head, Records, UnavailableError
from labelwise.support.errors import StoreError
from labelwise.support.files import sync_folder, write_atomically

FILE, MARK = "changes.sqlite", "changes.mark"
_TABLES = (
    "CREATE TABLE head (model TEXT, change INTEGER, settled INTEGER, undone INTEGER, digest INTEGER, size INTEGER, "
    "numbers INTEGER, crc INTEGER)",
    "CREATE TABLE change (number INTEGER PRIMARY KEY, action TEXT, label TEXT, forgets INTEGER, words TEXT, tensors BLOB, "
    "crc INTEGER)",
    f"PRAGMA user_version = {FORMAT}",
    "INSERT INTO head DEFAULT VALUES",
)
PATIENCE, CHECKPOINT = 30, 1  # seconds to wait for another process: to write, to empty the log


class Database(Records):
    """The changes of the model with a checksum, in a file of a folder.

    Where nothing on disk may be written, a database in memory stands in for one that is not there.
    """

    lost = "its log was cut off or damaged"

    def __init__(self, folder: Path, model: str, *, read_only: bool) -> None:
        super().__init__(str(folder / FILE), f"move {folder} away", model, read_only=read_only)
        self.folder, self.file = folder, folder / FILE
        self._unfollowed: tuple[int, ...] | None = None  # what a file looked like whose changes SQLite does not show
        self._connect(":memory:")
        try:
            with self._told():
                self._open()
        except StoreError:
            self.close()
            raise

    def version(self) -> int:
        """Return how many changes there were; takes microseconds."""
        self._look_again()
        return super().version()

    def read(self, state: State) -> State:
        """Return the state after all changes, given an earlier one; the same object where nothing is new."""
        self._look_again()
        return super().read(state)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all that is asked for inside, or nothing; the next in any process waits until this one has ended."""
        try:
            with self._whole():
                yield
        except sqlite3.OperationalError as error:
            text = f"The change could not be written ({error}); nothing was changed."
            raise UnavailableError(text) from error

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        self._rows("BEGIN IMMEDIATE")
        try:
            yield
            self._rows("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._rows("ROLLBACK")
            raise
        self._empty_log()

    def _open(self) -> None:
        """Open the database; make it, with what a journal of the first version holds, where there is none."""
        if not self.read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._connect(str(self.file))
            self._rows("PRAGMA journal_mode=WAL")
            self._rows("PRAGMA synchronous=FULL")
            self._read_mark()
            if self._format() == FORMAT - 1:
                self._keep_copy()
            self._prepare()
            sync_folder(self.folder)
            sync_folder(self.folder.parent)
            return
        self._read_mark()
        self._unfollowed = self._stamp()
        if self.file.exists():
            log = self.file.with_name(f"{FILE}-wal")
            alone = not os.access(self.folder, os.W_OK) and not (log.exists() and log.stat().st_size)
            self._connect(f"{self.file.as_uri()}?{'immutable=1' if alone else 'mode=ro'}")
            if not self._is_fresh():
                self._head()
                self._unfollowed = self._unfollowed if alone else None
                return
        self._connect(":memory:")
        self._prepare()

    def _look_again(self) -> None:
        """Open the file where another service has begun to write it since."""
        if self._unfollowed is not None and self._unfollowed != self._stamp():
            self._open()

    def _connect(self, where: str) -> None:
        if "_connection" in vars(self):
            self.close()
        self._connection = sqlite3.connect(
            where, timeout=PATIENCE, isolation_level=None, check_same_thread=False, uri=where.startswith("file:")
        )

    def _prepare(self) -> None:
        with self._whole():
            if self._is_fresh():
                for statement in _TABLES:
                    self._rows(statement)
                self._write_head(Head(self.model))
                self.write(State(), state_of_journal(self.folder, self.model, keep=not self.read_only))
            elif self._format() == FORMAT - 1:
                self._migrate()
            elif (self.folder / NAME).exists():
                raise StoreError(
                    f"{self.folder} holds {FILE} and also a {NAME}, which an older version of labelwise has written since. Move "
                    "one of the two away."
                )
            self._head()

    def _is_fresh(self) -> bool:
        """Return whether nothing was ever written; two signs must agree, for one may be damaged."""
        version, tables = self._format(), self._rows("SELECT name FROM sqlite_master")
        if version == 0 and not tables:
            if self._least:
                raise self.damage(f"it is empty or not there, and {self._least} changes were written")
            return True
        if version not in (FORMAT - 1, FORMAT):
            raise StoreError(f"{self.file} has format {version}; this version reads format {FORMAT}. Update labelwise.")
        return False

    def _check_file(self) -> None:
        """Raise an error where SQLite finds the file itself inconsistent."""
        ((verdict,), *_) = self._rows("PRAGMA quick_check(1)")
        if verdict != "ok":
            raise self.damage(str(verdict))

    def _format(self) -> int:
        return int(self._rows("PRAGMA user_version")[0][0])

    def _keep_copy(self) -> None:
        """Keep the database as it is, before it is brought to the present format."""
        copy = self.folder / f"changes.format{self._format()}.sqlite"
        part = copy.with_suffix(".part")
        part.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(part)) as target:
            self._connection.backup(target)
        os.replace(part, copy)
        sync_folder(self.folder)

    def _migrate(self) -> None:
        """Bring a whole database of the format before to the present one; only in a transaction."""
        head, rows = self._head(), self._rows(f"SELECT {COLUMNS} FROM change")
        self._check(rows, head)
        for name in ("size", "numbers"):
            self._rows(f"ALTER TABLE head ADD COLUMN {name} INTEGER")
        self._write_head(head._replace(size=len(rows), numbers=sum(row[0] for row in rows)))
        self._rows(f"PRAGMA user_version = {FORMAT}")

    def _empty_log(self) -> None:
        """Bring a change from the log into the file, and note where it cannot be that it must be there all the same."""
        if self.read_only:
            return
        busy = 1
        with contextlib.suppress(sqlite3.Error):
            self._rows(f"PRAGMA busy_timeout = {1000 * CHECKPOINT}")
            ((busy, *_),) = self._rows("PRAGMA wal_checkpoint(TRUNCATE)")
        with contextlib.suppress(sqlite3.Error, OSError):  # it is on disk all the same, in the log
            self._rows(f"PRAGMA busy_timeout = {1000 * PATIENCE}")
            change = self._rows("SELECT change FROM head")[0][0]
            if change and (busy or not self._least):
                text = f"{self.model} {change}"
                write_atomically(self.folder / MARK, f"{text} {zlib.crc32(text.encode()):08x}\n".encode())
                self._least = change

    def _read_mark(self) -> None:
        """Read how many changes there must be at least, or raise an error where that cannot be read."""
        mark = self.folder / MARK
        if not mark.exists():
            return
        model, change, crc = (mark.read_bytes().decode(errors="replace").split() + [""] * 3)[:3]
        if f"{zlib.crc32(f'{model} {change}'.encode()):08x}" != crc:
            raise StoreError(f"{mark} is damaged. Remove it: the next change writes it anew.")
        self._least = int(change) if model == self.model else 0

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Say in words what SQLite finds wrong with the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.file} cannot be opened or read: {error}.") from error
        except (sqlite3.DatabaseError, ValueError) as error:
            raise self.damage(str(error)) from error

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        self._rows("SAVEPOINT reading")
        try:
            yield
        finally:
            self._rows("RELEASE reading")

    def _stamp(self) -> tuple[int, ...]:
        """Return what tells that the file has changed; nothing where there is none."""
        try:
            status = os.stat(self.file)
        except FileNotFoundError:
            return ()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._connection.execute(query, values).fetchall()
