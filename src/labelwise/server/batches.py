"""Micro-batching: pictures of several requests are decoded side by side and encoded together.

Requests are decoded in lanes (see ``lanes``). One thread owns the model: it takes whatever is decoded, up to a limit, and encodes each
picture once; while it works, the next batch gathers. It waits for more only while pictures are being decoded, and never longer
than the bound. So a lone request is answered at once, and many requests share the cost of a pass. What is asked of the pictures
is no matter here: a request gets the scores of its own.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

import numpy as np
import torch
from torch import Tensor

from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.images.decode.decoding import Frame, UnreadableError
from labelwise.images.decode.workers import Pixels
from labelwise.server.lanes import Lanes, Work, seconds_of
from labelwise.server.present import Served
from labelwise.server.refusals import LATER, Refusal
from labelwise.server.settings import Service

Answer = tuple[Scores, int]
SHORT = 2**18  # bytes of pictures whose headers are read at once; others in a thread, for they may have many parts
SHARED = ("best", "stated", "yes", "confidence", "strangeness", "unknown")  # computed for a whole batch at once


@dataclass(eq=False)
class Job:
    """A request on its way through: contents of picture files, and what they were decoded to ``[m, c, h, w]``."""

    pictures: Sequence[bytes]
    future: "asyncio.Future[Answer]"
    images: Tensor | None = None

    @property
    def over(self) -> bool:
        """Whether nobody waits any more."""
        return self.future.done()


class Batches:
    """Lanes that decode, and a thread that owns the model; ``observe`` is told the size of every batch."""

    def __init__(
        self, service: Service, frame: Frame, present: Callable[[], Served], observe: Callable[[int], None]
    ) -> None:
        self.frame = frame
        self.service, self.present, self.observe = service, present, observe
        cores = max(1, (os.cpu_count() or 1) // service.workers)
        self.threads = max(1, cores - 1)  # one core is left for reading requests and decoding
        self._lanes = Lanes(frame, min(4, cores), self._decoded)
        self._waiting: set[Job] = set()  # accepted, not decoded yet
        self._ready: SimpleQueue[Job | None] = SimpleQueue()  # None is the end
        self._next: Job | None = None  # did not fit into the last batch
        self._model = threading.Thread(target=self._score_all, daemon=True)

    def start(self) -> None:
        """Start the threads."""
        self._lanes.start()
        self._model.start()

    def stop(self) -> None:
        """Let the threads finish what was accepted, and end them."""
        self._lanes.stop()
        self._ready.put(None)
        self._model.join()

    @property
    def length(self) -> int:
        """Jobs that wait or are being decoded."""
        return len(self._waiting) + self._ready.qsize()

    async def scores(self, pictures: Sequence[bytes]) -> Answer:
        """Return the scores of pictures and the change that they belong to, or raise why there are none."""
        try:
            reading = partial(seconds_of, pictures, self.frame)
            seconds = await asyncio.to_thread(reading) if sum(map(len, pictures)) > SHORT else reading()
        except UnreadableError as error:
            raise _unreadable(str(error)) from None
        job = Job(pictures, asyncio.get_running_loop().create_future())
        self._waiting.add(job)
        try:
            if not self._lanes.put(job, seconds):
                raise Refusal(503, "The service is about to stop. Ask again in a moment.", LATER)
            return await job.future
        finally:
            self._waiting.discard(job)

    def _decoded(self, job: Work, pixels: list[Pixels | str] | Exception) -> None:
        assert isinstance(job, Job)
        if isinstance(pixels, Exception):
            _deliver([job], [pixels])
        elif fault := next((each for each in pixels if isinstance(each, str)), None):
            _deliver([job], [_unreadable(fault)])
        else:
            job.images = torch.from_numpy(np.stack([each for each in pixels if not isinstance(each, str)]))
            self._ready.put(job)
        self._waiting.discard(job)

    def _score_all(self) -> None:
        torch.set_num_threads(self.threads)  # counts for the thread that calls it
        while jobs := self._gather():
            answers: list[Answer | Exception] = []
            try:
                parts = [job.images for job in jobs if job.images is not None]
                self.observe(sum(map(len, parts)))
                served = self.present()
                answers += [(scores, served.change) for scores in scored(served.classifier, parts)]
            except Exception as error:
                answers = [error] * len(jobs)
            _deliver(jobs, answers)

    def _gather(self) -> list[Job]:
        """Return the next jobs to encode together; none where all is done and the service stops."""
        jobs, pictures, most = list[Job](), 0, self.service.batch
        job, self._next = self._next or self._take(None), None
        end = time.perf_counter() + self.service.wait / 1000
        while job is not None:
            if jobs and pictures + len(job.pictures) > most:
                self._next = job
                break
            jobs.append(job)
            pictures += len(job.pictures)
            if pictures >= most:
                break
            job = self._take(max(0.0, end - time.perf_counter()) if self._waiting else 0.0)
        return jobs

    def _take(self, seconds: float | None) -> Job | None:
        """Return the next decoded job; None where none comes in time, or where all is done."""
        try:
            job = self._ready.get(timeout=seconds)
        except Empty:
            return None
        if job is None:
            self._ready.put(None)  # the end stays the end
        return job


def scored(classifier: Classifier, parts: Sequence[Tensor]) -> list[Scores]:
    """Return the scores of several lots of images, encoded together; what is asked most often is computed and on the CPU."""
    whole, counts = Scores(classifier, classifier.encode(torch.cat(list(parts)))), [len(part) for part in parts]
    columns = [torch.split(getattr(whole, name).cpu(), counts) for name in SHARED]
    lots = [Scores(classifier, *one) for one in zip(torch.split(whole.embeddings, counts), parts, strict=True)]
    for scores, *values in zip(lots, *columns, strict=True):
        vars(scores).update(zip(SHARED, values, strict=True))
    return lots


def _unreadable(fault: str) -> Refusal:
    return Refusal(413 if "too many pixels" in fault else 400, f"Cannot read the picture: {fault}")


def _deliver(jobs: Sequence[Job], answers: Sequence[Answer | Exception]) -> None:
    """Hand over answers in the loop that asked, all at once."""

    def hand_over() -> None:
        for job, answer in zip(jobs, answers, strict=True):
            if job.future.done():
                continue
            if isinstance(answer, Exception):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)

    try:
        jobs[0].future.get_loop().call_soon_threadsafe(hand_over)
    except RuntimeError:  # the loop is gone, and with it who asked
        return
