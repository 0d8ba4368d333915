"""Connections that bite a real service: what they cost it, what an honest client beside them meets, and that refusals arrive."""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from labelwise.server import bodies
from tests.hostile.connections import HEALTH, LARGE, ahead, answers, asks, connect, megabytes, post, slow
from tests.server.asking import images_of, png, saved
from tests.server.services import Running

PICTURE = png(images_of(0)[0])
TOKEN = "Authorization: Bearer sesame"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One with small limits, which all tests here share; it must outlive them."""
    folder = tmp_path_factory.mktemp("hostile")
    options = ("--timeout", "2", "--body", "1", "--connections", "60", "--per-address", "50")
    one = Running(saved(folder), *options, "--token", "sesame")
    try:
        yield one
        assert one.process.poll() is None, one.said()
        assert asks(one.port)[0] == 200
        assert "Traceback" not in one.said()
    finally:
        one.end(signal.SIGKILL)


def statuses(content: bytes) -> list[int]:
    return [int(part[:3]) for part in content.split(b"HTTP/1.1 ")[1:]]


def asked(service: Running, content: bytes) -> bytes:
    """All that a client gets that first sends everything, and only then reads."""
    with connect(service.port) as one:
        one.sendall(content)
        return answers(one)


def after_a_while(service: Running) -> int:
    """The first answer to who asks again and again that is not that there are too many connections."""
    end = time.monotonic() + 15
    while (status := asks(service.port, "/card")[0]) in (0, 503) and time.monotonic() < end:
        time.sleep(0.1)
    return status


def test_requests_sent_ahead_wait_outside(service: Running) -> None:
    before = megabytes(service)
    with ahead(service.port, 4):
        assert asks(service.port)[0] == 200
        assert megabytes(service) - before < 30


def test_requests_sent_ahead_are_answered_in_turn(service: Running) -> None:
    last = HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    refused = post("/classify", b"x" * 100, "Content-Type: text/plain", TOKEN)
    picture = post("/classify", PICTURE, "Content-Type: image/png", TOKEN)
    with connect(service.port) as one:
        one.sendall(HEALTH * 20 + picture * 3 + HEALTH)
        time.sleep(0.2)
        for byte in range(0, len(HEALTH), 5):  # torn at any place
            one.sendall(HEALTH[byte : byte + 5])
            time.sleep(0.001)
        one.sendall(refused + last)
        got = statuses(answers(one))
    assert got[:25] == [200] * 25
    assert got[25] == 415


def test_slow_readers_are_let_go_and_bother_nobody(service: Running) -> None:
    with slow(service.port, 70):
        assert [asks(service.port)[0] for _ in range(5)] == [200] * 5, "its own lane"
        assert asks(service.port, "/card")[0] == 503, "one address has no more connections"
        assert asks(service.port, "/card", "127.0.0.2")[0] == 401, "another one has its own"
        assert after_a_while(service) == 401, "an answer is taken in time, or lost"


def test_a_last_answer_that_is_never_taken_does_not_keep_a_connection(service: Running) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            one = stack.enter_context(connect(service.port, receive=1024))
            one.sendall(LARGE * 3 + LARGE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert asks(service.port, "/card")[0] == 503
        assert after_a_while(service) == 401


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post("/classify", bytes(4_000_000), TOKEN, "Content-Type: image/png"), 413),
        (post("/classify", bytes(900_000), "Content-Type: image/png"), 401),
        (post("/classify", bytes(900_000), TOKEN, "Content-Type: text/plain"), 415),
        (post("/classify", bytes(900_000), TOKEN, "Content-Type: image/png", "Origin: http://evil.example"), 403),
        (post("/forget?label=x", bytes(900_000), TOKEN), 404),
        (HEALTH.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n") + b"5\r\nhello\r\n" * 90_000, 411),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 4_000_000, 431),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a: b\r\n" * 5_000 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00" * 100 + b"\r\n\r\n" + bytes(900_000), 400),
        (b"GET /health HTTP/1.1\nHost: 127.0.0.1\n\n" + HEALTH + bytes(900_000), 400),
    ],
    ids=["413", "401", "415", "403", "404", "411", "long", "many", "tls", "bare"],
)  # fmt: skip
def test_a_refusal_arrives_while_the_body_still_comes(service: Running, request_: bytes, status: int) -> None:
    answer = asked(service, request_)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert statuses(answer) == [status]
    assert b"connection: close" in head.lower()
    assert b"x-content-type-options: nosniff" in head
    assert json.loads(body)["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (("Origin: http://[",), 403),
        (("Origin: http://[::1", "Host: ["), 403),
        (("Origin: //",), 403),
        ((f"Content-Length: {'0' * 5_000}5",), 415),
        ((f"Content-Length: {'9' * 5_001}",), 400),
        (("Content-Length: 99999999999999999999999",), 400),
        (("Content-Length: 9999999999999999999",), 413),
        (("Upgrade: websocket", "Connection: upgrade"), 415),
    ],
    ids=lambda value: str(value)[:40],
)
def test_odd_headers_are_no_faults(service: Running, headers: tuple[str, ...], status: int) -> None:
    lines = ["POST /classify HTTP/1.1", TOKEN, *headers]
    lines += [] if any("Host" in one for one in headers) else ["Host: 127.0.0.1"]
    lines += [] if any("Length" in one for one in headers) else ["Content-Length: 5"]
    found = asked(service, "\r\n".join([*lines, "Connection: close", "", "hello"]).encode())
    assert statuses(found) == [status]


def test_no_answer_holds_what_is_no_number() -> None:
    body = bodies.reply({"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": (-float("inf"),)}}).body
    assert bytes(body) == b'{"a": null, "b": [null, 1.5], "c": {"d": [null]}}'


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5_000])
def test_what_is_no_number_is_refused(service: Running, number: str) -> None:
    body = f'{{"vector": [{number}]}}'.encode()
    answer = asked(service, post("/teach?label=x", body, TOKEN, "Content-Type: application/json", "Connection: close"))
    assert statuses(answer)[0] in (400, 422)


def test_an_endless_body_is_cut_off(service: Running) -> None:
    def send() -> None:
        one.sendall(post("/classify", b"", TOKEN, "Content-Type: image/png", length="5000000000"))
        for _ in range(5_000):
            one.sendall(bytes(100_000))

    with connect(service.port, seconds=60) as one, pytest.raises(ConnectionError):
        send()


def test_silence_ends(service: Running) -> None:
    with contextlib.ExitStack() as stack:
        several = [stack.enter_context(connect(service.port)) for _ in range(3)]
        for one, content in zip(several, (b"", b"POST /classify HTTP/1.1\r\nHost: 127.", HEALTH), strict=True):
            one.sendall(content)
        began = time.monotonic()
        assert [statuses(answers(one)) for one in several] == [[], [], [200]]
        assert time.monotonic() - began < 8


def test_a_flood_of_connections_leaves_the_state_to_ask(service: Running) -> None:
    with contextlib.ExitStack() as stack:
        open_: Callable[[], socket.socket] = lambda: stack.enter_context(connect(service.port))  # noqa: E731
        for _ in range(200):
            open_()
        assert [asks(service.port)[0] for _ in range(5)] == [200] * 5
        assert asks(service.port, "/metrics")[0] == 401, "it is asked for its token, and not sent away"
        assert b"retry-after" in asked(service, b"GET /card HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert after_a_while(service) == 401, "closed connections are counted no more"
