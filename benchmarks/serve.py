"""A service under load: answers a second with and without micro-batching, and changes that survive ``kill -9``.

    python benchmarks/serve.py [--model FOLDER] [--seconds 60] [--clients 64] [--rounds 10] [--changes 60] [--json FILE]
    python benchmarks/serve.py --rounds 0 --source OLD/src --source src      # two versions in turn instead

Without a model, an indicator network is fitted to the drawn finches for two epochs: weights do not matter here, sizes do.

Load: three services run in turn, a few seconds at a time, until each has had its share: pictures in batches, ``--batch 1`` (the same
service, one picture in each pass of the model), and a plain one (a FastAPI route that calls ``labelwise.classify`` for one
request after another). Clients are raw keep-alive connections in one process of their own. Ratios hold on a busy machine,
absolute figures do not; so processor time for each answer is given, too.

Changes: while others classify without a pause, labels are taught and forgotten. In each round the service is killed in the midst
of it and started again: every acknowledged change must be there, the one under way whole or not at all. Each answer must list
exactly the labels of the change it names, and none may be older than what was acknowledged before it was asked.
"""

import argparse
import asyncio
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

HERE = Path(__file__).parent
TURN = 5.0  # seconds of load before another service has its turn


def drawn_images(count: int, kind: str = "JPEG") -> list[bytes]:
    """Return the content of files with drawn birds."""
    from labelwise.data import finches

    files = []
    for image in finches().split("test").images.read(range(count), (3, 48, 48)):
        stream = io.BytesIO()
        Image.fromarray(image.transpose(1, 2, 0)).save(stream, kind)
        files.append(stream.getvalue())
    return files


