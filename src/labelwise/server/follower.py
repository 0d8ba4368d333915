"""Follows the store of changes, so that every answer includes all changes acknowledged before its request."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from labelwise.server.live import LiveClassifier, Snapshot
from labelwise.support.errors import StoreError

LOG = logging.getLogger("labelwise.server")
WAIT = 1.0  # seconds that a request waits for the store
WAIT_AWAY = 0.1  # the same after the store failed to answer
PERIOD = 0.5  # seconds between looks without requests, or while the store does not answer


class Follower:
    """Reads the store in its own thread, one read at a time.

    A read serves all requests that arrived before it started. While the store does not answer, answers use the last known state
    and report its age.
    """

    def __init__(self, live: LiveClassifier) -> None:
        self.live = live
        self._lost: float | None = None  # time of the last answer before the store went away
        self._tried = 0.0
        self._thread = ThreadPoolExecutor(1, "follow")
        self._current: asyncio.Task[None] | None = None  # the read in progress
        self._next: asyncio.Task[None] | None = None  # the read after it

    @property
    def away(self) -> float:
        """Seconds since the store last answered; 0 if it answers."""
        return 0.0 if self._lost is None else max(0.001, time.monotonic() - self._lost)

    def start(self) -> None:
        """Read periodically, also without requests."""
        self._periodic = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        """Stop reading."""
        self._periodic.cancel()
        self._thread.shutdown(wait=False)

    async def snapshot(self) -> Snapshot:
        """Return the classifier with all changes in the store at this call, or the last known one if the store does not answer."""
        if self._lost is None or time.monotonic() > self._tried + PERIOD:
            look = self._next or asyncio.create_task(self._look_after(self._current))
            self._next = look
            done, _ = await asyncio.wait([look], timeout=WAIT if self._lost is None else WAIT_AWAY)
            if not done:
                self._note(f"no answer within {WAIT:g} s")
        return replace(self.live.snapshot, away=self.away)

    async def _repeat(self) -> None:
        while True:
            await self.snapshot()
            await asyncio.sleep(PERIOD)

    async def _look_after(self, look: asyncio.Task[None] | None) -> None:
        """Read after the current read, which may have started before a required change."""
        if look is not None:
            await asyncio.wait([look])
        self._current, self._next = self._next, None
        self._note(await asyncio.get_running_loop().run_in_executor(self._thread, self._look))

    def _look(self) -> str | None:
        """Read new changes; return the fault of the store, if any."""
        try:
            self.live.read()
        except StoreError as error:
            return str(error)
        except Exception as error:  # answers continue, and report that they may be out of date
            LOG.exception("reading the store of changes failed")
            return repr(error)
        return None

    def _note(self, fault: str | None) -> None:
        self._tried = time.monotonic()
        if fault is not None and self._lost is None:
            self._lost = self._tried
            LOG.warning(
                "The store of changes does not answer (%s); answers include changes up to %s",
                fault,
                self.live.snapshot.change,
            )
        elif fault is None and self._lost is not None:
            LOG.warning("The store of changes answers again after %.1f s", self.away)
            self._lost = None
