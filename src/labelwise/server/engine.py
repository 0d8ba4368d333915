"""One service in one process: its classifier, its pictures and its threads."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from labelwise.core.description import shape_of
from labelwise.core.store import load
from labelwise.images.decode.decoding import QUIET, Frame
from labelwise.server.abilities import CHANGES, abilities, card, check_pictures
from labelwise.server.batches import Answer, Batches
from labelwise.server.follower import Follower
from labelwise.server.measures import Measures
from labelwise.server.pictures import open_examples, open_gallery
from labelwise.server.present import Present, Served
from labelwise.server.refusals import Refusal
from labelwise.server.settings import Service
from labelwise.train.distribution import choose_device

T = TypeVar("T")


class Engine:
    """The present classifier, the threads that work with it, and what does not change about the model."""

    def __init__(self, service: Service, measures: Measures) -> None:
        self.service, self.measures = service, measures
        check_pictures(shape_of(service.model))
        base = load(service.model, device=choose_device(service.device))
        self.gallery = open_gallery(base, service.gallery) if service.gallery else None
        self.examples = open_examples(service.examples) if service.examples else {}
        self.can = abilities(base, service)
        self.card = card(base, service, self.can)
        self.present = Present(base, service.model, state=service.state, read_only=service.read_only)
        self.follower = Follower(self.present) if self.present.remote else None
        self._shared = service.shares or service.workers > 1  # other processes may change the labels
        channels, height, width = base.shape
        frame = Frame(height, width, channels, service.pixels, base.view.fit)
        self.batches = Batches(service, frame, lambda: self.present.served, measures.batch)
        begin = torch.set_num_threads, (self.batches.threads,)
        self._asking, self._writing = (ThreadPoolExecutor(1, name, *begin) for name in ("ask", "write"))

    def start(self) -> None:
        """Start the threads."""
        QUIET.__enter__()
        self.batches.start()
        if self.follower:
            self.follower.start()

    def stop(self) -> None:
        """Finish what was accepted and end the threads."""
        self.batches.stop()
        self._asking.shutdown()
        self._writing.shutdown()
        if self.follower:
            self.follower.stop()
        self.present.close()
        QUIET.__exit__()

    def check(self, what: str) -> None:
        """Refuse a question that the model cannot answer."""
        why = self.can[what]
        if why is not None:
            raise Refusal(403 if what in CHANGES and self.service.read_only else 422, why)

    async def served(self) -> Served:
        """Return the present classifier, with what other workers have changed."""
        if self.follower:
            return await self.follower.served()
        if self._shared and self.present.behind():
            return await asyncio.to_thread(self.present.read)
        return self.present.served

    @property
    def away(self) -> float:
        """For how many seconds a store on another machine has not answered; 0 where it does."""
        return self.follower.away if self.follower else 0.0

    async def scores(self, pictures: Sequence[bytes]) -> Answer:
        """Return the scores of pictures by the present classifier, and the change that it belongs to."""
        await self.served()
        return await self.batches.scores(pictures)

    async def aside(self, task: Callable[[], T]) -> T:
        """Return what a task gives that takes longer than a moment; requests are read meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._asking, task)

    async def write(self, change: Callable[[], T]) -> T:
        """Do a change in the one thread that writes; a client that goes away does not stop it half-way."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._writing, change))
