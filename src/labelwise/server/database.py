"""Changes on disk: one SQLite database beside a saved classifier. A change is one transaction, on disk before it is acknowledged.

A row is a label taught or forgotten; one that no longer counts (undone, or a taught label forgotten for good) is deleted, so that
the rows in order lead to the present state; no number is used twice. SQLite does not notice a flipped bit, so every row has a
checksum, and the head, which has one, too, knows how many rows there are, the sum of their numbers and their checksums: a row that is
missing is told by its number. The write-ahead log is emptied after every change, for SQLite takes a damaged log for a torn one;
where a reader keeps it from being emptied, and at the first change, a mark beside it says how many changes there must be.
"""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from labelwise.errors import StoreError
from labelwise.files import sync_folder, write_atomically
from labelwise.server.journal import NAME, another_model, state_of_journal
from labelwise.server.lessons import Change, State, unpacked

FORMAT = 3
FILE, MARK = "changes.sqlite", "changes.mark"
_TABLES = (
    "CREATE TABLE head (model TEXT, change INTEGER, settled INTEGER, undone INTEGER, digest INTEGER, size INTEGER, "
    "numbers INTEGER, crc INTEGER)",
    "CREATE TABLE change (number INTEGER PRIMARY KEY, action TEXT, label TEXT, forgets INTEGER, words TEXT, tensors BLOB, "
    "crc INTEGER)",
    f"PRAGMA user_version = {FORMAT}",
    "INSERT INTO head DEFAULT VALUES",
)
_COLUMNS = "number, action, label, forgets, words, tensors, crc"
PATIENCE, CHECKPOINT = 30, 1  # seconds to wait for another process: to write, to empty the log


class Head(NamedTuple):
    """The one row that says where the changes stand."""

    model: str  # the checksum of the saved classifier that they belong to
    change: int = 0  # how many there were
    settled: int = 0  # the last that cannot be undone
    undone: int = 0  # the last that took one back
    digest: int = 0  # the checksums of all rows, joined by exclusive or
    size: int = 0  # how many rows there are
    numbers: int = 0  # the sum of their numbers


class Database:
    """The changes of the model with a checksum, through one connection.

    Where nothing on disk may be written, a database in memory stands in for one that is not there.
    """

    def __init__(self, folder: Path, model: str, *, read_only: bool) -> None:
        self.folder, self.file, self.model, self.read_only = folder, folder / FILE, model, read_only
        self._least = 0  # how many changes there must be
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
                changes = list(state.changes)
                if state.change and not max(head.settled, head.undone) <= state.change < head.change:
                    left = {number for (number,) in self._rows("SELECT number FROM change")}
                    changes = [one for one in changes if one.number in left]  # others that it knows are gone
                query = f"SELECT {_COLUMNS} FROM change WHERE number > ? ORDER BY number"
                rows = self._rows(query, state.change)
                if state.change == 0:
                    self._check_file()
            finally:
                self._rows("RELEASE reading")
            self._check(rows, head if state.change == 0 else None)
            lessons = {one.number: one.lesson for one in changes if one.action == "teach"}
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
        self._empty_log()

    def write(self, before: State, after: State) -> None:
        """Write what differs between the state of the database and the one that follows; only in a transaction."""
        head, same = self._head(), len(before.changes)
        if after.changes[:same] != before.changes:  # rarely so
            same = next((i for i, one in enumerate(after.changes) if one is not before.changes[i]), len(after.changes))
        known, wanted = set(before.changes[same:]), set(after.changes[same:])
        digest, size, numbers = head.digest, head.size, head.numbers
        for change in known - wanted:
            ((crc,),) = self._rows("DELETE FROM change WHERE number = ? RETURNING crc", change.number)
            digest, size, numbers = digest ^ crc, size - 1, numbers - change.number
        for change in after.changes[same:]:
            if change not in known:
                row = change.packed()
                self._rows("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?)", *row, _crc(row))
                digest, size, numbers = digest ^ _crc(row), size + 1, numbers + change.number
        added = after.change in (change.number for change in after.changes[-1:])
        undone = head.undone if added else after.change
        self._write_head(Head(self.model, after.change, after.settled, undone, digest, size, numbers))

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
        with self.transaction():
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
                raise self._damage(f"it is empty or not there, and {self._least} changes were written")
            return True
        if version not in (FORMAT - 1, FORMAT):
            raise StoreError(f"{self.file} has format {version}; this version reads format {FORMAT}. Update labelwise.")
        return False

    def _head(self) -> Head:
        """Return where the changes stand; raise an error where they are damaged or belong to another model."""
        names = Head._fields[:5] if self._format() == FORMAT - 1 else Head._fields
        *row, crc = (self._rows(f"SELECT {', '.join(names)}, crc FROM head") or [(None, None)])[0]
        if crc != _crc(tuple(row)):
            raise self._damage("its first record differs from its checksum")
        if row[0] != self.model:
            raise another_model(self.folder)
        if self._least > row[1]:
            raise self._damage(
                f"it ends with change {row[1]}, and {self._least} were written: its log was cut off or damaged"
            )
        return Head(*row)

    def _write_head(self, head: Head) -> None:
        names = ", ".join(Head._fields)
        self._rows(f"UPDATE head SET ({names}, crc) = (?, ?, ?, ?, ?, ?, ?, ?)", *head, _crc(head))

    def _check(self, rows: list[Any], head: Head | None) -> None:
        """Raise an error where a row differs from its checksum, or, given the head and all rows, where one is missing."""
        digest, numbers = 0, 0
        for *row, crc in rows:
            if crc != _crc(tuple(row)):
                raise self._damage(f"record {row[0]} differs from its checksum")
            digest, numbers = digest ^ crc, numbers + row[0]
        if head is not None and digest != head.digest:
            missing = head.size - len(rows) if self._format() == FORMAT else 0
            if missing == 1:
                raise self._damage(f"record {head.numbers - numbers} is missing")
            raise self._damage(f"{missing if missing > 0 else 'some'} records are missing ({len(rows)} are there)")

    def _check_file(self) -> None:
        """Raise an error where SQLite finds the file itself inconsistent."""
        ((found,), *_) = self._rows("PRAGMA quick_check(1)")
        if found != "ok":
            raise self._damage(str(found))

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
        head, rows = self._head(), self._rows(f"SELECT {_COLUMNS} FROM change")
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
