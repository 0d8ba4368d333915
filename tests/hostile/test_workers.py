"""A service of several workers: read after an acknowledged change, counted while workers die and disks fill, stopped under load."""

import asyncio
import contextlib
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch

from tests.hostile.connections import post
from tests.server.asking import PNG, images_of, png, saved
from tests.server.services import Running
from tests.server.test_running import patiently, workers_of

from serve import History, Talk, change, read  # isort: skip - found by tests.server.services

IMAGE = png(images_of(0)[0])
NOISE = png(torch.randint(0, 256, (3, 900, 900), dtype=torch.uint8), "BMP")  # 2.4 MB


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def service(tmp_path: Path, temporary: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    one = Running(saved(tmp_path), "--workers", str(request.param), "--batch-delay", "0")
    try:
        yield one
    finally:
        one.end(signal.SIGKILL)


async def spread(port: int, seconds: float) -> History:
    """What clients on eight connections, and others on new ones, read while labels are taught and forgotten."""
    async with Talk(port) as talk:
        _, labels = await talk.ask("GET", "/labels")
    history, stop = History({0: frozenset(one["name"] for one in labels["labels"])}, 0), asyncio.Event()

    async def look() -> None:
        while not stop.is_set():
            least = history.change
            async with Talk(port) as talk:  # a new connection may reach any worker
                _, answer = await talk.ask("GET", "/health")
            history.reads += 1
            if answer["change"] < least:
                history.wrong.append(f"health: {answer['change']} after {least}")

    reading = [asyncio.create_task(read(port, history, IMAGE, stop)) for _ in range(8)]
    looking = [asyncio.create_task(look()) for _ in range(2)]
    end, drawn = time.monotonic() + seconds, random.Random(0)
    while time.monotonic() < end:
        await change(port, history, [IMAGE], drawn, 5)  # each time on a new connection
    stop.set()
    await asyncio.gather(*reading, *looking)
    return history


@pytest.mark.parametrize("service", [2], indirect=True)
def test_two_workers(service: Running, temporary: Path) -> None:
    """One service for all, since its three processes take seconds to start."""
    labels = what_was_acknowledged_is_known_to_every_worker(service)
    counts_outlive_workers_and_disks(service, temporary)
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60) as one:
        known = patiently(one, "/labels")["labels"]
    assert {row["name"] for row in known} == labels, "workers that took the place of dead ones know all"
    a_stop_under_load_loses_no_answer(service)


def what_was_acknowledged_is_known_to_every_worker(service: Running) -> frozenset[str]:
    history = asyncio.run(spread(service.port, float(os.environ.get("LABELWISE_SECONDS", "2"))))
    assert history.wrong == []
    assert history.change >= 10
    assert history.reads > 100
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}") as one:
        for path in ("/health", "/labels", "/card", "/metrics"):
            assert one.get(path).headers["labelwise-change"] == str(history.change)
        asked = one.post("/classify", content=IMAGE, headers=PNG)
        assert asked.headers["labelwise-change"] == str(asked.json()["change"])
    return history.labels[history.change]


def counts_outlive_workers_and_disks(service: Running, temporary: Path) -> None:
    def count() -> float:
        with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60) as one:
            patiently(one, "/health")
            text = one.get("/metrics").text
        return float(text.partition('labelwise_requests_total{route="/classify",status="200"} ')[2].split()[0])

    def ask(times: int) -> None:
        for _ in range(times):
            with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60) as one:
                patiently(one, "/health")
                assert one.post("/classify", content=IMAGE, headers=PNG).status_code == 200

    before = count()
    ask(6)
    shutil.rmtree(temporary)  # nothing can be written there any more
    ask(6)
    assert count() == before + 12
    for pid in workers_of(service):
        ask(3)
        before = count()
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        assert count() == before, "no count falls, and none is lost"
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60) as one:
        patiently(one, "/health")
        assert one.post("/classify", files={"image": NOISE}).status_code == 200, "a large form needs no disk"


async def stopped(service: Running, clients: int) -> Counter[str]:
    """What clients meet that ask without a pause while the service stops: a status, or how they lost an answer."""
    met: Counter[str] = Counter()
    request = post("/classify", IMAGE, "Content-Type: image/png")

    async def ask(fresh: bool) -> None:
        writer = None
        while True:
            try:
                if writer is None:
                    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            except OSError:
                met["refused connection"] += 1
                return
            try:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
            except (OSError, asyncio.IncompleteReadError) as error:
                met[f"lost: {type(error).__name__}"] += 1
                return
            met[head[9:12].decode()] += 1
            if fresh or b"connection: close" in head:
                writer.close()
                writer = None

    asking = [asyncio.create_task(ask(i % 4 == 0)) for i in range(clients)]
    await asyncio.sleep(1.5)
    service.process.send_signal(signal.SIGTERM)
    await asyncio.gather(*asking)
    return met


@pytest.mark.parametrize("service", [1], indirect=True)
def test_a_stop_of_one_under_load(service: Running) -> None:
    a_stop_under_load_loses_no_answer(service)


def a_stop_under_load_loses_no_answer(service: Running) -> None:
    met = asyncio.run(stopped(service, 60))
    assert met.pop("200") > 60
    assert met == {"refused connection": 60}
    with contextlib.suppress(TimeoutError):
        assert service.process.wait(30) == 0
