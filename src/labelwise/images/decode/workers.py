"""Decode images in isolated worker processes, so that a malicious image harms only its worker.

A worker is a small Python process without torch (a tenth of a second to start, 40 MB). The kernel ends it when an image takes more
processor time than its header lets expect, many times over, and refuses it more memory than images of the allowed size
take. The caller gets an error for that image, another worker goes on with the others, and a new one is started when needed.
An image comes back as bytes, never as an object: what broke a decoder cannot reach the process that asked. Small images come back
together, so that nobody knows which of them ended a worker: then each of the others is sent alone.
"""

import atexit
import marshal
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple
from functools import cache
from math import ceil, prod
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from labelwise.images.decode.decoding import QUIET, File, Frame, check_header, decode_stream, open_content, reason
from labelwise.images.decode.framing import fit_image
from labelwise.images.decode.videos import Clip, Moment

Pixels = npt.NDArray[np.uint8]
LEAST_SECONDS, TIMES = 2.0, 10.0  # that an image may take, and the factor on what its header suggests
VIDEO_SECONDS = 120.0  # for a frame of a video, which is decoded from the last whole picture before it
UNKNOWN_SECONDS = 60.0  # for formats whose header is not read here: 100 million pixels of JPEG 2000 take 20
WALL = 1200.0  # seconds on the clock, however busy the cores are
PIXEL_BYTES = 32  # of memory at most: JPEG 2000 holds 28, a progressive JPEG of four colours 16, a WebP with alpha 16
SPARE = 2**28  # bytes of memory for Python and the decoders themselves
TOGETHER = 0.01  # seconds for which images wait for others to go back with them
TOO_LONG = "decoding it takes far too long for its size. Save it again."
BROKEN = "its decoder crashed. Save it again."
BOOT = "import sys; from labelwise.images.decode.workers import work; work(*map(int, sys.argv[1:]))"


class LostError(Exception):
    """A worker ended; the message says how."""


class DecodeWorker:
    """A decoding process with low priority."""

    def __init__(self, *, low: bool) -> None:
        self._pipe, theirs = Pipe()
        self._arrival = select.poll()  # kept: ten times faster than ``Connection.poll``
        self._arrival.register(self._pipe.fileno(), select.POLLIN)
        settings = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(theirs.fileno()), str(int(low))],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **settings, "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for the parent process
            )

    def decode(self, images: Sequence[File | Moment], frame: Frame) -> Iterator[Pixels | str]:
        """Yield the bytes ``[c, h, w]`` of each image, or why it cannot be read; raise ``LostError`` where one ends the process."""
        contents = [
            tuple(each) if isinstance(each, Moment) else each if isinstance(each, bytes) else str(each)
            for each in images
        ]
        try:
            self._pipe.send_bytes(marshal.dumps((astuple(frame), contents)))
            remaining = len(images)
            while remaining:
                if not self._arrival.poll(1000 * WALL):
                    raise LostError(TOO_LONG)
                for answer in _unpack(bytearray(self._pipe.recv_bytes()), frame):
                    remaining -= 1
                    yield answer
        except ValueError:  # not a worker's message
            raise LostError(BROKEN) from None
        except (OSError, EOFError):
            signals = {-signal.SIGXCPU: TOO_LONG}
            raise LostError(signals.get(self._process.wait(), BROKEN)) from None

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()


