"""Changes on disk: one SQLite database beside a saved classifier. A change is one transaction, on disk before it is acknowledged.

A row is a label taught or forgotten; one that no longer counts (undone, or a taught label forgotten for good) is deleted, so that
the rows in order lead to the present state. SQLite does not notice a flipped bit, so every row has a checksum and the head one over
all of them. The write-ahead log is emptied after every change: what was acknowledged lies in the file that the checksums guard.
"""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from labelwise.errors import StoreError
from labelwise.server.journal import NAME, another_model, state_of_journal
from labelwise.server.lessons import Change, State, unpacked

FORMAT = 2
FILE = "changes.sqlite"
_TABLES = (
    "CREATE TABLE head (model TEXT, change INTEGER, settled INTEGER, undone INTEGER, digest INTEGER, crc INTEGER)",
    "CREATE TABLE change (number INTEGER PRIMARY KEY, action TEXT, label TEXT, forgets INTEGER, words TEXT, tensors BLOB, "
    "crc INTEGER)",
    f"PRAGMA user_version = {FORMAT}",
    "INSERT INTO head DEFAULT VALUES",
)


class Head(NamedTuple):
    """The one row that says where the changes stand."""

    model: str  # the checksum of the saved classifier that they belong to
    change: int = 0  # how many there were
    settled: int = 0  # the last that cannot be undone
    undone: int = 0  # the last that took one back
    digest: int = 0  # the checksums of all rows, joined by exclusive or


class Database:
    """The changes of the model with a checksum, through one connection.

    Where nothing on disk may be written, a database in memory stands in for one that is not there.
    """

    def __init__(self, folder: Path, model: str, *, read_only: bool) -> None:
        self.folder, self.file, self.model, self.read_only = folder, folder / FILE, model, read_only
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
        return int(self._rows("SELECT change FROM head")[0][0])

    def read(self, state: State) -> State:
        """Return the state after all changes, given an earlier one; the same object where nothing is new."""
        self._look_again()
        with self._told():
            self._rows("SAVEPOINT reading")  # one state of the database, whatever others write meanwhile
            try:
                head = self._head()
                if head.change == state.change:
                    return state
                if not max(head.settled, head.undone) <= state.change < head.change:
                    state = State()  # rows that this state had seen are gone
                rows = self._rows(
                    "SELECT number, action, label, forgets, words, tensors, crc FROM change WHERE number > ? ORDER BY number",
                    state.change,
                )
            finally:
                self._rows("RELEASE reading")
            self._check(rows, head.digest if state.change == 0 else None)
            lessons, changes = {one.number: one for one in state.taught}, list(state.changes)
            for number, action, label, forgets, words, tensors, _ in rows:
                if action == "teach":
                    lessons[number] = unpacked(number, label, words, tensors)
                changes.append(Change(number, action, label, lessons.get(number if action == "teach" else forgets)))
        return State(head.change, head.settled, tuple(changes)).tidied()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all that is asked for inside, or nothing; the next in any process waits until this one has ended."""
        self._rows("BEGIN IMMEDIATE")
        try:
            yield
            self._rows("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._rows("ROLLBACK")
            raise
        with contextlib.suppress(sqlite3.Error):  # it is on disk all the same, in the log
            self._rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def write(self, before: State, after: State) -> None:
        """Write what differs between the state of the database and the one that follows; only in a transaction."""
        head, known, wanted = self._head(), set(before.changes), set(after.changes)
        digest = head.digest
        for change in known - wanted:
            ((crc,),) = self._rows("DELETE FROM change WHERE number = ? RETURNING crc", change.number)
            digest ^= crc
        for change in after.changes:
            if change not in known:
                row = change.packed()
                self._rows("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?)", *row, _crc(row))
                digest ^= _crc(row)
        added = after.change in (change.number for change in after.changes[-1:])
        undone = head.undone if added else after.change
        self._write_head(Head(self.model, after.change, after.settled, undone, digest))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _open(self) -> None:
        """Open the database; make it, with what a journal of the first version holds, where there is none."""
        if not self.read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._connect(str(self.file))
            self._rows("PRAGMA journal_mode=WAL")
            self._rows("PRAGMA synchronous=FULL")
            self._prepare()
            _sync(self.folder)
            _sync(self.folder.parent)
            return
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
            where, timeout=30, isolation_level=None, check_same_thread=False, uri=where.startswith("file:")
        )

    def _prepare(self) -> None:
        with self.transaction():
            if self._is_fresh():
                for statement in _TABLES:
                    self._rows(statement)
                self._write_head(Head(self.model))
                self.write(State(), state_of_journal(self.folder, self.model, keep=not self.read_only))
            elif (self.folder / NAME).exists():
                raise StoreError(
                    f"{self.folder} holds {FILE} and also a {NAME}, which an older version of labelwise has written since. Move "
                    "one of the two away."
                )
            self._head()

    def _is_fresh(self) -> bool:
        """Return whether nothing was ever written; two signs must agree, for one may be damaged."""
        (version,), tables = self._rows("PRAGMA user_version")[0], self._rows("SELECT name FROM sqlite_master")
        if version == 0 and not tables:
            return True
        if version != FORMAT:
            raise StoreError(f"{self.file} has format {version}; this version reads format {FORMAT}. Update labelwise.")
        return False

    def _head(self) -> Head:
        """Return where the changes stand; raise an error where they are damaged or belong to another model."""
        *row, crc = (self._rows("SELECT model, change, settled, undone, digest, crc FROM head") or [(None, None)])[0]
        if crc != _crc(tuple(row)):
            raise self._damage("its first record differs from its checksum")
        if row[0] != self.model:
            raise another_model(self.folder)
        return Head(*row)

    def _write_head(self, head: Head) -> None:
        update = "UPDATE head SET (model, change, settled, undone, digest, crc) = (?, ?, ?, ?, ?, ?)"
        self._rows(update, *head, _crc(head))

    def _check(self, rows: list[Any], digest: int | None) -> None:
        """Raise an error where a row differs from its checksum, or, given the digest of all, where one is missing."""
        for *row, crc in rows:
            if crc != _crc(tuple(row)):
                raise self._damage(f"record {row[0]} differs from its checksum")
            digest = None if digest is None else digest ^ crc
        if digest:
            raise self._damage(f"records are missing ({len(rows)} are there)")

    def _damage(self, what: str) -> StoreError:
        return StoreError(
            f"{self.file} is damaged: {what}. Restore it from a copy, or move {self.folder} away to start without the taught "
            "labels."
        )

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Say in words what SQLite finds wrong with the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.file} cannot be opened or read: {error}.") from error
        except (sqlite3.DatabaseError, ValueError) as error:
            raise self._damage(str(error)) from error

    def _stamp(self) -> tuple[int, ...]:
        """Return what tells that the file has changed; nothing where there is none."""
        try:
            status = os.stat(self.file)
        except FileNotFoundError:
            return ()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._connection.execute(query, values).fetchall()


def _crc(row: tuple[Any, ...]) -> int:
    """Return the checksum of all values of a row."""
    return zlib.crc32(b"\0".join(one if isinstance(one, bytes) else repr(one).encode() for one in row))


def _sync(folder: Path) -> None:
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
