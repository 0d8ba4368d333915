"""The moment of a stop: whoever has a connection by then is answered."""

import asyncio
import ctypes
import os
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn

from labelwise.server import running, stopping
from labelwise.server.middleware import Guard
from labelwise.server.settings import Service
from labelwise.support.processes import stop_on_signals

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


async def stopped(meet: Any) -> list[bytes]:
    """What clients read whose sockets ``meet`` opens while the loop of a service that was told to stop does nothing else."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    listener.setblocking(False)
    config = uvicorn.Config(answer, http="h11", ws="none", lifespan="off", log_config=None)
    guard: Any = SimpleNamespace(stopping=False)
    serving = asyncio.create_task(running._run(uvicorn.Server(config), guard, listener, None))
    await asyncio.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    while not guard.stopping:
        await asyncio.sleep(0)
    clients = meet(listener.getsockname())
    answers = await asyncio.gather(*(asyncio.to_thread(read, client) for client in clients))
    await asyncio.wait_for(serving, 10)
    return answers


def read(client: socket.socket) -> bytes:
    with client:
        client.settimeout(10)
        try:
            return client.recv(4096)
        except OSError as error:
            return repr(error).encode()


def test_a_connection_that_is_accepted_in_the_moment_of_the_stop_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "MOMENT", 0.05)

    def meet(address: tuple[str, int]) -> list[socket.socket]:
        clients = [socket.create_connection(address) for _ in range(20)]
        for client in clients:
            client.sendall(REQUEST)
        time.sleep(0.3)  # the loop is late: it accepts when it should already close
        return clients

    answers = asyncio.run(stopped(meet))
    assert [one.partition(b"\r\n")[0] for one in answers] == [b"HTTP/1.1 200 OK"] * 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_python_drops_stops_a_service_before_it_serves() -> None:
    """Python drops what is raised in a callback from C, such as those that look for libraries of linear algebra."""
    service, guard = Service(model=Path("m.lw"), port=0), SimpleNamespace(stopping=False)
    with running.listening(service) as listener, stop_on_signals() as signals:
        ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()
        assert signals.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            running.serve_app(cast("Guard", guard), service, listener)
        with pytest.raises(KeyboardInterrupt):
            running.Supervisor(service, listener).run()
