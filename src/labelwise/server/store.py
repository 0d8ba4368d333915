"""The history of label changes in a database, through SQLAlchemy Core: SQLite in a folder, or PostgreSQL.

A history has one head: a random id, its model, the number of the last change, and a digest. It is append-only. The digest of a change
is SHA-256 over the previous digest and its own content, so the head's digest covers all changes. A read compares id, number and digest
with the reader's own, which detects a restored copy, a truncated history and damage.

A change is one transaction, on disk before ``change`` returns. A locked or silent database is tried again for a while.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load as read_arrays
from safetensors.numpy import save as write_arrays
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    exc,
    insert,
    inspect,
    select,
    update,
)

from labelwise.server.databases import WRITE, is_in_place, lock_creation, postgres_engine, shown, sqlite_engine
from labelwise.server.settings import is_address
from labelwise.support.errors import StoreError

T = TypeVar("T")
Arrays = Mapping[str, npt.NDArray[Any]]
FORMAT, FILE = 1, "changes.sqlite"
AWAY = (
    exc.OperationalError, exc.InterfaceError, exc.DisconnectionError, exc.InvalidRequestError, exc.TimeoutError, OSError,
)  # fmt: skip
PATIENCE = 10.0  # seconds to retry a change
PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # seconds between retries; the last one repeats
TABLES = MetaData()
HEAD = Table(
    "history",
    TABLES,
    Column("id", String(32), primary_key=True),
    Column("format", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
)
CHANGES = Table(
    "changes",
    TABLES,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("about", Text, nullable=False),  # JSON
    Column("arrays", LargeBinary, nullable=False),  # safetensors
    Column("digest", LargeBinary, nullable=False),
)


class UnavailableError(StoreError):
    """The database is temporarily unusable; ``outcome`` says what happened to a change."""

    outcome = "nothing was changed"


@dataclass(frozen=True)
class Position:
    """The position of a reader in a history."""

    id: str = ""
    number: int = 0
    digest: bytes = b""


@dataclass(frozen=True, eq=False)
class Record:
    """One stored change."""

    kind: str
    about: Mapping[str, Any]
    arrays: Arrays = field(default_factory=dict)
    number: int = 0
    digest: bytes = b""

    @property
    def label(self) -> str:
        """The label of the change."""
        return str(self.about["label"])

    @cached_property
    def nbytes(self) -> int:
        """How many bytes its arrays have."""
        return sum(rows.nbytes for rows in self.arrays.values())


@dataclass(frozen=True, eq=False)
class News:
    """Changes that a reader has not seen; ``whole`` means all changes, and that earlier reads are void."""

    position: Position
    records: Sequence[Record] = ()
    whole: bool = False


class Store:
    """The history of one model in one database."""

    def __init__(self, state: str | Path, model: str, *, read_only: bool = False) -> None:
        self.model, self.read_only = model, read_only
        if isinstance(state, str) and is_address(state):
            self.name, self.file = shown(state), None
            self._engine: Engine = postgres_engine(state, read_only=read_only)
        else:
            self.file = Path(state) / FILE
            self.name = str(self.file)
            self._engine = sqlite_engine(self.file, read_only=read_only)
        try:
            _patiently(self._create, time.monotonic() + PATIENCE)
        except BaseException:
            self.close()
            raise

    def read(self, known: Position) -> News | None:
        """Return the changes that are new to a reader, or None."""
        if self.read_only and self.file is not None and not self.file.exists():
            return None if known == Position() else News(Position(), whole=True)
        with self._transaction() as connection:
            head = self._head(connection)
            return None if head == known else self._news(connection, head, known)

    def change(
        self, known: Position, step: Callable[[News], Record], patience: float | None = None
    ) -> tuple[News, Record]:
        """Call ``step`` with the new changes, commit the change it returns, and return the new changes and the committed one.

        ``step`` runs while no one else can write: it must be quick, and may run again. If it raises an error, nothing changes and the
        error is raised here.
        """
        end = time.monotonic() + (PATIENCE if patience is None else patience)
        nonce, committing = secrets.token_hex(8), False

        def write() -> tuple[News, Record]:
            nonlocal committing
            with self._transaction(end - time.monotonic()) as connection:
                news = self._news(connection, self._head(connection), known)
                for one in news.records:
                    if one.about.get("nonce") == nonce:  # committed, but the answer was lost
                        return news, one
                committing, record = False, step(news)
                news = self._insert(connection, news, replace(record, about={**record.about, "nonce": nonce}))
                if time.monotonic() > end:
                    raise UnavailableError(f"{self.name} did not answer in time")
                committing = True
            return news, news.records[-1]

        try:
            return _patiently(write, end)
        except UnavailableError as error:
            if committing:
                error.outcome = "the change may still be stored: check /labels before you repeat it"
            raise

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def damage(self, what: str) -> StoreError:
        """Return the error for a damaged history."""
        return StoreError(
            f"{self.name} is damaged: {what}. Restore it from a backup, or move it away to start a new history."
        )

    def _create(self) -> None:
        """Create missing tables, and check that they belong to the model."""
        if self.read_only and self.file is not None:
            return
        with self._transaction() as connection:
            if inspect(connection).has_table(HEAD.name):
                self._head(connection)
                return
        if self.read_only:
            raise StoreError(f"{self.name} has no history yet. Start a service without --read-only first.")
        with self._transaction(PATIENCE) as connection:
            lock_creation(connection)
            tables = set(inspect(connection).get_table_names())
            if HEAD.name not in tables:
                if CHANGES.name in tables or (tables and self.file is not None):
                    raise self.damage(f"its table {HEAD.name} is missing")
                TABLES.create_all(connection)
                first = Position(secrets.token_hex(16))
                values = {"id": first.id, "format": FORMAT, "model": self.model, "number": 0}
                connection.execute(insert(HEAD).values(**values, digest=_first_digest(first.id, self.model)))
            self._head(connection)

    @contextmanager
    def _transaction(self, patience: float | None = None) -> Iterator[Connection]:
        """Yield a connection for reading, or one for writing that waits ``patience`` seconds for others; commit at the end.

        A file that was removed or replaced meanwhile is an error: no one would read what was written to it.
        """
        with self._errors_in_words(), self._connection() as connection:
            if patience is not None:
                connection.execution_options(**{WRITE: patience})
            with connection.begin():
                yield connection
            if not is_in_place(connection, self.file):
                raise UnavailableError(f"{self.name} was removed or replaced while in use")

    def _connection(self) -> Connection:
        """Return a connection to the database that is now in place."""
        connection = self._engine.connect()
        if is_in_place(connection, self.file):
            return connection
        connection.invalidate()
        connection.close()
        self._engine.dispose()  # the pooled connections have the old files open
        return self._engine.connect()

    def _head(self, connection: Connection) -> Position:
        """Return the head of the history; a writer locks it."""
        query = select(HEAD)
        if WRITE in connection.get_execution_options():
            query = query.with_for_update()
        rows = connection.execute(query).all()
        if len(rows) != 1:
            raise self.damage(f"its table {HEAD.name} has {len(rows)} rows, not one")
        (row,) = rows
        if row.format != FORMAT:
            raise StoreError(f"{self.name} has format {row.format}; this version reads format {FORMAT}.")
        if row.model != self.model:
            raise StoreError(
                f"{self.name} holds labels taught to another model, probably before this one was trained again. Move it away to "
                "start without them."
            )
        return Position(row.id, row.number, bytes(row.digest))

    def _news(self, connection: Connection, head: Position, known: Position) -> News:
        """Return the changes that are new to a reader, with digests checked."""
        if head == known:
            return News(head)
        if head.id == known.id and known.number < head.number:
            records = self._records(connection, known, head)
            if records and records[-1].digest == head.digest:
                return News(head, records)
        first = Position(head.id, 0, _first_digest(head.id, self.model))
        records = self._records(connection, first, head)
        last = records[-1] if records else first
        if (last.number, last.digest) != (head.number, head.digest):
            raise self.damage(f"it ends with change {last.number} of {head.number}, or its head was altered")
        return News(head, records, whole=True)

    def _records(self, connection: Connection, after: Position, head: Position) -> list[Record]:
        """Return the changes from a position to the head, and verify the chain of digests."""
        records, digest = list[Record](), after.digest
        query = select(CHANGES).where(CHANGES.c.number > after.number, CHANGES.c.number <= head.number)
        for number, row in enumerate(connection.execute(query.order_by(CHANGES.c.number)), after.number + 1):
            arrays = bytes(row.arrays)
            digest = _digest(digest, number, row.kind, row.about, arrays)
            if number != row.number or digest != bytes(row.digest):
                break
            try:
                records.append(Record(row.kind, json.loads(row.about), _unpacked(arrays), number, digest))
            except (ValueError, SafetensorError) as error:
                raise self.damage(f"change {number} cannot be read ({error})") from error
        return records

    def _insert(self, connection: Connection, news: News, record: Record) -> News:
        number, before = news.position.number + 1, news.position.digest
        about, arrays = json.dumps(record.about), write_arrays(dict(record.arrays)) if record.arrays else b""
        digest = _digest(before, number, record.kind, about, arrays)
        row = {"number": number, "kind": record.kind, "about": about, "arrays": arrays, "digest": digest}
        connection.execute(insert(CHANGES).values(**row))
        connection.execute(update(HEAD).values(number=number, digest=digest))
        record = replace(record, number=number, digest=digest)
        return News(Position(news.position.id, number, digest), [*news.records, record], news.whole)

    @contextmanager
    def _errors_in_words(self) -> Iterator[None]:
        """Raise database errors as ``UnavailableError`` or ``StoreError``."""
        try:
            yield
        except AWAY as error:
            raise UnavailableError(f"{self.name} is not available: {_words(error)}.") from error
        except exc.SQLAlchemyError as error:
            raise self.damage(_words(error)) from error


def _first_digest(id: str, model: str) -> bytes:
    return hashlib.sha256(f"labelwise {FORMAT} {id} {model}".encode()).digest()


def _digest(before: bytes, number: int, kind: str, about: str, arrays: bytes) -> bytes:
    return hashlib.sha256(before + json.dumps([number, kind, about]).encode() + b"\0" + arrays).digest()


def _unpacked(arrays: bytes) -> Arrays:
    return read_arrays(arrays) if arrays else {}


def _patiently(task: Callable[[], T], end: float) -> T:
    """Return the result of a task, retried until a deadline while the database is unavailable."""
    for pause in chain(PAUSES, repeat(PAUSES[-1])):
        try:
            return task()
        except UnavailableError:
            if time.monotonic() + pause > end:
                raise
            time.sleep(pause)
    raise AssertionError("there is always another pause")


def _words(error: BaseException) -> str:
    """Return the driver's message in one line, without the statement that SQLAlchemy adds."""
    return " ".join(str(getattr(error, "orig", None) or error).split()).removesuffix(".") or type(error).__name__
