"""Run a service: one process or several on one port, stopped by a signal after it has finished what it accepted."""

import asyncio
import contextlib
import logging
import multiprocessing
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import uvicorn

from labelwise.core.description import shape_of
from labelwise.server.abilities import check_pictures
from labelwise.server.app import build
from labelwise.server.connection import ASIDE, Connection, Crowd
from labelwise.server.guard import LOG, Guard
from labelwise.server.measures import CELLS, Measures
from labelwise.server.present import folder_of, open_records
from labelwise.server.records import UnavailableError
from labelwise.server.settings import Service
from labelwise.support.display import as_json, visible
from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from labelwise.support.interruption import end_with_parent
from labelwise.support.writable import sole_writer

GRACE = 20  # seconds that requests get to end when the service stops
MOMENT = 0.5  # seconds that it goes on refusing in words whatever happens: many clients are about to ask
BACKLOG = 1024  # connections that wait to be taken
SPARE = 128  # files that a worker may open beside its connections


def serve(service: Service) -> None:
    """Serve until a signal says stop."""
    check_pictures(shape_of(service.model))
    with contextlib.nullcontext() if service.shares else _sole(service), listening(service) as listener:
        if service.workers == 1:
            _serve_one(service, listener, Measures())
            return
        _log(service)
        if not service.read_only:  # made, or found damaged, once and not by each worker
            open_records(service.model, service.state, read_only=False).close()
        _serve_many(service, listener)


def _sole(service: Service) -> AbstractContextManager[None]:
    """While open, no other service can write to the folder of the changes."""
    folder = folder_of(service.model) if service.state is None else Path(service.state)
    return sole_writer(folder, folder / "service.lock", _busy)


def _busy(folder: Path, owner: str) -> StoreError:
    return StoreError(
        f"Another service (process {owner or 'unknown'}) serves this model and keeps its changes in {folder}. Stop it, start "
        "this one with --read-only, or serve a copy of the model."
    )


def listening(service: Service) -> socket.socket:
    """Return the open port; an error says what is wrong with it."""
    family = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    try:
        listener = socket.create_server((service.host, service.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UsageError(
            f"Cannot listen on {service.host}, port {service.port}: {error.strerror}. Choose another with --port or --host."
        ) from None
    listener.setblocking(False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the head of an answer does not wait for its body
    return listener


class _Server(uvicorn.Server):
    """A server that ends with exit code 0 when it was told to stop."""

    def __init__(self, config: uvicorn.Config, guard: Guard) -> None:
        super().__init__(config)
        self.guard = guard

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT."""
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.handle_exit, one, None)
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was accepted, and tell all others to come back, before the port is closed."""
        self.guard.stopping, clock = True, asyncio.get_running_loop().time
        began = clock()
        while clock() < began + MOMENT or (self.guard.accepted and clock() < began + GRACE and not self.force_exit):
            await asyncio.sleep(0.05)
        await super().shutdown(sockets)


def _serve_one(service: Service, listener: socket.socket, measures: Measures) -> None:
    """Serve in this process."""
    _log(service)
    sys.setswitchinterval(0.001)  # the loop must not wait long for threads that decode
    app = build(service, measures)
    config = uvicorn.Config(
        app,
        http=partial(Connection, _crowd(service), service.timeout),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=round(service.timeout) or 1,
        timeout_graceful_shutdown=2,  # after the grace: connections say goodbye
        backlog=BACKLOG,
    )
    server = _Server(config, app)
    host, port = listener.getsockname()[:2]
    LOG.info("Serving %s on http://%s:%s", service.model, f"[{host}]" if ":" in host else host, port)
    asyncio.run(server.serve(sockets=[listener]))


def _crowd(service: Service) -> Crowd:
    """Return the limits of connections; as many files as the system allows may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = service.connections + ASIDE + SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return Crowd(max(1, soft - ASIDE - SPARE), service.per_address)
    return Crowd(service.connections, service.per_address)


def _worker(service: Service, listener: socket.socket, counts: Any, row: int) -> None:
    """Serve in one of several processes, which count in memory that they share; end when the first process is gone."""
    end_with_parent()
    while True:
        try:
            _serve_one(service, listener, Measures(counts, row))
            return
        except UnavailableError as error:  # others go on meanwhile with what they know
            LOG.error("%s", error)
            time.sleep(1)
        except LabelwiseError as error:
            LOG.error("%s", error)
            sys.exit(1)


def _serve_many(service: Service, listener: socket.socket) -> None:
    """Start the workers, start those anew that die, and pass on the signal to stop."""
    stop = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stop.set())
    context = multiprocessing.get_context("spawn")
    counts = context.RawArray("d", service.workers * CELLS)

    def start(row: int) -> BaseProcess:
        process = context.Process(target=_worker, args=(service, listener, counts, row), daemon=False)
        process.start()
        return process

    workers = [start(row) for row in range(service.workers)]
    failed = False
    while not failed and not stop.wait(0.2):
        for row, worker in enumerate(workers):
            if worker.exitcode is not None:
                failed = failed or worker.exitcode > 0  # it ended by itself: another would, too
                LOG.error("worker %s ended (exit code %s)", worker.pid, worker.exitcode)
                if worker.exitcode <= 0:
                    workers[row] = start(row)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(GRACE + 5)
    if failed:
        raise LabelwiseError("A worker could not serve; its error is above.")


class _Lines(logging.Formatter):
    """JSON lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one record as one line."""
        row = {"time": round(record.created, 3), "level": record.levelname.lower(), "message": record.getMessage()}
        row |= getattr(record, "about", {})
        if record.exc_info:
            row["trace"] = self.formatException(record.exc_info)
        return as_json(row)


class _Plain(logging.Formatter):
    """Lines for people: what a request says cannot begin a line, nor steer the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the standard library
        """Return the line of a record."""
        return visible(super().formatMessage(record))


def _log(service: Service) -> None:
    """Send the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines() if service.log == "json" else _Plain("%(asctime)s %(levelname)s %(message)s"))
    LOG.handlers[:] = [handler]
    LOG.propagate = False
    LOG.setLevel(logging.INFO)
