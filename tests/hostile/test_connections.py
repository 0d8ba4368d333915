"""Connections that bite a real service: what they cost it, what an honest client beside them meets, and that refusals arrive.

Clients that are slow or many are the business of the proxy of ``deploy/``: tests/hostile/test_proxy.py.
"""

import contextlib
import json
import signal
import time
from collections.abc import Iterator

import pytest

from labelwise.server import bodies, middleware
from tests.hostile.connections import HEALTH, ahead, answers, asks, connect, megabytes, post
from tests.server.asking import images_of, png, saved
from tests.server.services import Running

IMAGE = png(images_of(0)[0])
TOKEN, CLOSE = "Authorization: Bearer sesame", "Connection: close"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One with small limits, which all tests here share; it must outlive them."""
    folder = tmp_path_factory.mktemp("hostile")
    options = ("--timeout", "2", "--max-body", "1", "--connections", "60")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(middleware, "LINGER", 2)  # the service is a fork of this process
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


def test_requests_sent_ahead_wait_outside(service: Running) -> None:
    before = megabytes(service)
    with ahead(service.port, 4):
        assert asks(service.port)[0] == 200
        assert megabytes(service) - before < 30


def test_requests_sent_ahead_are_answered_in_turn(service: Running) -> None:
    last = HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    refused = post("/classify", b"x" * 100, "Content-Type: text/plain", TOKEN)
    image = post("/classify", IMAGE, "Content-Type: image/png", TOKEN)
    with connect(service.port) as one:
        one.sendall(HEALTH * 20 + image * 3 + HEALTH)
        time.sleep(0.2)
        for byte in range(0, len(HEALTH), 5):  # torn at any place
            one.sendall(HEALTH[byte : byte + 5])
            time.sleep(0.001)
        one.sendall(refused + last)
        got = statuses(answers(one))
    assert got[:25] == [200] * 25
    assert got[25] == 415


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post("/classify", bytes(4_000_000), TOKEN, "Content-Type: image/png"), 413),
        (post("/classify", bytes(900_000), CLOSE, "Content-Type: image/png"), 401),
        (post("/classify", bytes(900_000), CLOSE, TOKEN, "Content-Type: text/plain"), 415),
        (post("/classify", bytes(900_000), CLOSE, TOKEN, "Content-Type: image/png", "Origin: http://evil.example"), 403),
        (post("/forget?label=x", bytes(900_000), CLOSE, TOKEN), 404),
        (HEALTH.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n") + b"5\r\nhello\r\n" * 90_000, 411),
    ],
    ids=["413", "401", "415", "403", "404", "411"],
)  # fmt: skip
def test_a_refusal_arrives_while_the_body_still_comes(service: Running, request_: bytes, status: int) -> None:
    answer = asked(service, request_)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert statuses(answer) == [status]
    assert b"x-content-type-options: nosniff" in head
    assert json.loads(body)["error"]


@pytest.mark.parametrize(
    "content",
    [
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 4_000_000,
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"a: b\r\n" * 50_000 + b"\r\n",
        b"\x16\x03\x01\x02\x00" * 100 + b"\r\n\r\n",
    ],
    ids=["long", "many", "tls"],
)
def test_a_head_that_is_no_http_or_too_long_ends_the_connection(service: Running, content: bytes) -> None:
    before = megabytes(service)
    with connect(service.port) as one, contextlib.suppress(ConnectionError):
        one.sendall(content)
        assert statuses(answers(one)) in ([], [400])
    assert asks(service.port)[0] == 200
    assert megabytes(service) - before < 30


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (("Origin: http://[",), 403),
        (("Origin: http://[::1", "Host: ["), 403),
        (("Origin: //",), 403),
        ((f"Content-Length: {'0' * 5_000}5",), 400),
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


def test_a_body_that_does_not_arrive_and_silence_after_an_answer_end(service: Running) -> None:
    body = post("/classify", b"abc", TOKEN, "Content-Type: image/png", length="9")
    with contextlib.ExitStack() as stack:
        several = [stack.enter_context(connect(service.port)) for _ in range(2)]
        for one, content in zip(several, (body, HEALTH), strict=True):
            one.sendall(content)
        began = time.monotonic()
        assert [statuses(answers(one)) for one in several] == [[408], [200]]
        assert time.monotonic() - began < 12


def test_one_connection_too_many_is_told_so(service: Running) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            stack.enter_context(connect(service.port)).sendall(b"GET /health HT")
        assert asks(service.port)[0] == 503
    end = time.monotonic() + 15
    while asks(service.port)[0] != 200 and time.monotonic() < end:
        time.sleep(0.1)
    assert asks(service.port)[0] == 200, "closed connections are counted no longer"
