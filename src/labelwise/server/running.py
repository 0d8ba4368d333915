"""Run a service in one process or several on one port. The first stop signal lets it finish accepted requests, the second ends it."""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from labelwise.core.load import shape_of
from labelwise.server.app import build
from labelwise.server.capabilities import check_takes_images
from labelwise.server.live import folder_of, open_store
from labelwise.server.metrics import CELLS, Metrics
from labelwise.server.middleware import LOG, Guard
from labelwise.server.settings import Service
from labelwise.server.stopping import MOMENT, finish, make_no_more_connections
from labelwise.support.errors import LabelwiseError, StoreError, UsageError
from labelwise.support.processes import check_signals
from labelwise.support.text import as_json, visible
from labelwise.support.writable import create_private_folder, sole_writer

GRACE = 20  # seconds that requests get to end when the service stops
ORPHANED = 3.0  # seconds that requests get to end when the first process is gone
BACKLOG = 1024  # connections that wait to be accepted
LARGEST_HEAD = 2**16  # bytes of a request before its body
SPARE = 128  # files that a worker may open in addition to its connections
PAUSES = (
    0.0,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
)  # seconds until a worker that ended is started again, longer where it ended soon
SOON = 30.0  # seconds


def serve(service: Service) -> None:
    """Serve until a stop signal."""
    check_takes_images(shape_of(service.model))
    with contextlib.nullcontext() if service.shares else _sole(service), listening(service) as listener:
        start_log(service)
        if service.workers == 1:
            _serve_one(service, listener, Metrics())
            return
        if not service.read_only:  # create or check the store once, not in each worker
            open_store(service.model, service.state).close()
        Supervisor(service, listener).run()


def _sole(service: Service) -> AbstractContextManager[None]:
    """Lock the folder of changes against other services while open."""
    folder = folder_of(service.model) if service.state is None else Path(service.state)
    create_private_folder(folder)
    return sole_writer(folder, folder / "service.lock", _busy)


def _busy(folder: Path, owner: str) -> StoreError:
    return StoreError(
        f"Another service (process {owner or 'unknown'}) serves this model and stores its changes in {folder}. Stop it, start "
        "this one with --read-only, or serve a copy of the model."
    )


