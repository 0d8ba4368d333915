"""One service in one process: the present classifier, the threads, and what does not change about the model."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from labelwise.data.read.decoding import QUIET, Frame
from labelwise.server.abilities import abilities, card, check_pictures
from labelwise.server.batches import Answer, Batches
from labelwise.server.measures import Measures
from labelwise.server.pictures import open_examples, open_gallery
from labelwise.server.present import Present, Served
from labelwise.server.refusals import Refusal
from labelwise.server.settings import Service
from labelwise.store import load, shape_of
from labelwise.training.distribution import choose_device

T = TypeVar("T")


class Engine:
    """What the routes work with; pictures of the gallery and examples go by their ids."""

    def __init__(self, service: Service, measures: Measures) -> None:
        self.service, self.measures = service, measures
        check_pictures(shape_of(service.model))
        base = load(service.model, device=choose_device(service.device))
        self.gallery = open_gallery(base, service.gallery) if service.gallery else None
        self.examples = open_examples(service.examples) if service.examples else {}
        self.can = abilities(base, service)
        self.card = card(base, service, self.can)
        self.present = Present(base, service.model, read_only=service.read_only)
        self._shared = service.read_only or service.workers > 1  # other processes may change the labels
        channels, height, width = base.shape
        frame = Frame(height, width, channels, service.pixels, base.view.fit)
        self.batches = Batches(service, frame, lambda: self.present.served, measures.batch)
        begin = torch.set_num_threads, (self.batches.threads,)
        self._asking, self._writing = (ThreadPoolExecutor(1, name, *begin) for name in ("ask", "write"))

    def start(self) -> None:
        """Start the threads."""
        QUIET.__enter__()
        self.batches.start()

    def stop(self) -> None:
        """Finish what was accepted and end the threads."""
        self.batches.stop()
        self._asking.shutdown()
        self._writing.shutdown()
        self.present.close()
        QUIET.__exit__()
        self.measures.leave()

    def check(self, what: str) -> None:
        """Refuse a question that the model cannot answer."""
        why = self.can[what]
        if why is not None:
            change = what.startswith("teach") or what in ("forget", "undo")
            raise Refusal(403 if change and self.service.read_only else 422, why)

    async def served(self) -> Served:
        """Return the present classifier, with what other workers have changed."""
        if self._shared and self.present.behind():
            return await asyncio.to_thread(self.present.read)
        return self.present.served

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
