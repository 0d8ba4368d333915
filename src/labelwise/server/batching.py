"""Micro-batching: pictures of several requests are decoded side by side and encoded together.

Decoders take requests from the queue as they come. One thread owns the model: it takes whatever is decoded, up to a limit, and
encodes each picture once; while it works, the next batch gathers. It waits for more only while pictures are being decoded, and
never longer than the bound. So a lone request is answered at once, and many requests share the cost of a pass.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from labelwise.data.decoding import Frame, UnreadableError, decode
from labelwise.server.refusals import Refusal


class Answerer(Protocol):
    """What is done with a batch, in the thread that owns the model."""

    def __call__(self, jobs: Sequence["Job"], images: Tensor) -> list[Any]:
        """Return for each job its answer, or the exception that it ends with; ``images [n, c, h, w]`` are theirs in order."""


@dataclass(eq=False)
class Job:
    """A request on its way through.

    Attributes:
        question: what is asked.
        pictures: contents of picture files.
        images: what they were decoded to, ``[m, c, h, w]``.
    """

    question: Any
    pictures: Sequence[bytes]
    future: "asyncio.Future[Any]"
    images: Tensor | None = None
    began: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How batches are made.

    Attributes:
        most: pictures of a batch.
        wait: seconds that a decoded picture waits at most for others.
        decoders: threads that decode.
        threads: of one pass of the model.
    """

    most: int
    wait: float
    decoders: int
    threads: int


class Batcher:
    """A queue of jobs, the threads that decode, and the thread that owns the model."""

    def __init__(self, frame: Frame, answer: Answerer, limits: Limits, observe: Callable[[int], None]) -> None:
        self.frame, self.answer, self.limits, self.observe = frame, answer, limits, observe
        self._arrived: deque[Job] = deque()
        self._ready: deque[Job] = deque()
        self._decoding = 0
        self._stopping = False
        self._lock = threading.Lock()
        self._decoder_wakes = threading.Condition(self._lock)
        self._model_wakes = threading.Condition(self._lock)
        self._threads = [
            threading.Thread(target=self._decode_all, name="decode", daemon=True) for _ in range(limits.decoders)
        ]
        self._threads.append(threading.Thread(target=self._answer_all, name="model", daemon=True))

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let the threads finish what was accepted, and end them."""
        with self._lock:
            self._stopping = True
            self._decoder_wakes.notify_all()
            self._model_wakes.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def length(self) -> int:
        """Jobs that wait or are being decoded."""
        return len(self._arrived) + self._decoding + len(self._ready)

    async def ask(self, question: Any, pictures: Sequence[bytes] = ()) -> Any:
        """Return the answer to a question about pictures, or raise what it ended with."""
        job = Job(question, pictures, asyncio.get_running_loop().create_future())
        with self._lock:
            if self._stopping:
                raise Refusal(503, "The service is about to stop. Ask again in a moment.", {"Retry-After": "1"})
            if pictures:
                self._arrived.append(job)
                self._decoder_wakes.notify()
            else:
                self._ready.append(job)
                self._model_wakes.notify()
        return await job.future

    def _decode_all(self) -> None:
        while True:
            with self._lock:
                while not self._arrived and not self._stopping:
                    self._decoder_wakes.wait()
                if not self._arrived:
                    self._model_wakes.notify_all()
                    return
                job = self._arrived.popleft()
                self._decoding += 1
            fault: Exception | None = None
            try:
                job.images = torch.stack([torch.from_numpy(decode(one, self.frame)) for one in job.pictures])
            except UnreadableError as error:
                status = 413 if "too many pixels" in str(error) else 400
                fault = Refusal(status, f"Cannot read the picture: {error}")
            except Exception as error:
                fault = error
            with self._lock:
                self._decoding -= 1
                if fault is None:
                    self._ready.append(job)
                self._model_wakes.notify()
            if fault is not None:
                self._deliver([job], [fault])

    def _answer_all(self) -> None:
        torch.set_num_threads(self.limits.threads)  # counts for the thread that calls it
        while jobs := self._gather():
            parts = [job.images for job in jobs if job.images is not None]
            try:
                images = torch.cat(parts) if parts else torch.empty(0)
                self.observe(len(images))
                answers = self.answer(jobs, images)
            except Exception as error:
                answers = [error] * len(jobs)
            self._deliver(jobs, answers)

    def _gather(self) -> list[Job]:
        """Return the next jobs to answer together; none where all is done and the service stops."""
        with self._lock:
            while not self._ready:
                if self._stopping and not self._arrived and not self._decoding:
                    return []
                self._model_wakes.wait(0.1 if self._stopping else None)
            end = time.perf_counter() + self.limits.wait
            while len(self._ready) < self.limits.most and (self._arrived or self._decoding):
                left = end - time.perf_counter()
                if left <= 0 or not self._model_wakes.wait(left):
                    break
            found: list[Job] = []
            pictures = 0
            while self._ready and (not found or pictures + len(self._ready[0].pictures) <= self.limits.most):
                pictures += len(self._ready[0].pictures)
                found.append(self._ready.popleft())
            return found

    def _deliver(self, jobs: Sequence[Job], answers: Sequence[Any]) -> None:
        """Hand over answers in the loop that asked, all at once."""
        loop = jobs[0].future.get_loop()

        def hand_over() -> None:
            for job, answer in zip(jobs, answers, strict=True):
                if job.future.done():
                    continue
                if isinstance(answer, Exception):
                    job.future.set_exception(answer)
                else:
                    job.future.set_result(answer)

        try:
            loop.call_soon_threadsafe(hand_over)
        except RuntimeError:  # the loop is gone, and with it who asked
            return
