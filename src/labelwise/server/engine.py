"""One service process: its classifier, galleries and threads."""

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
    """The live classifier, its threads, and the constant facts about the model."""

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
        """Start."""
        QUIET.__enter__()
        self.batcher.start()
        self.follower.start()

    async def stop(self) -> None:
        """Finish the accepted requests and stop the threads."""
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
        """Return the current classifier with all acknowledged changes."""
        return await self.follower.snapshot()

    async def scores(self, images: Sequence[bytes]) -> tuple[Scores, Seen]:
        """Return the scores of images by the current classifier, and how current it is."""
        away = (await self.snapshot()).away
        scores, change = await self.batcher.scores(images)
        return scores, Seen(change, away)

    async def in_thread(self, task: Callable[[], T]) -> T:
        """Run a slow task in a thread, so that other requests proceed."""
        return await asyncio.get_running_loop().run_in_executor(self._asking, task)

    async def change(self, task: Callable[[], T]) -> T:
        """Run a change in the single writing thread; it completes even if the client disconnects."""
        change = self._writing.submit(task)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(change)), store.PATIENCE + 2)
        except TimeoutError:
            known = "nothing was changed" if change.cancel() else "check /labels before you repeat the change"
            raise HTTPError(503, f"The store of changes does not answer; {known}.", LATER) from None