class Running:
    """A service in a process of its own."""

    def __init__(
        self, model: Path, *options: str, plain: bool = False, source: Path | None = None, verb: str = "serve"
    ) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        words = [str(Path(__file__)), "--plain"] if plain else ["-m", "labelwise", verb]
        command = [sys.executable, *words, str(model), *(() if plain else ("--port", "0", *options))]
        settings = os.environ | ({"PYTHONPATH": str(source.resolve())} if source else {})
        self.process = subprocess.Popen(command, stderr=self.log, stdout=subprocess.DEVNULL, env=settings)
        self.port = self._port()

    def _port(self) -> int:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            said = self.said()
            if found := re.search(r"on http://[\d.]+:(\d+)", said):
                return int(found[1])
            if self.process.poll() is not None:
                raise RuntimeError(f"the service ended: {said}")
            time.sleep(0.05)
        raise RuntimeError(f"the service did not start: {self.said()}")

    def said(self) -> str:
        """Return its log so far."""
        return os.pread(self.log.fileno(), 2**20, 0).decode(errors="replace")

    def about(self, words: str) -> str:
        """Return the lines of its log from the one with these words on, at most 4,000 characters."""
        end = os.fstat(self.log.fileno()).st_size
        last = os.pread(self.log.fileno(), 2**18, max(0, end - 2**18)).decode(errors="replace")
        before, found, after = last.rpartition(words)
        return (before.rpartition("\n")[2] + found + after)[:4000] if found else ""

    def processor(self) -> float:
        """Return the processor seconds that it has used, and the processes that it started."""
        own, ticks = str(self.process.pid), 0
        for file in Path("/proc").glob("[0-9]*/stat"):
            try:
                stat = file.read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if own in (file.parent.name, stat[1]):
                ticks += int(stat[11]) + int(stat[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(60)
        self.log.close()
        return code


def load(service: Running, clients: int, seconds: float, pictures: list[bytes]) -> dict[str, Any]:
    """Return the times, faults and processor seconds of a while of load."""
    requests = [("/classify", picture.hex(), "image/jpeg") for picture in pictures]
    todo = {"port": service.port, "clients": clients, "seconds": seconds, "requests": requests}
    before = service.processor()
    done = subprocess.run(
        [sys.executable, str(HERE / "serve_clients.py")],
        input=json.dumps(todo),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "processor": service.processor() - before}


def throughput(model: Path, copies: Path, seconds: float, clients: int, sources: list[Path]) -> dict[str, Any]:
    """Return figures of three services that take turns, or of one for each version of the sources."""
    pictures = drawn_images(64)
    kinds: dict[str, tuple[str, ...]] = {"batches": (), "one a pass": ("--batch", "1"), "plain": ()}
    versions = {str(source): source for source in sources}
    kinds = dict.fromkeys(versions, ()) or kinds
    services = {}
    for i, (name, options) in enumerate(kinds.items()):
        shutil.copytree(model, copies / f"{i}.lw")
        services[name] = Running(copies / f"{i}.lw", *options, plain=name == "plain", source=versions.get(name))
    totals: dict[str, list[dict[str, Any]]] = {name: [] for name in kinds}
    for service in services.values():
        load(service, clients, 1.0, pictures)
    for _ in range(max(1, round(seconds / TURN))):
        for name, service in services.items():
            totals[name].append(load(service, clients, min(TURN, seconds), pictures))
    for service in services.values():
        service.end()
    return {name: figures(parts) for name, parts in totals.items()}


def figures(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what several turns amount to."""
    times = sorted(value for part in parts for value in part["times"])
    answered, wall = len(times), sum(part["seconds"] for part in parts)
    return {
        "answers": answered,
        "errors": sum(len(part["faults"]) for part in parts),
        "per_second": round(answered / wall, 1),
        "each_turn": [round(len(part["times"]) / part["seconds"], 1) for part in parts],
        "p50_ms": round(1000 * times[answered // 2], 1),
        "p99_ms": round(1000 * times[min(answered - 1, int(0.99 * answered))], 1),
        "processor_ms": round(1000 * sum(part["processor"] for part in parts) / answered, 3),
    }


class Talk:
    """A keep-alive connection."""

    def __init__(self, port: int) -> None:
        self.port, self.head = port, b""  # the head of the last answer

    async def __aenter__(self) -> "Talk":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "image/png") -> tuple[int, Any]:
        """Return the status and the document of an answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        self.head = said = await self.reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", said.lower())[1])  # type: ignore[index]
        return int(said[9:12]), json.loads(await self.reader.readexactly(length))


@dataclass
class History:
    """What clients know: the labels after each change, and how many changes were acknowledged."""

    labels: dict[int, frozenset[str]]
    change: int
    kills: int = 0
    reads: int = 0
    wrong: list[str] = field(default_factory=list)


async def read(port: int, history: History, picture: bytes, stop: asyncio.Event) -> None:
    """Classify without a pause until told to stop, or until the service is killed."""
    try:
        async with Talk(port) as talk:
            while not stop.is_set():
                least = history.change
                status, answer = await talk.ask("POST", "/classify?top=100", picture)
                history.reads += 1
                if status != 200:
                    history.wrong.append(f"{status}: {answer}")
                    return
                found = frozenset(one["label"] for one in answer["top"])
                wanted = history.labels.get(answer["change"])
                if answer["change"] < least or (wanted is not None and found != wanted):
                    history.wrong.append(f"change {answer['change']} (at least {least}): {sorted(found)[:3]}")
                    return
    except (OSError, asyncio.IncompleteReadError):
        if not stop.is_set():
            history.wrong.append("a reader lost its connection")


async def change(port: int, history: History, pictures: list[bytes], drawn: random.Random, count: int) -> None:
    """Teach and forget ``count`` times; note each change before it is asked for, and count it when it is acknowledged."""
    async with Talk(port) as talk:
        for _ in range(count):
            now, next_ = history.labels[history.change], history.change + 1
            taught = sorted(name for name in now if name.startswith("taught "))
            if taught and (len(taught) > 8 or drawn.random() < 0.4):
                name = drawn.choice(taught)
                history.labels[next_] = now - {name}
                asked = talk.ask("POST", f"/forget?label={name.replace(' ', '%20')}")
            else:
                name = f"taught {next_}"
                history.labels[next_] = now | {name}
                asked = talk.ask("POST", f"/teach?label={name.replace(' ', '%20')}", drawn.choice(pictures))
            status, answer = await asked
            if status != 200 or answer["change"] != next_:
                history.wrong.append(f"change {next_}: {status} {answer}")
            history.change = next_


async def survive(model: Path, rounds: int, changes: int, readers: int = 8, options: tuple[str, ...] = ()) -> History:
    """Return what happened in so many rounds of changes, reads, ``kill -9`` and a new start."""
    from labelwise.core.load import load as read_model

    drawn = random.Random(0)
    pictures = drawn_images(16, "PNG")
    history = History({0: frozenset(read_model(model).labels.names)}, 0)
    for _ in range(rounds):
        service = Running(model, *options)
        try:
            await check(service.port, history)
            stop = asyncio.Event()
            reading = [asyncio.create_task(read(service.port, history, pictures[i], stop)) for i in range(readers)]
            sure = drawn.randrange(changes // 2, changes)
            await change(service.port, history, pictures, drawn, sure)
            going = asyncio.create_task(change(service.port, history, pictures, drawn, changes))
            await asyncio.sleep(drawn.uniform(0.05, 0.6))  # in the midst of a change
            stop.set()
        finally:
            service.end(signal.SIGKILL)
        history.kills += 1
        await asyncio.gather(going, *reading, return_exceptions=True)
    service = Running(model, *options)
    await check(service.port, history)
    code = service.end()
    if code:
        history.wrong.append(f"the service ended with {code}")
    return history


async def check(port: int, history: History) -> None:
    """Compare what a fresh start knows with what was acknowledged; the change under way may be there, if it is whole."""
    async with Talk(port) as talk:
        _, answer = await talk.ask("GET", "/labels")
    found = frozenset(one["name"] for one in answer["labels"])
    if answer["change"] not in (history.change, history.change + 1) or found != history.labels.get(answer["change"]):
        history.wrong.append(f"after a start: change {answer['change']} of {history.change}, {len(found)} labels")
    history.change = answer["change"]
    history.labels[history.change] = found


def serve_plain(model: Path) -> None:
    """Serve the obvious way: each request calls ``classify``, one after another."""
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.concurrency import run_in_threadpool

    import labelwise as lw

    classifier, app, lock = lw.load(model), FastAPI(), threading.Lock()

    def answer(body: bytes) -> dict[str, Any]:
        with lock:
            (found,) = lw.classify(classifier, body)
        return {"label": found.label, "probability": found.probability, "top": found.top}

    @app.post("/classify")
    async def classify(request: Request) -> dict[str, Any]:
        return await run_in_threadpool(answer, await request.body())

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        print(f"plain on http://127.0.0.1:{listener.getsockname()[1]}", file=sys.stderr, flush=True)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        asyncio.run(server.serve(sockets=[listener]))


def fitted(folder: Path) -> Path:
    """Return a saved classifier of the size that ``labelwise demo`` makes."""
    import labelwise as lw

    lw.save(lw.fit(lw.data.load("finches"), lw.methods.Indicator(epochs=2)), folder / "finches.lw")
    return folder / "finches.lw"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--changes", type=int, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--source", type=Path, action="append", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plain", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        serve_plain(given.plain)
        return
    with tempfile.TemporaryDirectory() as folder:
        model = given.model or fitted(Path(folder))
        found: dict[str, Any] = {}
        if given.seconds:
            found = throughput(model, Path(folder), given.seconds, given.clients, given.source)
            first, *others = found
            for name in others:
                found[f"ratio to {name}"] = round(found[first]["per_second"] / found[name]["per_second"], 2)
            found["p99 / p50"] = round(found[first]["p99_ms"] / found[first]["p50_ms"], 2)
        if given.rounds:
            shutil.copytree(model, Path(folder) / "changed.lw")
            workers = ("--workers", str(given.workers)) if given.workers > 1 else ()
            kept = asyncio.run(survive(Path(folder) / "changed.lw", given.rounds, given.changes, options=workers))
            found["changes"] = {
                "acknowledged": kept.change,
                "kills": kept.kills,
                "reads": kept.reads,
                "wrong": kept.wrong,
            }
        print(json.dumps(found, indent=1))
        if given.json:
            given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
