"""Changes in PostgreSQL, for services on several machines that share one state.

A change is one transaction: its first statement locks the head, so that writers of all machines take turns, and it is committed, on the
server's disk, before it is acknowledged. What a server does not answer in time is given up; if that was a commit, nobody knows
whether it came to pass, and the error says so.
"""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from labelwise.server.lessons import State
from labelwise.server.records import FORMAT, Head, Records, UnavailableError
from labelwise.support.errors import LabelwiseError, StoreError, UsageError

T = TypeVar("T")
LOG = logging.getLogger("labelwise.server")
SCHEMA, COMMENT = "labelwise", "labelwise changes, format "
_TABLES = (
    "CREATE TABLE head (model TEXT, change BIGINT, settled BIGINT, undone BIGINT, digest BIGINT, size BIGINT, "
    "numbers BIGINT, crc BIGINT)",
    "CREATE TABLE change (number BIGINT PRIMARY KEY, action TEXT, label TEXT, forgets BIGINT, words TEXT, tensors BYTEA, "
    "crc BIGINT)",
    f"COMMENT ON TABLE head IS '{COMMENT}{FORMAT}'",
    "INSERT INTO head DEFAULT VALUES",
)
CONNECT, PATIENCE = 3, 10  # seconds within which a server must take a connection, and have done a change
# A service that was stopped or lost in the midst of a change must not keep the others from theirs: the server ends it.
_TIMEOUTS = ("lock_timeout", "idle_in_transaction_session_timeout")
_BROKEN = (psycopg.OperationalError, psycopg.InterfaceError)


