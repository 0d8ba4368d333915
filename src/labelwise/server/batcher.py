"""Batching: images of several requests are decoded in parallel and encoded together.

While one batch is encoded, the next one collects. A batch waits for more images only while some are being decoded, and at most for
the batch delay: a single request is answered at once. Slow images are decoded in a separate thread (see
``tests/hostile/test_lanes.py``), so that small ones do not wait for them.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.images.decode.decoding import Frame, UnreadableError, check_header, open_content
from labelwise.images.decode.workers import Pixels, crew
from labelwise.server.errors import LATER, HTTPError
from labelwise.server.live import Snapshot
from labelwise.server.settings import Service

Answer = tuple[Scores, int]  # and the number of their last change
SLOW = 0.1  # seconds of decoding that make a request slow: a PNG of 4 megapixels, a JPEG of 10 MB


@dataclass(eq=False)
class Job:
    """The decoded images of a request, and the future of their scores."""

    images: Sequence[Pixels]
    answer: "asyncio.Future[Answer]"


class Batcher:
    """Decodes and scores images; calls ``observe`` with the size of every batch."""

    def __init__(
        self, service: Service, frame: Frame, snapshot: Callable[[], Snapshot], observe: Callable[[int], None]
    ) -> None:
        self.service, self.frame, self._snapshot, self._observe = service, frame, snapshot, observe
        self._decoders = min(4, max(1, (os.cpu_count() or 1) // service.workers))
        self._quick, self._slow = ThreadPoolExecutor(self._decoders, "decode"), ThreadPoolExecutor(1, "decode-slow")
        self._model = ThreadPoolExecutor(1, "encode")
        self._jobs = deque[Job]()
        self._decoding = 0  # requests in decoding or waiting for it
        self._arrived, self._stopping = asyncio.Event(), False

    def start(self) -> None:
        """Start."""
        crew().prepare(self._decoders)
        self._loop = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Finish the accepted requests and stop."""
        self._stopping = True
        self._arrived.set()
        await self._loop
        for pool in (self._quick, self._slow, self._model):
            pool.shutdown()

    @property
    def length(self) -> int:
        """The number of requests in decoding or waiting to be encoded."""
        return self._decoding + len(self._jobs)

    async def scores(self, images: Sequence[bytes]) -> Answer:
        """Return the scores of images and the number of their last change, or raise an error."""
        if self._stopping:
            raise HTTPError(503, "The service is stopping. Try again in a moment.", LATER)
        self._decoding += 1
        try:
            job = Job(await self._decode(images), asyncio.get_running_loop().create_future())
            self._jobs.append(job)
        finally:
            self._decoding -= 1
            self._arrived.set()
        return await job.answer

    async def _decode(self, images: Sequence[bytes]) -> list[Pixels]:
        loop = asyncio.get_running_loop()
        try:
            seconds = await loop.run_in_executor(self._quick, _seconds_to_decode, images, self.frame)
        except UnreadableError as error:
            raise _unreadable(str(error)) from None
        slow = seconds >= SLOW
        pixels = await loop.run_in_executor(
            self._slow if slow else self._quick, lambda: list(crew().decode(images, self.frame, low=slow))
        )
        for one in pixels:
            if isinstance(one, str):
                raise _unreadable(one)
        return [one for one in pixels if not isinstance(one, str)]

    async def _run(self) -> None:
        """Score batch after batch until the service stops and nothing is left."""
        loop = asyncio.get_running_loop()
        while jobs := await self._gather():
            try:
                answers = await loop.run_in_executor(self._model, self._score, [job.images for job in jobs])
            except Exception as error:
                _deliver(jobs, [error] * len(jobs))
            else:
                _deliver(jobs, answers)

    async def _gather(self) -> list[Job]:
        """Return the requests to score together; empty if the service stops and nothing is left."""
        while not self._jobs:
            if self._stopping and not self._decoding:
                return []
            await self._wait(None)
        end = asyncio.get_running_loop().time() + self.service.batch_delay / 1000
        while self._decoding and sum(len(job.images) for job in self._jobs) < self.service.batch:
            left = end - asyncio.get_running_loop().time()
            if left <= 0 or not await self._wait(left):
                break
        jobs, size = list[Job](), 0
        while self._jobs and (not jobs or size + len(self._jobs[0].images) <= self.service.batch):
            job = self._jobs.popleft()
            if not job.answer.done():  # the client still waits
                jobs.append(job)
                size += len(job.images)
        return jobs or await self._gather()

    async def _wait(self, seconds: float | None) -> bool:
        """Wait for a request; return False on a timeout."""
        self._arrived.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    def _score(self, parts: Sequence[Sequence[Pixels]]) -> list[Answer]:
        self._observe(sum(map(len, parts)))
        now = self._snapshot()
        return [(scores, now.change) for scores in score(now.classifier, parts)]


def score(classifier: Classifier, parts: Sequence[Sequence[Pixels]]) -> list[Scores]:
    """Return the scores of each request; all images are encoded together and common results computed at once."""
    whole = classifier.scores(np.stack([image for part in parts for image in part]))
    _ = whole.best, whole.reported, whole.yes, whole.confidence, whole.unknown
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return [whole[end - len(part) : end] for end, part in zip(ends, parts, strict=True)]


def _seconds_to_decode(images: Sequence[bytes], frame: Frame) -> float:
    """Estimate the decoding time of images from their headers; raise ``UnreadableError`` beyond a limit."""
    return sum(seconds if (seconds := check_header(open_content(one), frame)) is not None else SLOW for one in images)


def _unreadable(fault: str) -> HTTPError:
    return HTTPError(413 if "too many pixels" in fault else 400, f"Cannot read the image: {fault}")


def _deliver(jobs: Sequence[Job], answers: Sequence[Answer | Exception]) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        if job.answer.done():
            continue
        if isinstance(answer, Exception):
            job.answer.set_exception(answer)
        else:
            job.answer.set_result(answer)
