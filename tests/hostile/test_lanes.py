"""What takes long to decode does not keep others waiting, and what cannot be decoded is refused; the service goes on."""

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from labelwise.images.decode import workers
from labelwise.images.decode.workers import Crew, DecodeWorker, crew
from labelwise.server.batcher import SLOW, Batcher, _seconds_to_decode
from labelwise.server.errors import HTTPError
from labelwise.server.settings import Service
from tests.hostile.pictures import BEYOND, pixel_bomb, scan_bomb
from tests.server.asking import PNG, saved, serving
from tests.server.test_batcher import FRAME, grey, snapshot

BOMB = pixel_bomb(3000)


def batcher() -> Batcher:
    return Batcher(Service(model=Path("no.lw")), FRAME, snapshot, lambda _: None)


def test_small_ones_overtake_large_ones() -> None:
    assert _seconds_to_decode([BOMB], FRAME) > SLOW > 10 * _seconds_to_decode([grey(1)], FRAME)

    async def run() -> int:
        service = batcher()
        service.start()
        await service.scores([grey(0)])  # the model is made, the workers are up
        large = [asyncio.ensure_future(service.scores([BOMB])) for _ in range(6)]
        await asyncio.sleep(0.05)
        await asyncio.gather(*(service.scores([grey(i)]) for i in range(5)))
        before = sum(one.done() for one in large)
        await asyncio.gather(*large)
        await service.stop()
        return before

    assert asyncio.run(run()) <= 2


def test_a_service_refuses_bombs_and_goes_on(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        for bomb, status in ((scan_bomb(3000), 400), (pixel_bomb(5001), 413), (BEYOND["chunks"][0](), 400)):
            answer = client.post("/classify", content=bomb, headers={"content-type": "image/jpeg"})
            assert answer.status_code == status, answer.text
            assert "Cannot read the image: it " in answer.json()["error"]
        assert client.post("/classify", content=grey(7), headers=PNG).status_code == 200


def test_workers_that_are_killed_cost_one_request_at_most() -> None:
    async def run() -> list[object]:
        service = batcher()
        service.start()
        await service.scores([grey(1)])
        for worker in list(crew()._idle[False]):
            os.kill(worker._process.pid, signal.SIGKILL)
        answers = await asyncio.gather(*(service.scores([grey(i)]) for i in range(20)), return_exceptions=True)
        await service.stop()
        return list(answers)

    wrong = [one for one in asyncio.run(run()) if isinstance(one, BaseException)]
    assert len(wrong) <= 1 + (os.cpu_count() or 1)
    assert all(isinstance(one, HTTPError) and "crashed" in str(one) for one in wrong)


def test_where_no_worker_can_be_started_requests_fail_and_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = threading.Event()

    def none(self: DecodeWorker, *, low: bool) -> None:
        tried.set()
        raise OSError(11, "Resource temporarily unavailable")

    crew().close()
    monkeypatch.setattr(workers.DecodeWorker, "__init__", none)
    monkeypatch.setattr(Crew, "prepare", lambda *_: None)

    async def run() -> None:
        service = batcher()
        service.start()
        for picture in (BOMB, grey(1), grey(2)):
            with pytest.raises(OSError, match="temporarily unavailable"):
                await asyncio.wait_for(service.scores([picture]), 20)
        await service.stop()

    asyncio.run(run())
    assert tried.is_set()
