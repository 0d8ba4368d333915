"""One service in one process: its classifier, its galleries and its threads."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from labelwise.api import open_on
from labelwise.core.load import shape_of
from labelwise.core.scores import Scores
from labelwise.images.decode.decoding import QUIET, Frame
from labelwise.server import store
from labelwise.server.batcher import Batcher
from labelwise.server.capabilities import CHANGES, capabilities, card, check_takes_images
from labelwise.server.errors import LATER, HTTPError
from labelwise.server.follower import Follower
from labelwise.server.gallery import open_examples, open_gallery
from labelwise.server.live import LiveClassifier, Seen, Snapshot
from labelwise.server.metrics import Metrics
from labelwise.server.settings import Service

T = TypeVar("T")


class Engine:
    """The live classifier, the threads that work with it, and what does not change about the model."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self.service, self.metrics = service, metrics
        check_takes_images(shape_of(service.model))
        base = open_on(service.model, service.device)
        self.gallery = open_gallery(base, service.gallery) if service.gallery else None
        self.examples = open_examples(service.examples) if service.examples else {}
        self.can = capabilities(base, service)
        self.card = card(base, service, self.can)
        self.live = LiveClassifier(base, service.model, state=service.state, read_only=service.read_only)
        self.follower = Follower(self.live)
        channels, height, width = base.shape
        frame = Frame(height, width, channels, service.pixels, base.encoder.fit)
        self.batcher = Batcher(service, frame, lambda: self.live.snapshot, metrics.batch)
        self._asking, self._writing = (ThreadPoolExecutor(1, name) for name in ("ask", "write"))

    def start(self) -> None:
        """Start to answer."""
        QUIET.__enter__()
        self.batcher.start()
        self.follower.start()

    async def stop(self) -> None:
        """Finish what was accepted, and end the threads."""
        await self.batcher.stop()
        await self.follower.stop()
        for pool in (self._asking, self._writing):
            await asyncio.to_thread(pool.shutdown)
        self.live.close()
        QUIET.__exit__()

    def check(self, what: str) -> None:
        """Refuse a question that the model cannot answer."""
        why = self.can[what]
        if why is not None:
            raise HTTPError(403 if what in CHANGES and self.service.read_only else 422, why)

    async def snapshot(self) -> Snapshot:
        """Return the current classifier, with all changes that were acknowledged."""
        return await self.follower.snapshot()

    async def scores(self, images: Sequence[bytes]) -> tuple[Scores, Seen]:
        """Return the scores of images by the current classifier, and what it has seen of the changes."""
        away = (await self.snapshot()).away
        scores, change = await self.batcher.scores(images)
        return scores, Seen(change, away)

    async def in_thread(self, task: Callable[[], T]) -> T:
        """Return the result of a task that takes longer than a moment; requests are read meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._asking, task)

    async def change(self, task: Callable[[], T]) -> T:
        """Do a change in the one thread that writes; a client that goes away does not stop it half-way."""
        change = self._writing.submit(task)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(change)), store.PATIENCE + 2)
        except TimeoutError:
            known = "nothing was changed" if change.cancel() else "look at /labels before you repeat the change"
            raise HTTPError(503, f"The store of changes does not answer; {known}.", LATER) from None
