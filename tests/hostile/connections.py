"""Clients that bite: they send ahead, do not take their answers, open many connections. What an honest one beside them meets.

``python -m tests.hostile.connections [--before SRC] [--model FOLDER]`` prints a table: memory of the service, and the times of an honest client, quiet
and beside each attack; with ``--before`` also of the service whose sources lie there, in the same run, on a
classifier that it can read.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from serve import Running as Running

HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LARGE = b"GET /static/page.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def connect(port: int, receive: int | None = None, seconds: float = 20, source: str = "127.0.0.1") -> socket.socket:
    """Return a new connection from an address, with so many bytes of room for what it does not read."""
    one = socket.socket()
    one.settimeout(seconds)
    one.bind((source, 0))
    if receive is not None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    one.connect(("127.0.0.1", port))
    return one


def answers(one: socket.socket) -> bytes:
    """Return all that comes until the other side closes."""
    parts = []
    while part := one.recv(2**16):
        parts.append(part)
    return b"".join(parts)


def post(path: str, body: bytes, *headers: str, length: str | None = None) -> bytes:
    """Return a request as bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length or len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def megabytes(service: Running) -> float:
    """Return the memory of a service, in MB."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000


def asks(port: int, path: str = "/health", source: str = "127.0.0.1") -> tuple[int, float]:
    """Return the status of an answer on a new connection, 0 for none, and the seconds it took."""
    began = time.perf_counter()
    try:
        with connect(port, seconds=10, source=source) as one:
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            return int(answers(one)[9:12]), time.perf_counter() - began
    except (OSError, ValueError):
        return 0, time.perf_counter() - began


@contextlib.contextmanager
def ahead(port: int, megabytes: float = 15) -> Iterator[None]:
    """While open, one client sends many requests ahead and reads nothing."""
    with connect(port) as one:
        one.setblocking(False)
        content, sent, end = HEALTH * (2**16 // len(HEALTH)), 0, time.monotonic() + 10
        while sent < megabytes * 1e6 and time.monotonic() < end:
            try:
                sent += one.send(content[sent % len(HEALTH) :])  # no request is torn
            except BlockingIOError:
                time.sleep(0.01)
            except ConnectionError:
                break
        yield


@contextlib.contextmanager
def slow(port: int, count: int = 300) -> Iterator[None]:
    """While open, so many clients ask for large answers and take none."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            with contextlib.suppress(OSError):
                one = stack.enter_context(connect(port, receive=1024, seconds=1))
                one.setblocking(False)
                one.send(LARGE * 20)
        yield


ATTACKS: dict[str, Callable[[int], contextlib.AbstractContextManager[None]]] = {
    "quiet": lambda _: contextlib.nullcontext(),
    "15 MB sent ahead": ahead,
    "300 slow readers": slow,
}


def measured(model: Path) -> list[dict[str, Any]]:
    """Return what an honest client and the memory of a service say, quiet and beside each attack."""
    rows = []
    for name, attack in ATTACKS.items():
        service, most, stop = Running(model), [0.0], threading.Event()

        def watch(service: Running = service, most: list[float] = most, stop: threading.Event = stop) -> None:
            while not stop.wait(0.05):
                most[0] = max(most[0], megabytes(service))

        watching = threading.Thread(target=watch)
        try:
            asks(service.port, "/card")
            most[0] = before = megabytes(service)
            watching.start()
            with attack(service.port):
                health, card = (
                    [asks(service.port, path, "127.0.0.2") for _ in range(20)] for path in ("/health", "/card")
                )
        finally:
            stop.set()
            watching.join()
            service.end(signal.SIGKILL)
        row: dict[str, Any] = {"attack": name, "MB more": round(most[0] - before)}
        for path, asked in (("health", health), ("card", card)):
            row[f"{path} ms"] = round(1000 * statistics.median(seconds for _, seconds in asked), 1)
            row[f"{path} answered"] = f"{sum(status == 200 for status, _ in asked)}/{len(asked)}"
        rows.append(row)
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--before", type=Path, help="Sources of another version to measure first.")
    parser.add_argument("--model", type=Path, help="A saved classifier; otherwise one is fitted.")
    given = parser.parse_args()
    from tests.server.asking import saved

    with tempfile.TemporaryDirectory() as folder:
        model = given.model or saved(Path(folder))
        own = os.environ.get("PYTHONPATH", "")
        for name, sources in (("before", given.before), ("now", own)):
            if sources is not None:
                os.environ["PYTHONPATH"] = str(sources)
                for row in measured(model):
                    print(json.dumps({"version": name, **row}), flush=True)


if __name__ == "__main__":
    main()
