"""Changes as rows of a database, whichever it is: what stands in them, how they are checked, and the state they lead to.

A row is a label taught or forgotten; one that no longer counts (undone, or a taught label forgotten for good) is deleted, so that
the rows in order lead to the present state; no number is used twice. Databases need not notice a flipped bit, so every row has a
checksum, and the head, which has one, too, knows how many rows there are, the sum of their numbers and their checksums: a row that is
missing is told by its number.
"""

import zlib
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple

from labelwise.server.journal import another_model
from labelwise.server.lessons import Change, State, unpacked
from labelwise.support.errors import StoreError

FORMAT = 3
COLUMNS = "number, action, label, forgets, words, tensors, crc"


class UnavailableError(StoreError):
    """The database cannot be asked or written now, and may be later."""


class Head(NamedTuple):
    """The one row that says where the changes stand."""

    model: str  # the checksum of the saved classifier that they belong to
    change: int = 0  # how many there were
    settled: int = 0  # the last that cannot be undone
    undone: int = 0  # the last that took one back
    digest: int = 0  # the checksums of all rows, joined by exclusive or
    size: int = 0  # how many rows there are
    numbers: int = 0  # the sum of their numbers


class Records(ABC):
    """The changes of the model with a checksum, through one connection to a database."""

    remote: ClassVar[bool] = False  # whether to ask for the version takes longer than microseconds
    lost: ClassVar[str]  # how changes that were written may be gone

    def __init__(self, name: str, remedy: str, model: str, *, read_only: bool) -> None:
        self.name, self.remedy, self.model, self.read_only = name, remedy, model, read_only
        self._least = 0  # how many changes there must be

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Write all that is asked for inside, or nothing; the next in any process waits until this one has ended."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""

    @abstractmethod
    def _rows(self, query: str, *values: object) -> list[Any]:
        """Return the rows of a query, in which each ``?`` stands for a value."""

    @abstractmethod
    def _format(self) -> int:
        """Return the number of the format; 0 where nothing was ever written."""

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[None]:
        """While open, read one state of the database, whatever others write meanwhile."""

    @abstractmethod
    def _told(self) -> AbstractContextManager[None]:
        """Say in words what the database finds wrong."""

    @abstractmethod
    def _check_file(self) -> None:
        """Raise an error where the database finds itself inconsistent."""

    def cut(self) -> None:  # noqa: B027 - a file answers, or the disk says why not
        """End a query that takes too long, from another thread; it fails then."""

    def version(self) -> int:
        """Return how many changes there were."""
        return int(self._rows("SELECT change FROM head")[0][0])

    def read(self, state: State) -> State:
        """Return the state after all changes, given an earlier one; the same object where nothing is new."""
        with self._told():
            with self._snapshot():
                head = self._head()
                if head.change == state.change:
                    return state
                changes = list(state.changes)
                if state.change and not max(head.settled, head.undone) <= state.change < head.change:
                    left = {number for (number,) in self._rows("SELECT number FROM change")}
                    changes = [one for one in changes if one.number in left]  # others that it knows are gone
                query = f"SELECT {COLUMNS} FROM change WHERE number > ? ORDER BY number"
                rows = self._rows(query, state.change)
                if state.change == 0:
                    self._check_file()
            self._check(rows, head if state.change == 0 else None)
            lessons = {one.number: one.lesson for one in changes if one.action == "teach"}
            for number, action, label, forgets, words, tensors, _ in rows:
                if action == "teach":
                    lessons[number] = unpacked(number, label, words, tensors)
                changes.append(Change(number, action, label, lessons.get(number if action == "teach" else forgets)))
        return State(head.change, head.settled, tuple(changes)).tidied()

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
                self._rows("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?)", *row, crc_of(row))
                digest, size, numbers = digest ^ crc_of(row), size + 1, numbers + change.number
        added = after.change in (change.number for change in after.changes[-1:])
        undone = head.undone if added else after.change
        self._write_head(Head(self.model, after.change, after.settled, undone, digest, size, numbers))

    def damage(self, what: str) -> StoreError:
        """Return the error that the changes are not what was written."""
        return StoreError(
            f"{self.name} is damaged: {what}. Restore it from a copy, or {self.remedy} to start without the taught labels."
        )

    def _head(self) -> Head:
        """Return where the changes stand; raise an error where they are damaged or belong to another model."""
        names = Head._fields[:5] if self._format() == FORMAT - 1 else Head._fields
        *row, crc = (self._rows(f"SELECT {', '.join(names)}, crc FROM head") or [(None, None)])[0]
        if crc != crc_of(tuple(row)):
            raise self.damage("its first record differs from its checksum")
        if row[0] != self.model:
            raise another_model(self.name, self.remedy)
        if self._least > row[1]:
            raise self.damage(f"it ends with change {row[1]}, and {self._least} were written: {self.lost}")
        return Head(*row)

    def _write_head(self, head: Head) -> None:
        names = ", ".join(Head._fields)
        self._rows(f"UPDATE head SET ({names}, crc) = (?, ?, ?, ?, ?, ?, ?, ?)", *head, crc_of(head))

    def _check(self, rows: list[Any], head: Head | None) -> None:
        """Raise an error where a row differs from its checksum, or, given the head and all rows, where one is missing."""
        digest, numbers = 0, 0
        for *row, crc in rows:
            if crc != crc_of(tuple(row)):
                raise self.damage(f"record {row[0]} differs from its checksum")
            digest, numbers = digest ^ crc, numbers + row[0]
        if head is not None and digest != head.digest:
            missing = head.size - len(rows) if self._format() == FORMAT else 0
            if missing == 1:
                raise self.damage(f"record {head.numbers - numbers} is missing")
            raise self.damage(f"{missing if missing > 0 else 'some'} records are missing ({len(rows)} are there)")


def crc_of(row: tuple[Any, ...]) -> int:
    """Return the checksum of all values of a row."""
    return zlib.crc32(b"\0".join(one if isinstance(one, bytes) else repr(one).encode() for one in row))
