"""Two lanes to decode in: pictures that take a moment do not wait for those that take long.

What a picture takes is read from its header. Those that take long have one worker of low rank for themselves; the others have all
the rest. In each lane it is the turn of the request that is due first, and the longer one takes the later it is due: so a
short one overtakes, and none waits for ever. Short ones that wait are decoded in one call.
"""

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from queue import Empty, PriorityQueue
from typing import Protocol

from labelwise.images.decode.decoding import Frame, check_header, opened
from labelwise.images.decode.workers import Pixels, crew

LONG = (
    0.1  # seconds of processor time from which on a request takes the slow lane: a PNG of 4 megapixels, a JPEG of 10 MB
)
PATIENCE = 20.0  # times the seconds that it takes a request waits before a later one of no length is due after it
TOGETHER = 16  # pictures of quick requests that are decoded in one call


class Work(Protocol):
    """What is decoded: the contents of picture files, unless nobody waits for it any more."""

    @property
    def pictures(self) -> Sequence[bytes]:
        """The contents."""

    @property
    def over(self) -> bool:
        """Whether nobody waits any more."""


def seconds_of(pictures: Sequence[bytes], frame: Frame) -> float:
    """Return the processor time that decoding is likely to take, or raise ``UnreadableError`` where a header is beyond a limit."""
    return sum(seconds if (seconds := check_header(opened(one), frame)) is not None else LONG for one in pictures)


class Lanes:
    """Threads that wait for workers: ``quick`` of them, and one for what takes long; ``decoded`` is told what comes of each work."""

    def __init__(
        self, frame: Frame, quick: int, decoded: Callable[[Work, list[Pixels | str] | Exception], None]
    ) -> None:
        self._frame, self._quick, self._decoded, self._number = frame, quick, decoded, count()
        self._lanes: tuple[PriorityQueue[tuple[float, int, Work | None]], ...] = PriorityQueue(), PriorityQueue()
        self._lock, self._ended = threading.Lock(), False
        self._threads = [
            threading.Thread(target=self._run, args=(slow,), name="decode", daemon=True) for slow in [0] * quick + [1]
        ]

    def start(self) -> None:
        """Start the threads and the workers that are needed first."""
        crew().prepare(self._quick)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Decode what waits, and end the threads."""
        with self._lock:
            self._ended = True
        for lane in self._lanes:
            for _ in self._threads:
                lane.put((inf, next(self._number), None))
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def put(self, work: Work, seconds: float) -> bool:
        """Let work wait in the lane that it belongs to; return False where nobody takes it any more."""
        with self._lock:
            if not self._ended:
                self._lanes[seconds >= LONG].put((time.monotonic() + PATIENCE * seconds, next(self._number), work))
            return not self._ended

    def _run(self, slow: int) -> None:
        lane = self._lanes[slow]
        while works := self._take(lane, 1 if slow else min(TOGETHER, 1 + lane.qsize() // self._quick)):
            waiting = [work for work in works if not work.over]
            try:
                pixels = crew().decode([one for work in waiting for one in work.pictures], self._frame, low=bool(slow))
                while waiting:
                    self._decoded(waiting[0], [next(pixels) for _ in waiting[0].pictures])
                    waiting.pop(0)
                next(pixels, None)  # the worker is given back
            except Exception as error:  # such as no memory for another process
                for work in waiting:
                    self._decoded(work, error)

    def _take(self, lane: PriorityQueue[tuple[float, int, Work | None]], most: int) -> list[Work]:
        """Return what is due next, and what else waits, up to so many pictures; nothing where all is done."""
        works, pictures = list[Work](), 0
        while pictures < most:
            try:
                entry = lane.get(block=not works)
            except Empty:
                break
            if entry[2] is None:
                if works:
                    lane.put(entry)
                break
            works.append(entry[2])
            pictures += len(entry[2].pictures)
        return works
