"""Changes on disk: one SQLite database beside a saved classifier. A change is one transaction, on disk before it is acknowledged.

A row is a label taught or forgotten; one that no longer counts (undone, or a taught label forgotten for good) is deleted, so that
the rows in order lead to the present state. SQLite does not notice a flipped bit, so every row has a checksum and the head one over
all of them. The write-ahead log is emptied after every change: what was acknowledged lies in the file that the checksums guard.
"""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from labelwise.errors import StoreError
from labelwise.server.journal import NAME, records_of, take_over
from labelwise.server.lessons import UNDO, Change, State, unpacked

FORMAT = 2
FILE = "changes.sqlite"
_TABLES = (
    "CREATE TABLE head (model TEXT, change INTEGER, settled INTEGER, undone INTEGER, digest INTEGER, crc INTEGER)",
    "CREATE TABLE change (number INTEGER PRIMARY KEY, action TEXT, label TEXT, forgets INTEGER, words TEXT, tensors BLOB, "
    "crc INTEGER)",
    f"PRAGMA user_version = {FORMAT}",
    "INSERT INTO head DEFAULT VALUES",
)


@dataclass(frozen=True)
class Head:
    """The one row that says where the changes stand.

    Attributes:
        model: the checksum of the saved classifier that they belong to.
        change: how many there were.
        settled: the last that cannot be undone.
        undone: the last that took one back.
        digest: the checksums of all rows, joined by exclusive or.
    """

    model: str
    change: int = 0
    settled: int = 0
    undone: int = 0
    digest: int = 0


