"""Looks at the store of changes, so that each answer has seen all that was acknowledged before it was asked for."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from labelwise.server.live import LiveClassifier, Snapshot
from labelwise.support.errors import StoreError

LOG = logging.getLogger("labelwise.server")
WAIT = 1.0  # seconds for which a request waits for a look at the store
WAIT_AWAY = 0.1  # the same where the store did not answer before
PERIOD = 0.5  # seconds between two looks where nobody asks, or the store does not answer


class Follower:
    """Looks at the store in a thread of its own, one look at a time: a request is answered with all that was acknowledged before it.

    A look counts for all requests that came before it began. While the store does not answer, requests are answered with what
    is known, and say for how long.
    """

    def __init__(self, live: LiveClassifier) -> None:
        self.live = live
        self._lost: float | None = None  # since when the store does not answer
        self._tried = 0.0
        self._thread = ThreadPoolExecutor(1, "follow")
        self._current: asyncio.Task[None] | None = None  # the look under way
        self._next: asyncio.Task[None] | None = None  # the one that begins after it

    @property
    def away(self) -> float:
        """For how many seconds the store has not answered; 0 where it does."""
        return 0.0 if self._lost is None else max(0.001, time.monotonic() - self._lost)

    def start(self) -> None:
        """Look from time to time, also where nobody asks."""
        self._periodic = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        """End the looks."""
        self._periodic.cancel()
        self._thread.shutdown(wait=False)

    async def snapshot(self) -> Snapshot:
        """Return the classifier as the store knew it after this call, or as it is known where the store does not answer."""
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
        """Look once the look before has ended: it may have begun before a change that must be seen."""
        if look is not None:
            await asyncio.wait([look])
        self._current, self._next = self._next, None
        self._note(await asyncio.get_running_loop().run_in_executor(self._thread, self._look))

    def _look(self) -> str | None:
        """Read what is new; return what is wrong with the store, if anything."""
        try:
            self.live.read()
        except StoreError as error:
            return str(error)
        except Exception as error:  # answers go on, and say that they may be out of date
            LOG.exception("a look at the store of changes failed")
            return repr(error)
        return None

    def _note(self, fault: str | None) -> None:
        self._tried = time.monotonic()
        if fault is not None and self._lost is None:
            self._lost = self._tried
            LOG.warning(
                "The store of changes is away (%s); answers are those of change %s", fault, self.live.snapshot.change
            )
        elif fault is None and self._lost is not None:
            LOG.warning("The store of changes is back after %.1f s", self.away)
            self._lost = None
