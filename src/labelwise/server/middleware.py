"""ASGI middleware in front of the routes: authorization, size and rate limits, and the headers of every answer."""

import asyncio
import hmac
import ipaddress
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import ParamSpec
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelwise.server.bodies import error_response, reply
from labelwise.server.errors import CLOSE, LATER, HTTPError
from labelwise.server.metrics import Metrics
from labelwise.server.settings import Service
from labelwise.support.errors import DataError, StoreError, UnsupportedError, UsageError, is_of_machine

P = ParamSpec("P")
LOG = logging.getLogger("labelwise.server")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "media-src 'self' blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
    (b"cache-control", b"no-cache"),
]
HOST = re.compile(r"(\[(?P<address>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)\]|(?P<name>[\w.-]+))(:(?P<port>\d{0,5}))?", re.ASCII)
ADDRESSES = 10_000  # most addresses with a remembered rate
OPEN = ("/", "/health", "/ready")  # routes without a token
STATE = ("/health", "/ready", "/metrics")  # answered even when the service is busy
MOST_DIGITS = 20  # of Content-Length
FOLDERS = ("/static/", "/gallery/", "/examples/")
DRAIN, LINGER = (
    32_000_000,
    5.0,
)  # limits for reading and dropping a refused body, so that the client receives the answer


class Buckets:
    """Token buckets, one per address: ``rate`` per second, with bursts of twice as many."""

    def __init__(self, rate: float) -> None:
        self.rate, self.most = rate, max(1.0, 2 * rate)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        level, then = self._levels.pop(address, (self.most, now))
        level = min(self.most, level + (now - then) * self.rate)
        wait = 0.0 if level >= 1 else (1 - level) / self.rate
        self._levels[address] = (level if wait else level - 1, now)
        if len(self._levels) > ADDRESSES:
            self._levels.popitem(last=False)
        return wait


class Body:
    """The body of one request, read within a time limit; the rest is dropped before the answer."""

    def __init__(self, receive: Receive, length: int, seconds: float) -> None:
        self._receive, self._seconds = receive, seconds
        self._end = asyncio.get_running_loop().time() + seconds
        self.complete = length == 0

    async def receive(self) -> Message:
        """Return the next message, or raise an error if it is late."""
        if self.complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._end):
                message = await self._receive()
        except TimeoutError:
            raise HTTPError(408, f"The body did not arrive within {self._seconds:g} s.", CLOSE) from None
        self.complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def drop(self) -> None:
        """Read and drop the rest of the body: a client that still sends would miss the answer if the connection closed."""
        left = DRAIN
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while not self.complete and left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self.complete = message["type"] == "http.disconnect" or not message.get("more_body", False)