class Database:
    """The changes of one model, through one connection.

    Attributes:
        folder: where it lies.
        file: the database itself.
        read_only: whether nothing on disk may be written; a database in memory then stands in for one that is not there.
    """

    def __init__(self, folder: Path, model: str, *, read_only: bool) -> None:
        self.folder, self.file, self.model, self.read_only = folder, folder / FILE, model, read_only
        try:
            with self._told():
                self._open()
        except StoreError:
            if "_connection" in vars(self):
                self.close()
            raise

    def version(self) -> int:
        """Return how many changes there were; takes microseconds."""
        self._look_again()
        return int(self._rows("SELECT change FROM head")[0][0])

    def read(self, state: State) -> State:
        """Return the state after all changes, given an earlier one; the same object where nothing is new."""
        self._look_again()
        with self._told(), self._snapshot():
            head = self.head()
            if head.change == state.change:
                return state
            if not max(head.settled, head.undone) <= state.change < head.change:
                state = State()  # rows that this state had seen are gone
            query = "SELECT number, action, label, forgets, words, tensors, crc FROM change WHERE number > ? ORDER BY number"
            rows = self._rows(query, state.change)
            self._check(rows, head if state.change == 0 else None)
        lessons, changes = {one.number: one for one in state.taught}, []
        for number, action, label, forgets, words, tensors, _ in rows:
            if action == "teach":
                lessons[number] = unpacked(number, label, words, tensors)
            changes.append(Change(number, action, label, lessons.get(number if action == "teach" else forgets)))
        return replace(state.after(*changes, settled=head.settled), change=head.change)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all that is asked for inside, or nothing; the next in any process waits until this one has ended."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        with contextlib.suppress(sqlite3.Error):  # it is on disk all the same, in the log
            self._rows("PRAGMA wal_checkpoint(TRUNCATE)")

    def append(self, state: State, change: Change) -> State:
        """Write a change and return the state after it; only in a transaction."""
        head, lesson, gone = self.head(), change.lesson, set[int]()
        if len(state.undoable) == UNDO:
            oldest = state.undoable[0]
            head = replace(head, settled=oldest.number)
            if oldest.action == "forget" and oldest.lesson is not None:
                gone = {oldest.number, oldest.lesson.number}
        forgets = lesson.number if lesson is not None and change.action == "forget" else None
        words, tensors = lesson.packed() if lesson is not None and change.action == "teach" else ("", b"")
        row = (change.number, change.action, change.label, forgets, words, tensors)
        self._rows("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?)", *row, _crc(row))
        self.write(replace(head, change=change.number, digest=head.digest ^ _crc(row)), gone)
        return state.after(change)

    def undo(self, state: State) -> State:
        """Take the last change back and return the state after that; only in a transaction."""
        after = state.undone()
        self.write(replace(self.head(), change=after.change, undone=after.change), {state.undoable[-1].number})
        return after

    def head(self) -> Head:
        """Return where the changes stand; raise an error where they are damaged or belong to another model."""
        *row, crc = (self._rows("SELECT model, change, settled, undone, digest, crc FROM head") or [(None, None)])[0]
        if crc != _crc(tuple(row)):
            raise self._damage("its first record differs from its checksum")
        if row[0] != self.model:
            raise StoreError(
                f"{self.folder} holds what was taught to another model: this one was trained anew since. Move the folder "
                "away to start without those labels."
            )
        return Head(*row)

    def write(self, head: Head, gone: Collection[int] = ()) -> None:
        """Write the head, and delete the rows of some changes; only in a transaction."""
        for number in gone:
            ((crc,),) = self._rows("DELETE FROM change WHERE number = ? RETURNING crc", number)
            head = replace(head, digest=head.digest ^ crc)
        row = astuple(head)
        update = "UPDATE head SET (model, change, settled, undone, digest, crc) = (?, ?, ?, ?, ?, ?)"
        self._rows(update, *row, _crc(row))

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _open(self) -> None:
        """Open the database; make it, with what a journal of the first version holds, where there is none."""
        self._still: tuple[float, ...] | None = None  # what a file that is not followed looked like
        if not self.read_only:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._connect(str(self.file))
            self._rows("PRAGMA journal_mode=WAL")
            self._rows("PRAGMA synchronous=FULL")
            self._prepare()
            _sync(self.folder)
            _sync(self.folder.parent)
            return
        self._still = self._stamp() or (0,)
        if self._still == (0,) or not self._open_to_read():
            self._connect(":memory:")
            self._prepare()

    def _open_to_read(self) -> bool:
        """Open the file and return whether there is something in it; a folder that cannot be written is no hindrance."""
        log = self.file.with_name(f"{FILE}-wal")
        for options in ("mode=ro", "immutable=1"):
            self._connect(f"{self.file.as_uri()}?{options}")
            try:
                if not self._fresh():
                    self.head()
                    self._still = None if options == "mode=ro" else self._still
                    return True
            except sqlite3.OperationalError as error:
                self.close()
                barred = error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
                if options != "mode=ro" or not barred or (log.exists() and log.stat().st_size):
                    raise
                continue
            break
        self.close()
        return False

    def _look_again(self) -> None:
        """Open the file where another service has begun to write it since."""
        if self._still is not None and self._still != (self._stamp() or (0,)):
            self.close()
            self._open()

    def _connect(self, where: str) -> None:
        self._connection = sqlite3.connect(
            where, timeout=30, isolation_level=None, check_same_thread=False, uri=where.startswith("file:")
        )

    def _prepare(self) -> None:
        with self.transaction():
            if self._fresh():
                for statement in _TABLES:
                    self._rows(statement)
                self.write(Head(self.model))
                take_over(records_of(self.folder, self.model, keep=not self.read_only), self)
            elif (self.folder / NAME).exists():
                raise StoreError(
                    f"{self.folder} holds {FILE} and also a {NAME}, which an older version of labelwise has written since. Move "
                    "one of the two away."
                )
            self.head()

    def _fresh(self) -> bool:
        """Return whether nothing was ever written; two signs must agree, for one may be damaged."""
        (found,), tables = self._rows("PRAGMA user_version")[0], self._rows("SELECT name FROM sqlite_master")
        if found == 0 and not tables:
            return True
        if found != FORMAT:
            raise StoreError(f"{self.file} has format {found}; this version reads format {FORMAT}. Update labelwise.")
        return False

    def _check(self, rows: list[Any], head: Head | None) -> None:
        """Raise an error where a row differs from its checksum, or, given a head, where one is missing."""
        digest = 0
        for *row, crc in rows:
            if crc != _crc(tuple(row)):
                raise self._damage(f"record {row[0]} differs from its checksum")
            digest ^= crc
        if head is not None and digest != head.digest:
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

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """See one state of the database, whatever others write meanwhile."""
        if self._connection.in_transaction:
            yield
            return
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def _stamp(self) -> tuple[float, ...] | None:
        """Return what tells that the file has changed; None where there is none."""
        try:
            found = os.stat(self.file)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

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
