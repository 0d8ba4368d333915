"""Images of several requests share a pass of the model, and get the answers that each would get alone."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from labelwise.images.decode.decoding import Frame
from labelwise.server.batcher import Answer, Batcher
from labelwise.server.changes import State
from labelwise.server.errors import HTTPError
from labelwise.server.live import Snapshot
from labelwise.server.settings import Service
from labelwise.server.store import Position
from tests.conftest import blobs
from tests.pixels_of import px
from tests.server.asking import PNG, form, png, saved, serving
from tests.server.conftest import model_of

FRAME = Frame(8, 8, 3)


def limits(most: int = 8, wait: float = 0.0) -> Service:
    return Service(model=Path("no.lw"), batch=most, batch_delay=1000 * wait)


def snapshot() -> Snapshot:
    return Snapshot(model_of("softmax"), State(), Position("", 7))


def shade(answer: Answer) -> int:
    """The brightness of the one grey image whose scores these are."""
    scores, change = answer
    assert change == 7
    assert len(scores) == len(scores.embeddings) == len(scores.unknown) == 1
    assert scores.images is not None
    return round(float(scores.classifier.batch(scores.images).mean()))


def grey(value: int) -> bytes:
    return png(torch.full((3, 8, 8), value, dtype=torch.uint8))


def test_together_as_alone(tmp_path: Path) -> None:
    images = px(blobs(6).split("test"))[:12]
    paths = ["/classify?top=3", "/ask?label=blob%201", "/outliers", "/explain"]
    with serving(saved(tmp_path, "prototype"), batch_delay=50.0) as client, ThreadPoolExecutor(12) as pool:

        def ask(i: int) -> Any:
            answer = client.post(paths[i % 4], content=png(images[i]), headers=PNG)
            assert answer.status_code == 200
            return answer.json()

        alone = [ask(i) for i in range(12)]
        together = list(pool.map(ask, range(12)))
        text = client.get("/metrics").text
    passes = float(next(x for x in text.splitlines() if x.startswith("labelwise_batch_images_count")).split()[1])
    assert passes < 22, "some requests shared a pass"
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

    async def run() -> list[Answer]:
        batcher = Batcher(limits(most=8, wait=0.2), FRAME, snapshot, sizes.append)
        jobs = [asyncio.ensure_future(batcher.scores([grey(i)])) for i in range(40)]
        await asyncio.sleep(0)
        batcher.start()
        found = await asyncio.gather(*jobs)
        await batcher.stop()
        return found

    assert [shade(one) for one in asyncio.run(run())] == list(range(40))
    assert max(sizes) == 8
    assert len(sizes) < 20


def test_a_lone_image_does_not_wait() -> None:
    async def run() -> float:
        batcher = Batcher(limits(wait=30.0), FRAME, snapshot, lambda _: None)
        batcher.start()
        began = time.perf_counter()
        await batcher.scores([grey(3)])
        seconds = time.perf_counter() - began
        await batcher.stop()
        return seconds

    assert asyncio.run(run()) < 15


def test_one_bad_image_spoils_no_other() -> None:
    async def run() -> list[Any]:
        batcher = Batcher(limits(wait=0.1), FRAME, snapshot, lambda _: None)
        batcher.start()
        bodies = [[grey(1)], [grey(2)[:50]], [grey(3)], [grey(4), grey(5)]]
        found = await asyncio.gather(*(batcher.scores(one) for one in bodies), return_exceptions=True)
        await batcher.stop()
        return found

    found = asyncio.run(run())
    assert isinstance(found[1], HTTPError)
    assert found[1].status == 400
    assert [shade(found[0]), shade(found[2])] == [1, 3]
    scores, change = found[3]
    assert [shade((scores[i : i + 1], change)) for i in range(2)] == [4, 5]


def test_stopping_finishes_what_was_accepted() -> None:
    gate = threading.Event()

    def slow() -> Snapshot:
        gate.wait(10)
        return snapshot()

    async def run() -> list[Answer]:
        batcher = Batcher(limits(most=1), FRAME, slow, lambda _: None)
        batcher.start()
        jobs = [asyncio.ensure_future(batcher.scores([grey(i)])) for i in range(6)]
        await asyncio.sleep(0.05)
        stopping = asyncio.create_task(batcher.stop())
        await asyncio.sleep(0.05)
        with pytest.raises(HTTPError, match="is stopping"):
            await batcher.scores([grey(0)])
        gate.set()
        await stopping
        return await asyncio.gather(*jobs)

    assert [shade(one) for one in asyncio.run(run())] == list(range(6))


def test_a_client_that_went_away_disturbs_nobody() -> None:
    async def run() -> Answer:
        batcher = Batcher(limits(), FRAME, snapshot, lambda _: None)
        gone = asyncio.ensure_future(batcher.scores([grey(1)]))
        stays = asyncio.ensure_future(batcher.scores([grey(2)]))
        await asyncio.sleep(0)
        gone.cancel()
        batcher.start()
        found = await stays
        await batcher.stop()
        return found

    assert shade(asyncio.run(run())) == 2


def test_a_fault_of_the_model_is_told_to_all_of_its_batch() -> None:
    def broken() -> Snapshot:
        raise RuntimeError("no classifier")

    async def run() -> list[Any]:
        batcher = Batcher(limits(wait=0.1), FRAME, broken, lambda _: None)
        batcher.start()
        found = await asyncio.gather(*(batcher.scores([grey(i)]) for i in range(3)), return_exceptions=True)
        await batcher.stop()
        return found

    assert [str(one) for one in asyncio.run(run())] == ["no classifier"] * 3


def test_a_full_queue_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from labelwise.server import batcher

    gate, real = threading.Event(), batcher.score

    def held(*given: Any) -> Any:
        gate.wait(20)
        return real(*given)

    monkeypatch.setattr(batcher, "score", held)
    image = grey(9)
    with serving(saved(tmp_path), queue=3) as client, ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(client.post, "/classify", content=image, headers=PNG) for _ in range(3)]
        guard: Any = client.app
        while guard._inside < 3:
            time.sleep(0.01)
        full = client.post("/classify", content=image, headers=PNG)
        assert full.status_code == 503
        assert full.headers["retry-after"] == "1"
        gate.set()
        assert [one.result().status_code for one in waiting] == [200] * 3
        assert client.post("/teach?label=x", files=form(px(blobs(6).split("test"))[:2])).status_code == 200
