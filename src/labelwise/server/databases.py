"""Connections to SQLite files and PostgreSQL servers. A commit is on disk when it returns."""

import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, text
from sqlalchemy.schema import CreateSchema

from labelwise.support.errors import StoreError, UsageError
from labelwise.support.writable import create_private_folder, sync_folder

SCHEMA = "labelwise"
FILES = "files"  # key in a connection's record
WRITE = "labelwise_write"  # option of a writing connection: seconds to wait for other writers
BUSY = 2.0  # seconds until SQLite reports a lock
CONNECT = 3  # seconds to connect to a server
# The strongest that SQLite offers: each commit is synced, and new names in folders are. macOS needs a stronger call for that.
DURABLE = {"synchronous": "EXTRA", "fullfsync": 1, "checkpoint_fullfsync": 1}
LIMIT = 10  # seconds until a server ends a statement, a lock wait, or an abandoned transaction


def sqlite_engine(file: Path, *, read_only: bool) -> Engine:
    """Return connections to a file, created with permissions for its owner only."""
    if file.is_symlink():
        raise StoreError(f'"{file}" is a link, and a store must be a file. Give the folder that it leads to.')
    if not read_only:
        create_private_folder(file.parent)
        with suppress(FileExistsError):  # SQLite's other files inherit the permissions
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            sync_folder(file.parent)

    def connect() -> sqlite3.Connection:
        address = f"{file.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
        try:
            connection = _open(address)
            connection.execute("SELECT name FROM sqlite_master")
        except sqlite3.OperationalError:
            if not read_only or os.access(file.parent, os.W_OK):
                raise
            connection = _open(f"{file.absolute().as_uri()}?immutable=1", _Frozen)
        return connection

    engine = _engine("sqlite://", connect)

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, record: Any) -> None:
        if not read_only:
            connection.execute("PRAGMA journal_mode=WAL")
            for name, value in DURABLE.items():
                connection.execute(f"PRAGMA {name}={value}")
            connection.execute("SELECT name FROM sqlite_master").fetchall()  # also opens the log
        frozen = isinstance(connection, _Frozen)
        record.info[FILES] = frozen, _files(file, frozen)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        patience = connection.get_execution_options().get(WRITE)
        wait = BUSY if patience is None else min(BUSY, max(patience, 0.0))
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {1000 * wait:.0f}")
        connection.exec_driver_sql("BEGIN" if patience is None else "BEGIN IMMEDIATE")

    return engine


def is_in_place(connection: Connection, file: Path | None) -> bool:
    """Return whether the open files of a connection are still in place: not removed or replaced."""
    if file is None:
        return True
    frozen, known = connection.info[FILES]
    return bool(known == _files(file, frozen))


def postgres_engine(address: str, *, read_only: bool) -> Engine:
    """Return connections to a server; tables are in the schema ``labelwise``, or in the search path of the address."""
    try:
        import psycopg
    except ImportError:
        raise UsageError('PostgreSQL needs psycopg: pip install "labelwise[postgres]".') from None
    shown(address)

    def connect() -> psycopg.Connection[Any]:
        return psycopg.connect(
            address,
            connect_timeout=CONNECT,
            application_name="labelwise",
            keepalives_idle=LIMIT,
            keepalives_interval=2,
            keepalives_count=3,
            tcp_user_timeout=1000 * LIMIT,
        )

    engine = _engine("postgresql+psycopg://", connect)

    @event.listens_for(engine, "connect")
    def configure(connection: psycopg.Connection[Any], _: object) -> None:
        def show(name: str) -> str:
            row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
            return str(row[0]) if row else ""

        settings = dict.fromkeys(
            ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"), f"{LIMIT}s"
        )
        settings["default_transaction_read_only"] = "on" if read_only else "off"
        if show("synchronous_commit") == "off":
            settings["synchronous_commit"] = "on"
        if show("search_path") == '"$user", public':
            settings["search_path"] = SCHEMA
        if show("fsync") == "off" and not read_only:
            raise UsageError("This PostgreSQL runs with fsync=off and could lose taught labels. Set fsync=on.")
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        connection.commit()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if (patience := connection.get_execution_options().get(WRITE)) is not None:
            wait = f"{max(1.0, 1000 * min(patience, LIMIT)):.0f}ms"
            connection.exec_driver_sql("SELECT set_config('lock_timeout', %s, true)", (wait,))

    return engine


def lock_creation(connection: Connection) -> None:
    """Create schema and tables, one service at a time."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('labelwise'))"))
        path = str(connection.execute(text("SELECT current_setting('search_path')")).scalar_one())
        connection.execute(CreateSchema(path.partition(",")[0].strip(' "'), if_not_exists=True))


def shown(address: str) -> str:
    """Return an address without user, password and options, safe to print."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise UsageError('PostgreSQL needs psycopg: pip install "labelwise[postgres]".') from None
    try:
        parts = conninfo_to_dict(address)
    except ProgrammingError as error:
        # libpq's message quotes parts of the address, possibly the password
        reason = re.sub(r'"[^"]{2,}"', '"..."', " ".join(str(error).split()))
        raise UsageError(f"--state is not a valid PostgreSQL address: {reason}.") from None
    host = str(parts.get("host", "localhost"))
    return f"postgresql://{host if '/' not in host else quote(host, safe='')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def _engine(dialect: str, connect: Callable[[], Any]) -> Engine:
    return create_engine(
        dialect,
        creator=connect,
        poolclass=QueuePool,
        pool_size=2,
        max_overflow=2,
        pool_timeout=LIMIT,
        pool_pre_ping=True,
    )


class _Frozen(sqlite3.Connection):
    """A connection to a file on a read-only disk; SQLite does not see what others write to it."""


def _open(address: str, kind: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    return sqlite3.connect(address, uri=True, timeout=BUSY, isolation_level=None, check_same_thread=False, factory=kind)


def _files(file: Path, frozen: bool) -> list[tuple[int, ...]]:
    """Return the identity of a database and its log, with their contents if ``frozen``; zeros for missing files."""
    known = list[tuple[int, ...]]()
    for one in (file, file.with_name(f"{file.name}-wal")):
        try:
            status = os.stat(one)
        except (FileNotFoundError, NotADirectoryError):
            known.append((0, 0))
        else:
            content = (status.st_size, status.st_mtime_ns) if frozen else ()
            known.append((status.st_dev, status.st_ino, *content))
    return known