class Crew:
    """The pool of workers: each caller borrows one; a new one starts if none is idle."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._idle: dict[bool, deque[DecodeWorker]] = {False: deque(), True: deque()}

    def prepare(self, count: int) -> None:
        """Start workers until ``count`` are idle, without waiting for them."""
        while len(self._idle[False]) < count:
            self._idle[False].append(DecodeWorker(low=False))

    def decode(self, images: Sequence[File | Moment], frame: Frame, *, low: bool = False) -> Iterator[Pixels | str]:
        """Yield what ``Worker.decode`` does for all images, those after one that ends its worker included."""
        at, most, idle = 0, len(images), self._idle[low]
        while at < len(images):
            try:
                worker = idle.pop()
            except IndexError:
                worker = DecodeWorker(low=low)
            complete, end = False, at + most
            try:
                for pixels in worker.decode(images[at:end], frame):
                    at += 1
                    yield pixels
                complete = True
            except LostError as lost:
                idle.append(DecodeWorker(low=low))  # start it while the next image is on its way
                if at + 1 < min(end, len(images)):
                    most = 1
                else:
                    at += 1
                    yield str(lost)
            finally:
                if complete and len(idle) <= (os.cpu_count() or 1):
                    idle.append(worker)
                else:
                    worker.end()

    def close(self) -> None:
        """End idle workers, except in a forked process."""
        for idle in self._idle.values():
            while idle and os.getpid() == self._owner:
                idle.pop().end()


@cache
def _crew(owner: int) -> Crew:
    crew = Crew(owner)
    atexit.register(crew.close)
    return crew


def crew() -> Crew:
    """Return the pool of this process; forks get their own."""
    return _crew(os.getpid())


def work(connection: int, low: int) -> None:
    """Run a worker: decode requests from a connection until it closes."""
    if low:
        os.nice(10)
    for what in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):  # a decoder has nothing to write
        resource.setrlimit(what, (0, 0))
    own, limits, video = _own_memory(), ProcessLimits(), Video()
    with Connection(connection) as pipe, QUIET, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            request = pipe.recv_bytes()
            frame_fields, images = marshal.loads(request)
            frame, answers, start = Frame(*frame_fields), list[bytes](), time.monotonic()
            limits.set(resource.RLIMIT_AS, own + SPARE + PIXEL_BYTES * frame.max_pixels + 4 * len(request))
            for image in images:
                try:
                    if isinstance(image, tuple):
                        limits.set_seconds(VIDEO_SECONDS)
                        pixels = fit_image(video.at(Moment(*image), frame.max_pixels), frame)
                    else:
                        pixels = _decode(image, frame, limits)
                    answers += [b"+", pixels.tobytes()]
                except Exception as error:
                    text = reason(error, frame).encode(errors="backslashreplace")
                    answers += [b"-", len(text).to_bytes(4), text]
                if time.monotonic() - start > TOGETHER:
                    pipe.send_bytes(b"".join(answers))
                    answers, start = [], time.monotonic()
            if answers:
                pipe.send_bytes(b"".join(answers))


def _unpack(message: bytearray, frame: Frame) -> Iterator[Pixels | str]:
    """Yield bytes ``[c, h, w]`` or an ``Unreadable`` per image of a message; raise ``ValueError`` for anything else."""
    at, size = 0, prod(frame.shape)
    while at < len(message):
        mark, at = message[at : at + 1], at + 1
        if mark == b"+":
            yield np.frombuffer(message, np.uint8, size, at).reshape(frame.shape)
            at += size
        else:
            begin = at + 4
            at = begin + int.from_bytes(message[at:begin])
            if mark != b"-" or at > len(message):
                raise ValueError("no answer of a worker")
            yield message[begin:at].decode(errors="replace")


def _decode(image: File, frame: Frame, limits: "ProcessLimits") -> Pixels:
    """Decode an image to bytes ``[c, h, w]`` within its time limit."""
    limits.set_seconds(LEAST_SECONDS)
    with open_content(image) as stream:
        seconds = check_header(stream, frame)
        limits.set_seconds(UNKNOWN_SECONDS if seconds is None else LEAST_SECONDS + TIMES * seconds)
        return decode_stream(stream, frame)


class Video:
    """The video that this process read last, open: its next frame is quicker to reach than that of another."""

    def __init__(self) -> None:
        self._key: tuple[str, tuple[int, ...]] | None = None
        self._clip: Clip | None = None

    def at(self, moment: Moment, max_pixels: int) -> Image.Image:
        """Return the frame at a moment."""
        about = os.stat(moment.file)
        key = moment.file, (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, max_pixels)
        if self._clip is None or key != self._key:
            self.close()
            self._clip, self._key = Clip.of_file(moment.file, max_pixels), key
        try:
            return self._clip.at(moment.seconds)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Close the video."""
        if self._clip is not None:
            self._clip.close()
        self._clip = None


class ProcessLimits:
    """The limits of this process, set if they changed."""

    def __init__(self) -> None:
        self._now: dict[int, int] = {}

    def set_seconds(self, seconds: float) -> None:
        """Allow more processor time, rounded up to a second."""
        self.set(resource.RLIMIT_CPU, ceil(time.process_time() + seconds))

    def set(self, resource_kind: int, most: int) -> None:
        """Set a limit."""
        if self._now.get(resource_kind) != most:
            self._now[resource_kind] = most
            with suppress(ValueError, OSError):  # the system has no such limit, or a lower one
                resource.setrlimit(resource_kind, (most, resource.getrlimit(resource_kind)[1]))


def _own_memory() -> int:
    """Return the address space of this process in bytes, 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