class Postgres(Records):
    """The changes of the model with a checksum, in the schema ``labelwise`` of a database, or the one that its address names."""

    remote = True
    lost = "it is older than what this service has seen, as a copy or another server may be"

    def __init__(self, address: str, model: str, *, read_only: bool, former: Callable[[], State] = State) -> None:
        self.address, shown = address, _shown(address)
        super().__init__(shown, "drop the schema that holds its tables", model, read_only=read_only)
        self._connection: psycopg.Connection[Any] | None = None
        self._unread = False  # whether the server may not be the one that was read last
        self._inside = False  # whether a transaction is open, which a new connection would not continue
        try:
            with self._told():
                self._prepare(former)
        except LabelwiseError:
            self.close()
            raise
        self._unread = False

    def version(self) -> int:
        """Return how many changes there were; -1 where the server may be another one since the last read."""
        with self._told():
            number: int = self._again(super().version)
        unread, self._unread = self._unread, False
        return -1 if unread else number

    def read(self, state: State) -> State:
        """Return the state after all changes, given an earlier one; all of it is read where the server may be another one."""
        self._least = max(self._least, state.change)
        with self._bounded():
            with self._told():
                self._again(partial(self._rows, "SELECT 1"))
            now = super().read(State() if self._unread else state)
        self._unread = False
        return now

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all that is asked for inside, or nothing; the next in any process waits until this one has ended."""
        known = "nothing was changed"
        with self._bounded():
            try:
                self._again(self._begin)
                self._inside = True
                yield
                known = "nobody knows whether it was all the same: look at /labels before you repeat it"
                self._rows("COMMIT")
            except BaseException as error:
                self._give_up()
                if not isinstance(error, psycopg.Error | UnavailableError):
                    raise
                LOG.warning("A change could not be written: %s", _words(error))
                why = _words(error) if self._connected else "the store of changes does not answer"
                raise UnavailableError(f"The change could not be written ({why}); {known}.") from error
            finally:
                self._inside = False

    def close(self) -> None:
        """Let go of the server."""
        if self._connection is not None:
            self._connection.close()

    def cut(self) -> None:
        """End a query that takes too long, from another thread; it fails then."""
        connection = self._connection
        with contextlib.suppress(OSError, psycopg.Error):
            if connection is not None:
                with socket.socket(fileno=os.dup(connection.fileno())) as line:
                    line.shutdown(socket.SHUT_RDWR)

    @property
    def _connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    def _begin(self) -> None:
        self._rows("BEGIN")
        self._rows("SELECT change FROM head FOR UPDATE")

    def _again(self, work: Callable[[], T]) -> T:
        """Return what the beginning of some work gives, on a new connection where the old one is broken."""
        try:
            return work()
        except _BROKEN:
            if self._inside or self._connected:
                raise
            self._connect()
            return work()

    @contextlib.contextmanager
    def _bounded(self) -> Iterator[None]:
        """Cut what is done inside when it takes too long."""
        timer = threading.Timer(PATIENCE, self.cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _give_up(self) -> None:
        """End a transaction; a connection that cannot do so is closed."""
        try:
            self._rows("ROLLBACK")
        except psycopg.Error:
            self.close()

    def _connect(self) -> None:
        """Open a connection whose commits are on disk when they are answered."""
        self.close()
        self._connection, self._unread = None, True
        self._connection = psycopg.connect(
            self.address, autocommit=True, connect_timeout=CONNECT, application_name="labelwise"
        )
        for name in _TIMEOUTS:
            self._rows("SELECT set_config(?, ?, false)", name, f"{PATIENCE}s")
        if self._show("fsync") == "off" and not self.read_only:
            raise UsageError(f"{self.name} is run with fsync=off: what was taught could be lost. Set it to on.")
        if self._show("synchronous_commit") == "off":
            self._rows("SET synchronous_commit = on")
        if self._show("search_path") == '"$user", public':
            self._rows(f"SET search_path = {SCHEMA}")
        self._rows(f"SET default_transaction_read_only = {'on' if self.read_only else 'off'}")

    def _prepare(self, former: Callable[[], State]) -> None:
        """Make the tables, with the changes that a service without a server has kept, where there are none."""
        self._connect()
        if not self.read_only:
            self._rows("BEGIN")
            self._rows("SELECT pg_advisory_xact_lock(hashtext(?))", COMMENT)  # two may start at once
            if self._format() == 0:
                schema = sql.Identifier(self._show("search_path").partition(",")[0].strip(' "'))
                self._execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
                for statement in _TABLES:
                    self._rows(statement)
                self._write_head(Head(self.model))
                taken = former()
                self.write(State(), taken)
                LOG.info("%s: new, with %s changes taken over", self.name, taken.change)
            self._rows("COMMIT")
        if self._format() == 0:
            raise StoreError(f"{self.name} holds no changes yet. Start a service that is not --read-only first.")
        if self._format() != FORMAT:
            raise StoreError(
                f"{self.name} has format {self._format()}; this version reads format {FORMAT}. Update labelwise."
            )
        self._head()

    def _format(self) -> int:
        ((words,),) = self._rows("SELECT obj_description(to_regclass('head'), 'pg_class')")
        return int((words or "0").removeprefix(COMMENT))

    def _check_file(self) -> None:
        """Do nothing: the server looks after its files."""

    def _show(self, name: str) -> str:
        return str(self._rows("SELECT current_setting(?)", name)[0][0])

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        if self._connection is None or self._connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            yield  # a transaction that has locked the head: nobody writes
            return
        self._rows("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            yield
        finally:
            self._give_up()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except _BROKEN as error:
            raise UnavailableError(f"{self.name} cannot be asked: {_words(error)}.") from error
        except ValueError as error:
            raise self.damage(_words(error)) from error
        except psycopg.Error as error:
            raise StoreError(f"{self.name} cannot be used: {_words(error)}.") from error

    def _rows(self, query: str, *values: object) -> list[Any]:
        return self._execute(query.replace("?", "%s").encode(), values)

    def _execute(self, query: Any, values: Any = ()) -> list[Any]:
        if self._connection is None:
            raise psycopg.OperationalError("there is no connection")
        cursor = self._connection.execute(query, values)
        return cursor.fetchall() if cursor.description else []


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__


def _shown(address: str) -> str:
    """Return an address as it may be told: without user, password and options."""
    try:
        parts = conninfo_to_dict(address)
    except psycopg.ProgrammingError as error:
        raise UsageError(f"--state is no address of PostgreSQL: {_words(error)}.") from None
    host = str(parts.get("host", "localhost"))
    return f"postgresql://{host if '/' not in host else quote(host, safe='')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