class Guard:
    """An ASGI application that wraps another one."""

    def __init__(self, app: ASGIApp, service: Service, metrics: Metrics, routes: frozenset[str]) -> None:
        self.app, self.service, self.metrics, self.routes = app, service, metrics, routes
        metrics.expect((*routes, *(f"{folder}*" for folder in FOLDERS), "other"))
        self._buckets = (Buckets(service.rate), Buckets(service.rate)) if service.rate else None
        self._token = None if service.token is None else f"Bearer {service.token}".encode()
        self._names = service.names
        self._most_bytes = max(16 * service.max_body, 256_000_000)
        self._inside, self._bytes = 0, 0  # requests in progress, and the bytes of their bodies
        self.stopping = False  # close each connection with its next answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, headers = time.perf_counter(), 0, Headers(scope=scope)
        allowed, counted = self._allowed_origin(headers), -1
        unread = "content-length" in headers or "transfer-encoding" in headers
        body = Body(receive, int(unread), self.service.timeout)

        def release() -> None:
            """Release a request when its answer is ready, even if the client reads it slowly."""
            nonlocal counted
            if counted >= 0:
                self._inside, self._bytes, counted = self._inside - 1, self._bytes - counted, -1

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                release()
                await body.drop()
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in HEADERS if one[0] not in own), *allowed]
                if (self.stopping or not body.complete) and b"connection" not in own:
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            self._check(scope, headers)
            counted = self._length(scope, headers)
            self._inside, self._bytes = self._inside + 1, self._bytes + counted
            preflight = scope["method"] == "OPTIONS" and allowed
            await (Response(status_code=204) if preflight else self.app)(scope, body.receive, sent)
        except (Exception, asyncio.CancelledError) as error:
            if status:  # the answer has begun: it is broken off
                raise
            await response_to(error)(scope, receive, sent)
        finally:
            release()
            self._record(scope, status, time.perf_counter() - began)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Refuse unauthorized requests before reading the body."""
        service, path, method = self.service, scope["path"], scope["method"]
        state = path in STATE
        host = headers.get("host", "")
        if self._names is not None and _name(host) not in self._names:
            name = _name(host) or "NAME"
            raise HTTPError(
                403, f'Host "{host}" is not allowed. Use 127.0.0.1, or start the service with --allow-host {name}.'
            )
        if method not in ("GET", "HEAD", "OPTIONS"):
            self._check_origin(headers)
        wait = self._buckets[state].take(rate_limit_key(_client(scope)), time.monotonic()) if self._buckets else 0
        if wait:
            text = f"Too many requests: the limit is {service.rate:g} per second."
            raise HTTPError(429, text, {"Retry-After": str(int(wait) + 1)})
        free = path in OPEN or path.startswith("/static/") or method == "OPTIONS"
        if self._token is not None and not free:
            token = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(token, self._token):
                text = f"The token is {'wrong' if token else 'missing'}. Send the header Authorization: Bearer TOKEN."
                raise HTTPError(401, text, {"WWW-Authenticate": "Bearer"})
        if self._inside >= service.queue and not state:
            raise HTTPError(503, f"The service is busy with {service.queue} requests. Try again in a moment.", LATER)

    def _check_origin(self, headers: Headers) -> None:
        """Refuse requests that a browser sends for another web page."""
        origin = headers.get("origin")
        if origin is not None and origin in self.service.allow_origins:
            return
        foreign = origin is not None and _place(origin) != headers.get("host")
        if foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise HTTPError(403, f'Requests from other web pages are refused (origin "{origin}"). See --allow-origin.')

    def _allowed_origin(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return the CORS headers for an allowed web page."""
        origin = headers.get("origin")
        if origin is None or origin not in self.service.allow_origins:
            return []
        return [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-methods", b"GET, POST"),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"vary", b"Origin"),
        ]

    def _length(self, scope: Scope, headers: Headers) -> int:
        """Return the Content-Length of a request, or refuse it before reading the body."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return 0
        announced = headers.get("content-length")
        if announced is None:
            if "transfer-encoding" not in headers:
                return 0
            raise HTTPError(411, "Send Content-Length; chunked bodies are refused.")
        if not (announced.isascii() and announced.isdigit() and len(announced) <= MOST_DIGITS):
            raise HTTPError(400, "Content-Length is not a number.", CLOSE)
        length, most = int(announced), self.service.max_body
        if length > most:
            raise HTTPError(413, f"The body has {length} bytes; the limit is {most}. Send a smaller one.", CLOSE)
        if self._bytes + length > self._most_bytes:
            raise HTTPError(503, "The service is busy with large requests. Try again in a moment.", LATER)
        return length

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method, path = scope["method"], scope["path"]
        folder = f"/{path.split('/')[1]}/*" if path.startswith(FOLDERS) else "other"
        self.metrics.request(path if path in self.routes else folder, status, seconds)
        path = path if path.isprintable() else ascii(path)  # keep one log entry on one line
        about = {"method": method, "path": path, "status": status}
        about |= {"ms": round(seconds * 1000, 2), "client": _client(scope)}
        LOG.info("%s %s %s %.1f ms", method, path, status, seconds * 1000, extra={"about": about})


def answered(handle: Callable[P, Awaitable[Response]], *, own: bool = False) -> Callable[P, Awaitable[Response]]:
    """Return a handler whose errors are answers; Starlette would answer them without a word.

    Args:
        handle: the handler.
        own: whether the person who asks owns the store, and may know what is wrong with it.
    """

    @wraps(handle)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> Response:
        try:
            return await handle(*args, **kwargs)
        except Exception as error:
            if own and isinstance(error, StoreError):
                error = HTTPError(503, str(error), LATER)
            return response_to(error)

    return answer


def response_to(error: BaseException) -> Response:
    """Return the answer for an error."""
    if isinstance(error, HTTPError):
        return error_response(error)
    if isinstance(error, DataError | UsageError | UnsupportedError):  # the request is wrong
        return reply({"error": str(error)}, 422 if isinstance(error, UnsupportedError) else 400)
    if isinstance(error, ClientDisconnect):
        return error_response(HTTPError(400, "The body ended early.", CLOSE))
    fault = secrets.token_hex(4)
    if isinstance(error, StoreError) or is_of_machine(error):
        LOG.error("fault %s", fault, exc_info=error, extra={"about": {"fault": fault}})
        text = f"A disk or the memory of the service failed; see {fault} in the log. Try again in a moment."
        return error_response(HTTPError(503, text, LATER))
    if isinstance(error, asyncio.CancelledError):  # the grace period of a stop is over
        text = "The service stopped before it could answer. Try again in a moment; check /labels before you repeat a change."
        return error_response(HTTPError(503, text, LATER | CLOSE))
    LOG.error("fault %s", fault, exc_info=error, extra={"about": {"fault": fault}})
    return reply({"error": f"Internal error; see {fault} in the log."}, 500)


def _place(origin: str) -> str | None:
    """Return host and port of a web origin, or None for an invalid one."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _client(scope: Scope) -> str:
    address: str = (scope.get("client") or ("",))[0]
    return address


def rate_limit_key(address: str) -> str:
    """Return the key of a rate limit: the address, or the /64 network of an IPv6 address."""
    if ":" in address and "." not in address:
        with suppress(ValueError):
            return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    return address


def _name(host: str) -> str:
    """Return a host without its port, or an empty string for an invalid one."""
    match = HOST.fullmatch(host)
    return (match["address"] or match["name"]).lower() if match and int(match["port"] or 0) < 65536 else ""
