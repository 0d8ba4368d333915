"""What is served kept up with a store on another machine: a request is answered with all that was acknowledged before it came.

One look at the store takes a message there and back, and counts for all requests that came before it began. Where the store does not
answer, requests are answered with what is known, and are told since when.
"""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from labelwise.server.present import Present, Served
from labelwise.support.errors import StoreError

LOG = logging.getLogger("labelwise.server")
PATIENCE = 1.0  # seconds that a request waits for a look
RETRY, SHORT = (
    0.5,
    0.1,
)  # seconds between two looks where nobody asks or the store is away, and that a request waits for one then


class Follower:
    """Looks at the store of the present classifier in a thread of its own, one look at a time."""

    def __init__(self, present: Present) -> None:
        self.present = present
        self._since: float | None = None  # when the store was lost
        self._tried = 0.0
        self._thread = ThreadPoolExecutor(1, "follow")
        self._look: asyncio.Task[None] | None = None  # the one under way
        self._next: asyncio.Task[None] | None = None  # the one that begins after it

    @property
    def away(self) -> float:
        """For how many seconds the store has not answered; 0 where it does."""
        return 0.0 if self._since is None else max(0.001, time.monotonic() - self._since)

    def start(self) -> None:
        """Look from time to time, also where nobody asks: what is known when the store is lost is that of a moment before."""
        self._steady = asyncio.create_task(self._follow())

    def stop(self) -> None:
        """End the looks, from another thread than that of the requests."""
        self._steady.get_loop().call_soon_threadsafe(self._steady.cancel)
        self.present.cut()
        self._thread.shutdown()

    async def _follow(self) -> None:
        while True:
            await self.served()
            await asyncio.sleep(RETRY)

    async def served(self) -> Served:
        """Return the present classifier as the store knew it after this call, or as it is known where the store is away."""
        if self._since is None or time.monotonic() > self._tried + RETRY:
            look = self._next or asyncio.create_task(self._after(self._look))
            self._next = look
            done, _ = await asyncio.wait([look], timeout=PATIENCE if self._since is None else SHORT)
            if not done:
                self._note(f"no answer within {PATIENCE:g} s")
        return self.present.served

    async def _after(self, look: asyncio.Task[None] | None) -> None:
        """Look once the look before has ended: it may have begun before a change that must be seen."""
        if look is not None:
            await asyncio.wait([look])
        self._look, self._next = self._next, None
        loop = asyncio.get_running_loop()
        cut = loop.call_later(PATIENCE, self.present.cut)
        try:
            self._note(await loop.run_in_executor(self._thread, self._catch_up))
        finally:
            cut.cancel()

    def _catch_up(self) -> str | None:
        """Read what is new; return what is wrong with the store, if anything."""
        try:
            if self.present.behind():
                self.present.read()
        except StoreError as error:
            return str(error)
        except Exception as error:  # answers go on, and say that they may be out of date
            LOG.exception("a look at the store of changes failed")
            return repr(error)
        return None

    def _note(self, fault: str | None) -> None:
        self._tried = time.monotonic()
        if fault is not None and self._since is None:
            self._since = self._tried
            LOG.warning(
                "The store of changes is away (%s); answers are those of change %s", fault, self.present.served.change
            )
        elif fault is None and self._since is not None:
            LOG.warning("The store of changes is back after %.1f s", self.away)
            self._since = None
