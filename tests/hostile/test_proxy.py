"""The proxy of ``deploy/`` before a real service: slow clients and many connections of one client reach the service no more."""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hostile.connections import HEALTH, answers, asks, connect, post
from tests.server.asking import images_of, png, saved
from tests.server.services import Running

pytestmark = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"
IMAGE = png(images_of(0)[0])
SHORT = {"client_header_timeout 10s": "client_header_timeout 2s", "client_body_timeout 20s": "client_body_timeout 2s",
         "send_timeout 20s": "send_timeout 2s", "limit_conn connections 100": "limit_conn connections 20",
         "rate=50r/s": "rate=500r/s", "client_max_body_size 16m": "client_max_body_size 1m"}  # fmt: skip


@dataclass
class Proxied:
    """A service, and the port of the proxy before it."""

    service: Running
    port: int

    def connections(self) -> int:
        """Return how many connections the service has open."""
        port, lines = f":{self.service.port:04X}", Path("/proc/net/tcp").read_text().splitlines()[1:]
        return sum(line.split()[1].endswith(port) and line.split()[3] == "01" for line in lines)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("proxied")
    service = Running(saved(folder), "--connections", "60")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = CONFIGURATION.read_text()
    for long, short in SHORT.items():
        assert long in words
        words = words.replace(long, short)
    words = re.sub(r"server two:.*", "", words.replace("server one:8000", f"server 127.0.0.1:{service.port}"))
    words = words.replace("listen 8080", f"listen 127.0.0.1:{port}").replace("/tmp/", f"{folder}/")
    user = "user root;\n" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(f"{user}daemon off;\n{words}")
    nginx = subprocess.Popen([shutil.which("nginx") or "", "-c", str(folder / "nginx.conf")], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while asks(port)[0] != 200:
            assert time.monotonic() < end
            time.sleep(0.1)
        yield Proxied(service, port)
        assert asks(service.port)[0] == 200
        assert "Traceback" not in service.said()
    finally:
        nginx.terminate()
        nginx.wait(20)
        service.end(signal.SIGKILL)


def test_heads_that_do_not_end_are_cut_off_and_never_reach_the_service(proxied: Proxied) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(proxied.port)) for _ in range(150)]
        for one in slow:
            one.sendall(b"POST /classify HTTP/1.1\r\nHost: 127.")
        assert [asks(proxied.port)[0] for _ in range(5)] == [200] * 5
        assert proxied.connections() < 20
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            answers(slow[0])
        assert time.monotonic() - began < 10


def test_a_body_that_does_not_arrive_never_reaches_the_service(proxied: Proxied) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(proxied.port)) for _ in range(15)]
        for one in slow:
            one.sendall(post("/classify", IMAGE[:9], "Content-Type: image/png", length=str(len(IMAGE))))
        assert asks(proxied.port)[0] == 200
        assert proxied.connections() < 10
        with contextlib.suppress(ConnectionError):
            assert answers(slow[0])[9:12] in (b"", b"408")


def test_slow_readers_keep_nobody_waiting(proxied: Proxied) -> None:
    large = b"GET /static/page.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            one = stack.enter_context(connect(proxied.port, receive=1024))
            one.sendall(large * 20)
        time.sleep(0.5)
        assert [asks(proxied.port, source="127.0.0.2")[0] for _ in range(5)] == [200] * 5
        assert proxied.connections() <= 40, "the proxy holds the answers"


def test_requests_of_one_client_at_a_time_are_limited(proxied: Proxied) -> None:
    """The service is stopped for a moment, so that requests stay in work."""
    os.kill(proxied.service.process.pid, signal.SIGSTOP)
    found = list[int]()
    try:
        with contextlib.ExitStack() as stack:
            several = [stack.enter_context(connect(proxied.port)) for _ in range(30)]
            for one in several:
                one.sendall(HEALTH)
            time.sleep(0.5)
            threading.Timer(0.5, os.kill, (proxied.service.process.pid, signal.SIGCONT)).start()
            found = [int(one.recv(4096)[9:12]) for one in several]
    finally:
        os.kill(proxied.service.process.pid, signal.SIGCONT)
    assert found.count(200) == 20
    assert found.count(503) == 10
    assert asks(proxied.port)[0] == 200


def test_a_refusal_of_a_large_body_arrives(proxied: Proxied) -> None:
    with connect(proxied.port) as one:
        with contextlib.suppress(ConnectionError):
            one.sendall(post("/classify", bytes(4_000_000), "Content-Type: image/png", "Connection: close"))
        assert answers(one)[9:12] == b"413"


def test_questions_and_changes_pass(proxied: Proxied) -> None:
    kind = "Content-Type: image/png"
    for path, status in (
        ("/classify", b"200"),
        ("/teach?label=new", b"200"),
        ("/forget?label=none", b"404"),
        ("/undo", b"200"),
    ):
        with connect(proxied.port) as one:
            one.sendall(post(path, IMAGE, kind, "Connection: close"))
            assert answers(one)[9:12] == status, path
