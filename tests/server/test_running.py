"""Services in processes of their own: killed, stopped, doubled, several on one port, kept waiting."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from labelwise.data import finches
from tests.server.asking import PNG, form, images_of, png, saved
from tests.server.services import SERVING, Running

import serve as benchmark  # isort: skip - found by tests.server.services

IMAGE = png(images_of(0)[0])


@pytest.fixture
def started() -> Iterator[list[Running]]:
    found: list[Running] = []
    yield found
    for one in found:
        one.end(signal.SIGKILL)


def client(service: Running) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60)


def test_changes_survive_being_killed_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "Running", Running)
    monkeypatch.setattr("labelwise.data.finches", partial(finches, per_species=4))
    history = asyncio.run(benchmark.survive(saved(tmp_path), rounds=2, changes=12, readers=4))
    assert history.wrong == []
    assert history.kills == 2
    assert history.change >= 12
    assert history.reads > 10


def test_one_writer_and_a_reader_that_follows(tmp_path: Path, started: list[Running]) -> None:
    model = saved(tmp_path)
    started.append(Running(model, "--log", "json"))
    command = [sys.executable, "-m", "labelwise", "serve", str(model), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert second.returncode == 1
    assert str(started[0].process.pid) in second.stderr
    assert "--read-only" in second.stderr
    started.append(Running(model, "--read-only"))
    with client(started[0]) as writer, client(started[1]) as reader:
        assert writer.post("/teach?label=new", files=form(images_of(5))).status_code == 200
        found = reader.get("/labels").json()
        assert (found["change"], found["labels"][-1]["name"]) == (1, "new")
        writer.post("/undo")
        assert reader.post("/classify", content=IMAGE, headers=PNG).json()["change"] == 2
    it_stops_when_told_and_finishes_what_it_has(started[0])


def it_stops_when_told_and_finishes_what_it_has(service: Running) -> None:
    head = (
        f"POST /classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\nContent-Length: {len(IMAGE)}\r\n\r\n"
    )
    with client(service) as asking, socket.create_connection(("127.0.0.1", service.port)) as late:
        assert asking.get("/health").status_code == 200
        late.sendall(head.encode() + IMAGE[:-1])  # all but the last byte
        time.sleep(0.3)
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        late.sendall(IMAGE[-1:])
        late.settimeout(30)
        assert late.recv(4096).startswith(b"HTTP/1.1 200")
    assert service.process.wait(30) == 0
    lines = [json.loads(line) for line in service.said().splitlines()]
    assert {"time", "level", "message"} <= set(lines[0])
    assert any(line.get("path") == "/classify" and line["status"] == 200 for line in lines)


def test_no_worker_outlives_the_service(tmp_path: Path, started: list[Running]) -> None:
    """What workers share, and what becomes of one that dies: tests.hostile.test_workers."""
    started.append(Running(saved(tmp_path), "--workers", "2"))
    workers = workers_of(started[0])
    assert len(workers) == 2
    started[0].process.send_signal(signal.SIGKILL)
    started[0].process.wait(30)
    end = time.monotonic() + 30
    while (left := [pid for pid in workers if Path(f"/proc/{pid}").exists()]) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def workers_of(service: Running) -> list[int]:
    """Processes that were started by a service, or by one that is gone."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if b"spawn_main" in words and parent == service.process.pid:
                found.append(int(folder.name))
    return found


def patiently(one: httpx.Client, path: str) -> Any:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(httpx.TransportError):
            return one.get(path).json()
        time.sleep(0.2)
    raise AssertionError("no worker came back")


def test_a_worker_that_cannot_serve_is_started_again_and_the_others_stay(
    tmp_path: Path, started: list[Running]
) -> None:
    model = saved(tmp_path)
    started.append(Running(model, "--workers", "2"))
    (weights,) = model.glob("weights.safetensors")
    assert started[0].waits_for(SERVING, 2), "both have read the weights"
    with client(started[0]) as one:
        assert patiently(one, "/health")["status"] == "ok"
        weights.rename(tmp_path / "away")  # the next one cannot start
        first, second = workers_of(started[0])
        os.kill(first, signal.SIGKILL)
        end = time.monotonic() + 60
        assert started[0].waits_for("restart in", 2)
        assert started[0].process.poll() is None
        for _ in range(5):
            assert one.post("/classify", content=IMAGE, headers=PNG).status_code == 200
        assert second in workers_of(started[0])
        (tmp_path / "away").rename(weights)
        while len(workers_of(started[0])) < 2 and time.monotonic() < end:
            time.sleep(0.1)
    assert started[0].end(signal.SIGINT) == 0


def test_a_second_signal_ends_what_does_not_finish(tmp_path: Path, started: list[Running]) -> None:
    started.append(Running(saved(tmp_path)))
    head = b"POST /classify HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\nContent-Length: 99\r\n\r\nabc"
    with socket.create_connection(("127.0.0.1", started[0].port)) as one:
        one.sendall(head)
        time.sleep(0.5)
        began = time.monotonic()
        started[0].process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert started[0].process.poll() is None, "the request may still arrive"
        started[0].process.send_signal(signal.SIGINT)
        started[0].process.wait(30)
        assert time.monotonic() - began < 10


def test_what_cannot_be_served_leaves_nothing_behind(tmp_path: Path) -> None:
    from labelwise.server.running import serve
    from labelwise.server.settings import Service
    from labelwise.support.errors import StoreError, UsageError

    with pytest.raises(StoreError, match="No saved classifier"):
        serve(Service(model=tmp_path / "none.lw"))
    (tmp_path / "f.lw").mkdir()
    (tmp_path / "f.lw" / "classifier.json").write_text('{"format": 3, "encoder": {"shape": [12]}}')
    with pytest.raises(UsageError, match="12 precomputed features"):
        serve(Service(model=tmp_path / "f.lw"))
    assert [file.name for file in tmp_path.iterdir()] == ["f.lw"]
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(UsageError, match="Cannot listen"):
        serve(Service(model=saved(tmp_path), port=taken.getsockname()[1]))
