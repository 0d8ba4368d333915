"""One connection, held within limits: of bytes that wait, of seconds to send and to take, of connections to one address and in all.

uvicorn parses what a client sends ahead, waits without end for one that does not take its answer, and closes while a body still
comes, so that the client meets a reset in place of the answer. Here the next request is parsed when the answer to the last one is
taken; an answer that comes before its request is whole says that it is the last, and what still arrives is thrown away.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from labelwise.server.bodies import refused
from labelwise.server.guard import CROWDED, HEADERS, customer, length_of
from labelwise.server.refusals import CLOSE, Refusal

READ = 2**16  # bytes read from a connection at once, so that wait there before they are asked for
LONGEST_HEAD, MOST_LINES = 2**16, 200  # bytes and lines of a request before its body
UNTAKEN = 64_000_000  # bytes of answers that wait to be taken, in all
DRAIN, LINGER = 32_000_000, 5.0  # bytes and seconds that a client may go on sending after its last answer
ASIDE = 64  # crowded connections that are kept, the latest ones
ASIDE_SECONDS = 2.0  # within which they must ask


class Crowd:
    """The open connections of a worker, counted by address.

    One too many is kept aside for a moment: it may ask whether the service is up, and is otherwise told to come back.
    """

    def __init__(self, most: int, of_address: int) -> None:
        self.most, self.of_address = most, of_address
        self._addresses: Counter[str] = Counter()
        self._count = 0
        self._aside: dict[Connection, None] = {}  # in the order of their arrival
        self._untaken: dict[Connection, None] = {}

    def enter(self, connection: "Connection") -> bool:
        """Count a connection; return whether it is one too many."""
        address = _address(connection)
        if self._count >= self.most or self._addresses[address] >= self.of_address:
            self._aside[connection] = None
            if len(self._aside) > ASIDE:
                next(iter(self._aside)).drop()
            return True
        self._count, self._addresses[address] = self._count + 1, self._addresses[address] + 1
        return False

    def leave(self, connection: "Connection") -> None:
        """Count it no more."""
        self.take(connection)
        if connection.aside:
            self._aside.pop(connection, None)
            return
        address = _address(connection)
        self._count, self._addresses[address] = self._count - 1, self._addresses[address] - 1
        if not self._addresses[address]:
            del self._addresses[address]

    def wait(self, connection: "Connection") -> None:
        """Note that an answer waits to be taken; the connection that waits longest is dropped where too much does."""
        self._untaken[connection] = None
        if sum(one.transport.get_write_buffer_size() for one in self._untaken) > UNTAKEN:
            next(iter(self._untaken)).drop()

    def take(self, connection: "Connection") -> None:
        """Note that no answer waits there."""
        self._untaken.pop(connection, None)


def _address(connection: "Connection") -> str:
    return customer(connection.client[0] if connection.client else "")


class Connection(HttpToolsProtocol):
    """HTTP over one connection."""

    def __init__(
        self,
        crowd: Crowd,
        seconds: float,
        *,
        config: uvicorn.Config,
        server_state: Any,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.aside = False  # one too many
        self._crowd, self._seconds = crowd, seconds
        self._ahead, self._searched = bytearray(), 0  # sent and not parsed yet; where no end of a head was seen
        self._body = 0  # bytes of the body that are still to come
        self._whole, self._lasts = True, True  # whether the request has arrived, and the connection outlives its answer
        self._over, self._drained = False, 0  # after the last answer: bytes that were thrown away
        self._clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        transport.max_size = READ
        self.aside = self._crowd.enter(self)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        super().connection_lost(exc)
        self._over = True
        self._ahead.clear()
        self._crowd.leave(self)
        self._stop_clock()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived: parse it, keep it until its turn, or throw it away."""
        if self._over:
            self._drained += len(data)
            if self._drained > DRAIN:
                self.drop()
            return
        self._ahead += data
        self._advance()

    def on_message_begin(self) -> None:
        """Begin a request."""
        if not self._waiting:
            raise ValueError("a request begins inside another one")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin to answer; until the body has arrived, an answer is the last."""
        super().on_headers_complete()
        self._stop_clock()
        cycle, lengths = self.cycle, [value for name, value in self.headers if name == b"content-length"]
        self._body, self._whole = length_of(lengths[0].decode("latin-1")) or 0 if lengths else 0, False
        self._lasts, cycle.keep_alive = cycle.keep_alive and not self.aside, False
        way = SimpleNamespace(write=self.transport.write, close=self.leave, is_closing=self.transport.is_closing)
        cycle.transport = cast(asyncio.Transport, way)
        self.scope[CROWDED] = self.aside  # type: ignore[literal-required]

    def on_message_complete(self) -> None:
        """Note that a request has arrived."""
        super().on_message_complete()
        self._whole = True
        if not self.cycle.response_started:
            self.cycle.keep_alive = self._lasts

    def on_response_complete(self) -> None:
        """Wait for the next request, or begin it."""
        super().on_response_complete()
        if not self._over:
            self._wait_for_head()
            self._advance()

    def shutdown(self) -> None:
        """Say goodbye: now, or with the answer under way."""
        self._lasts = False
        if self._waiting:
            self.leave()
        else:
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        """Begin to wait for a client that does not take its answer."""
        super().pause_writing()
        if not self._over:
            self._run_clock(self._seconds, self.drop)
        self._crowd.wait(self)

    def resume_writing(self) -> None:
        """Go on with a client that takes its answer."""
        super().resume_writing()
        self._crowd.take(self)
        if not self._over:
            self._stop_clock()
            if self._waiting:
                self._wait_for_head()
            self._advance()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which nothing is asked."""
        self._ahead.clear()
        self.leave()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words
        """Refuse what is no HTTP."""
        self._refuse(400, "The request is not HTTP as this service reads it.")

    def drop(self) -> None:
        """Close at once; an answer that was not taken is lost."""
        self._over = True
        self.transport.abort()

    def leave(self) -> None:
        """Close once the answer is taken. What the client still sends is read until then: a reset would cost it the answer."""
        if self._over:
            return
        self._over = True
        self._run_clock(self._seconds if self.transport.get_write_buffer_size() else LINGER, self.drop)
        if self._whole and not self._ahead:
            self.transport.close()
            return
        self._ahead.clear()
        self.flow.resume_reading()
        with contextlib.suppress(OSError):
            self.transport.write_eof()

    @property
    def _waiting(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _advance(self) -> None:
        """Parse what has arrived, up to the end of one request; the rest waits, and no more is read."""
        while self._ahead and not self._over:
            if self._body:
                size = min(self._body, len(self._ahead))
                self._body -= size
            elif self._waiting and not self.flow.write_paused:
                size = self._head()
            else:
                break
            if not size:
                return
            piece = bytes(self._ahead[:size])
            del self._ahead[:size]
            super().data_received(piece)
        if self._over:
            return
        if self._waiting and not self.flow.write_paused:
            self.flow.resume_reading()
        elif self._ahead:
            self.flow.pause_reading()

    def _head(self) -> int:
        """Return the bytes of a request before its body; 0 where they have not all arrived, or are too many."""
        end = self._ahead.find(b"\r\n\r\n", max(0, self._searched - 3))
        size = end + 4 if end >= 0 else len(self._ahead)
        self._searched = 0 if end >= 0 else size
        if size > LONGEST_HEAD or self._ahead.count(b"\n", 0, size) > MOST_LINES:
            self._refuse(431, f"A request has at most {LONGEST_HEAD} bytes and {MOST_LINES} lines before its body.")
            return 0
        if end < 0:
            self.flow.resume_reading()
        return size if end >= 0 else 0

    def _refuse(self, status: int, text: str) -> None:
        """Answer what never becomes a request, and close."""
        if self._over:
            return
        answer = refused(Refusal(status, text, CLOSE))
        lines = b"".join(b"%b: %b\r\n" % pair for pair in (*answer.raw_headers, *HEADERS))
        self.transport.write(STATUS_LINE[status] + lines + b"\r\n" + bytes(answer.body))
        self._whole = False
        self.leave()

    def _unsupported_upgrade_warning(self) -> None:
        """Answer in HTTP, and then close: what follows may be another language."""
        self._lasts = self.cycle.keep_alive = False

    def _wait_for_head(self) -> None:
        self._run_clock(ASIDE_SECONDS if self.aside else self._seconds, self.timeout_keep_alive_handler)

    def _run_clock(self, seconds: float, action: Callable[[], None]) -> None:
        self._stop_clock()
        self._clock = self.loop.call_later(seconds, action)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
