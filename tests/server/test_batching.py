"""Pictures of several requests share a pass of the model, and get the answers that each would get alone."""

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from labelwise.data.decoding import Frame
from labelwise.server.batching import Batcher, Job, Limits
from labelwise.server.refusals import Refusal
from tests.conftest import blobs
from tests.server.asking import PNG, form, png, saved, serving

FRAME = Frame(8, 8, 3)


def limits(most: int = 8, wait: float = 0.0) -> Limits:
    return Limits(most=most, wait=wait, decoders=2, threads=1)


def brightness(jobs: Sequence[Job], images: Tensor) -> list[Any]:
    means = images.float().flatten(1).mean(1).tolist() if len(images) else []
    rest = iter(means)
    return [(job.question, round(next(rest))) if job.pictures else job.question for job in jobs]


def grey(value: int) -> bytes:
    return png(torch.full((3, 8, 8), value, dtype=torch.uint8))


def test_together_as_alone(tmp_path: Path) -> None:
    images = blobs(6).split("test").images[:24]
    paths = ["/classify?top=3", "/ask?label=blob%201", "/outliers", "/explain"]
    with serving(saved(tmp_path, "prototype"), wait=50.0) as client, ThreadPoolExecutor(24) as pool:

        def ask(i: int) -> Any:
            answer = client.post(paths[i % 4], content=png(images[i]), headers=PNG)
            assert answer.status_code == 200
            return answer.json()

        alone = [ask(i) for i in range(24)]
        together = list(pool.map(ask, range(24)))
        text = client.get("/metrics").text
    passes = int(next(x for x in text.splitlines() if x.startswith("labelwise_batch_pictures_count")).split()[1])
    assert passes < 45, "some requests shared a pass"
    for one, other in zip(alone, together, strict=True):
        assert flat(one) == pytest.approx(flat(other), abs=2e-4)


def flat(document: Any) -> list[Any]:
    if isinstance(document, dict):
        return [x for key in sorted(document) for x in flat(document[key])]
    if isinstance(document, list):
        return [x for one in document for x in flat(one)]
    return [document if isinstance(document, float) else hash(document)]


def test_a_full_batch_and_each_its_own_answer() -> None:
    sizes: list[int] = []

    async def run() -> list[Any]:
        batcher = Batcher(FRAME, brightness, limits(most=8, wait=0.2), sizes.append)
        jobs = [asyncio.ensure_future(batcher.ask(i, [grey(i)])) for i in range(40)]
        await asyncio.sleep(0)
        batcher.start()
        found = await asyncio.gather(*jobs)
        batcher.stop()
        return found

    assert asyncio.run(run()) == [(i, i) for i in range(40)]
    assert max(sizes) == 8
    assert len(sizes) < 20


def test_a_lone_picture_does_not_wait() -> None:
    async def run() -> float:
        batcher = Batcher(FRAME, brightness, limits(wait=30.0), lambda _: None)
        batcher.start()
        began = time.perf_counter()
        await batcher.ask("x", [grey(3)])
        seconds = time.perf_counter() - began
        batcher.stop()
        return seconds

    assert asyncio.run(run()) < 15


def test_one_bad_picture_spoils_no_other() -> None:
    async def run() -> list[Any]:
        batcher = Batcher(FRAME, brightness, limits(wait=0.1), lambda _: None)
        batcher.start()
        bodies = [[grey(1)], [grey(2)[:50]], [grey(3)], []]
        found = await asyncio.gather(*(batcher.ask(i, b) for i, b in enumerate(bodies)), return_exceptions=True)
        batcher.stop()
        return found

    found = asyncio.run(run())
    assert isinstance(found[1], Refusal)
    assert found[1].status == 400
    assert [found[0], found[2], found[3]] == [(0, 1), (2, 3), 3]


def test_stopping_finishes_what_was_accepted() -> None:
    gate = threading.Event()

    def slow(jobs: Sequence[Job], images: Tensor) -> list[Any]:
        gate.wait(10)
        return [job.question for job in jobs]

    async def run() -> list[Any]:
        batcher = Batcher(FRAME, slow, limits(most=1), lambda _: None)
        batcher.start()
        jobs = [asyncio.ensure_future(batcher.ask(i, [grey(i)])) for i in range(6)]
        await asyncio.sleep(0.05)
        stopping = asyncio.get_running_loop().run_in_executor(None, batcher.stop)
        await asyncio.sleep(0.05)
        with pytest.raises(Refusal, match="about to stop"):
            await batcher.ask("late", [grey(0)])
        gate.set()
        await stopping
        return await asyncio.gather(*jobs)

    assert asyncio.run(run()) == list(range(6))


def test_a_client_that_went_away_disturbs_nobody() -> None:
    async def run() -> Any:
        batcher = Batcher(FRAME, brightness, limits(), lambda _: None)
        gone = asyncio.ensure_future(batcher.ask("gone", [grey(1)]))
        stays = asyncio.ensure_future(batcher.ask("stays", [grey(2)]))
        await asyncio.sleep(0)
        gone.cancel()
        batcher.start()
        found = await stays
        batcher.stop()
        return found

    assert asyncio.run(run())[0] == "stays"


def test_a_full_queue_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from labelwise.server import questions

    gate, real = threading.Event(), questions.Answering.__call__

    def held(self: Any, jobs: Sequence[Job], images: Tensor) -> list[Any]:
        gate.wait(20)
        return real(self, jobs, images)

    monkeypatch.setattr(questions.Answering, "__call__", held)
    picture = grey(9)
    with serving(saved(tmp_path), queue=3) as client, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(client.post, "/classify", content=picture, headers=PNG) for _ in range(3)]
        guard: Any = client.app
        while guard._inside < 3:
            time.sleep(0.01)
        full = client.post("/classify", content=picture, headers=PNG)
        assert full.status_code == 503
        assert full.headers["retry-after"] == "1"
        gate.set()
        assert [one.result().status_code for one in waiting] == [200] * 3
        assert client.post("/teach?label=x", files=form(blobs(6).split("test").images[:2])).status_code == 200