def listening(service: Service) -> socket.socket:
    """Open the port, or raise an error that says what is wrong."""
    family = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    try:
        listener = socket.create_server((service.host, service.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise UsageError(
            f"Cannot listen on {service.host}, port {service.port}: {error.strerror}. Choose another with --port or --host."
        ) from None
    listener.setblocking(False)
    return listener


def _announce(service: Service, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    LOG.info("Serving %s on http://%s:%s", service.model, f"[{host}]" if ":" in host else host, port)


def _serve_one(service: Service, listener: socket.socket, metrics: Metrics, parent: int | None = None) -> None:
    """Serve in this process, until a signal or the end of the parent process (a sentinel)."""
    serve_app(build(service, metrics), service, listener, parent)


def serve_app(guard: Guard, service: Service, listener: socket.socket, parent: int | None = None) -> None:
    """Serve an application in this process, until a signal or the end of the parent process (a sentinel)."""
    check_signals()
    config = uvicorn.Config(
        guard,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=_most_connections(service),
        timeout_keep_alive=round(service.timeout) or 1,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=LARGEST_HEAD,
    )
    _announce(service, listener)
    with asyncio.Runner() as runner:
        runner.run(_run(uvicorn.Server(config), guard, listener, parent))


async def _run(server: uvicorn.Server, guard: Guard, listener: socket.socket, parent: int | None) -> None:
    """Serve until asked to stop, then answer a moment longer, so that clients learn to stop sending."""
    loop = asyncio.get_running_loop()
    last = list[asyncio.Task[None]]()

    def stop() -> None:
        if guard.stopping:  # second signal
            server.should_exit = server.force_exit = True
        else:
            guard.stopping = True
            last.append(asyncio.create_task(finish(server, listener, alone=parent is None)))

    def stop_soon(parent: int) -> None:
        loop.remove_reader(parent)
        stop()
        loop.call_later(ORPHANED, stop)

    def handle_signals() -> None:
        for kind in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(kind, stop)

    handle_signals()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    handle_signals()  # replaces the handlers of uvicorn
    if parent is not None:
        loop.add_reader(parent, stop_soon, parent)
    await serving


def _most_connections(service: Service) -> int:
    """Raise the limit of open files as far as allowed, and return the number of connections it permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = service.connections + SPARE
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return service.connections
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - SPARE)


@dataclass
class Worker:
    """A worker process, and when to restart it after it ended."""

    process: BaseProcess
    started: float
    failures: int = 0  # consecutive early ends
    due: float | None = None


class Supervisor:
    """Starts workers, restarts those that end, and passes on the stop signal."""

    def __init__(self, service: Service, listener: socket.socket) -> None:
        self.service, self.listener = service, listener
        self._context: SpawnContext = multiprocessing.get_context("spawn")
        self._counts = self._context.RawArray("d", service.workers * CELLS)
        self._signals = 0

    def run(self) -> None:
        """Run the workers until a stop signal; a second one ends them."""
        check_signals()
        for kind in (signal.SIGTERM, signal.SIGINT):
            signal.signal(kind, self._count_signal)
        workers = [Worker(self._start(row), time.monotonic()) for row in range(self.service.workers)]
        while not self._signals:
            wait([one.process.sentinel for one in workers if one.due is None], timeout=0.2)
            for row, worker in enumerate(workers):
                self._restart(row, worker)
        for worker in workers:
            worker.process.terminate()
        time.sleep(MOMENT)  # workers go on accepting
        make_no_more_connections(self.listener)
        self.listener.close()
        end = time.monotonic() + GRACE + 5
        while any(one.process.is_alive() for one in workers) and time.monotonic() < end and self._signals < 2:
            wait([one.process.sentinel for one in workers if one.process.is_alive()], timeout=0.2)
        for worker in workers:
            worker.process.kill()
            worker.process.join()

    def _restart(self, row: int, worker: Worker) -> None:
        """Record that a worker ended, and restart it when due."""
        now = time.monotonic()
        if worker.due is None and worker.process.exitcode is not None:
            worker.failures = worker.failures + 1 if now - worker.started < SOON else 0
            pause = PAUSES[min(worker.failures, len(PAUSES) - 1)]
            worker.due = now + pause
            words = "worker %s ended (exit code %s); restart in %g s"
            LOG.error(words, worker.process.pid, worker.process.exitcode, pause)
        if worker.due is not None and now >= worker.due:
            worker.process, worker.started, worker.due = self._start(row), now, None

    def _start(self, row: int) -> BaseProcess:
        process = self._context.Process(target=_worker, args=(self.service, self.listener, self._counts, row))
        process.start()
        return process

    def _count_signal(self, _: int, __: FrameType | None) -> None:
        self._signals += 1


def _worker(service: Service, listener: socket.socket, counts: Any, row: int) -> None:
    """Serve in one of several processes, with metrics in shared memory."""
    os.setpgrp()  # Ctrl-C goes to the first process, which passes it on
    start_log(service)
    parent = multiprocessing.parent_process()
    try:
        _serve_one(service, listener, Metrics(counts, row), parent.sentinel if parent else None)
    except LabelwiseError as error:
        LOG.error("%s", error)
        sys.exit(1)


class _Lines(logging.Formatter):
    """Log format: JSON lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line."""
        row = {"time": round(record.created, 3), "level": record.levelname.lower(), "message": record.getMessage()}
        row |= getattr(record, "about", {})
        if record.exc_info:
            row["trace"] = self.formatException(record.exc_info)
        return as_json(row)


class _Plain(logging.Formatter):
    """Log format: plain lines. Text from a request cannot start a line or control the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - name in the standard library
        """Format a record."""
        return visible(super().formatMessage(record))


def start_log(service: Service) -> None:
    """Send the log to standard error, including warnings of other packages and of Python."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines() if service.log == "json" else _Plain("%(asctime)s %(levelname)s %(message)s"))
    LOG.handlers[:] = [handler]
    logging.getLogger().handlers[:] = [handler]
    logging.captureWarnings(True)
    LOG.propagate = False
    LOG.setLevel(logging.INFO)
