"""ASGI middleware before the routes: who may ask, how much, how often; and the headers of every answer."""

import asyncio
import hmac
import ipaddress
import logging
import re
import secrets
import time
from collections import OrderedDict
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelwise.server.bodies import error_response, reply
from labelwise.server.errors import CLOSE, LATER, HTTPError
from labelwise.server.metrics import Metrics
from labelwise.server.settings import Service
from labelwise.support.errors import DataError, UnsupportedError, UsageError

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
ADDRESSES = 10_000  # whose rates are remembered
OPEN = ("/", "/health", "/ready")  # these ask for no token
STATE = ("/health", "/ready", "/metrics")  # answered however busy the service is
MOST_DIGITS = 20  # of a length
FOLDERS = ("/static/", "/gallery/", "/examples/")
DRAIN, LINGER = 32_000_000, 5.0  # bytes and seconds of a body that is read and dropped, so that an early answer arrives


class Buckets:
    """Token buckets, one for each address: ``rate`` a second, and twice as many at once."""

    def __init__(self, rate: float) -> None:
        self.rate, self.most = rate, max(1.0, 2 * rate)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, now: float) -> float:
        """Take one and return 0 where the bucket has it; else return the seconds until it does."""
        level, then = self._levels.pop(address, (self.most, now))
        level = min(self.most, level + (now - then) * self.rate)
        wait = 0.0 if level >= 1 else (1 - level) / self.rate
        self._levels[address] = (level if wait else level - 1, now)
        if len(self._levels) > ADDRESSES:
            self._levels.popitem(last=False)
        return wait


class Body:
    """The body of one request, read within a limit of time; what is left of it is dropped before the answer."""

    def __init__(self, receive: Receive, length: int, seconds: float) -> None:
        self._receive, self._seconds = receive, seconds
        self._end = asyncio.get_running_loop().time() + seconds
        self.complete = length == 0

    async def receive(self) -> Message:
        """Return the next message, or raise an error where it is late."""
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
        """Read what the client still sends: it reads the answer only afterwards, and closing early would cost it the answer."""
        left = DRAIN
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while not self.complete and left > 0:
                    message = await self._receive()
                    left -= len(message.get("body", b""))
                    self.complete = message["type"] == "http.disconnect" or not message.get("more_body", False)


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, service: Service, metrics: Metrics, routes: frozenset[str]) -> None:
        self.app, self.service, self.metrics, self.routes = app, service, metrics, routes
        metrics.expect((*routes, *(f"{folder}*" for folder in FOLDERS), "other"))
        self._buckets = (Buckets(service.rate), Buckets(service.rate)) if service.rate else None
        self._token = None if service.token is None else f"Bearer {service.token}".encode()
        self._names = service.names
        self._most_bytes = max(16 * service.max_body, 256_000_000)
        self._inside, self._bytes = 0, 0  # requests in work, and the bytes of their bodies
        self.stopping = False  # each connection is closed with the next answer

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
            """Count a request no longer as work: it is answered, though its client may be slow to read the answer."""
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
        """Refuse who may not ask, before a byte of the body is read."""
        service, path, method = self.service, scope["path"], scope["method"]
        state = path in STATE
        host = headers.get("host", "")
        if self._names is not None and _name(host) not in self._names:
            name = _name(host) or "NAME"
            raise HTTPError(
                403, f'This service is not called "{host}". Use 127.0.0.1, or start it with --allow-host {name}.'
            )
        if method not in ("GET", "HEAD", "OPTIONS"):
            self._check_origin(headers)
        wait = self._buckets[state].take(rate_limit_key(_client(scope)), time.monotonic()) if self._buckets else 0
        if wait:
            text = f"Too many requests: {service.rate:g} a second are allowed."
            raise HTTPError(429, text, {"Retry-After": str(int(wait) + 1)})
        free = path in OPEN or path.startswith("/static/") or method == "OPTIONS"
        if self._token is not None and not free:
            token = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(token, self._token):
                text = f"The token is {'wrong' if token else 'missing'}. Send the header Authorization: Bearer TOKEN."
                raise HTTPError(401, text, {"WWW-Authenticate": "Bearer"})
        if self._inside >= service.queue and not state:
            raise HTTPError(503, f"{service.queue} requests are in work. Ask again in a moment.", LATER)

    def _check_origin(self, headers: Headers) -> None:
        """Refuse what another web page makes a browser send."""
        origin = headers.get("origin")
        if origin is not None and origin in self.service.allow_origins:
            return
        foreign = origin is not None and _place(origin) != headers.get("host")
        if foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise HTTPError(403, f'Requests from other web pages are refused (origin "{origin}"). See --allow-origin.')

    def _allowed_origin(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """Return the headers that let a chosen web page use the service."""
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
        """Return the announced length of the body, or refuse it before a byte is read."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return 0
        announced = headers.get("content-length")
        if announced is None:
            if "transfer-encoding" not in headers:
                return 0
            raise HTTPError(411, "Send the length of the body (Content-Length); chunked bodies are refused.")
        if not (announced.isascii() and announced.isdigit() and len(announced) <= MOST_DIGITS):
            raise HTTPError(400, "Content-Length is no number.", CLOSE)
        length, most = int(announced), self.service.max_body
        if length > most:
            raise HTTPError(413, f"The body has {length} bytes; the limit is {most}. Make it smaller.", CLOSE)
        if self._bytes + length > self._most_bytes:
            raise HTTPError(503, "Too many large requests are in work. Ask again in a moment.", LATER)
        return length

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method, path = scope["method"], scope["path"]
        folder = f"/{path.split('/')[1]}/*" if path.startswith(FOLDERS) else "other"
        self.metrics.request(path if path in self.routes else folder, status, seconds)
        path = path if path.isprintable() else ascii(path)  # a line of the log stays one line
        about = {"method": method, "path": path, "status": status}
        about |= {"ms": round(seconds * 1000, 2), "client": _client(scope)}
        LOG.info("%s %s %s %.1f ms", method, path, status, seconds * 1000, extra={"about": about})


def response_to(error: BaseException) -> Response:
    """Return what a client is told of an error."""
    if isinstance(error, HTTPError):
        return error_response(error)
    if isinstance(error, DataError | UsageError | UnsupportedError):  # a task says what is wrong with the question
        return reply({"error": str(error)}, 422 if isinstance(error, UnsupportedError) else 400)
    if isinstance(error, ClientDisconnect):
        return error_response(HTTPError(400, "The body ends early.", CLOSE))
    if isinstance(error, asyncio.CancelledError):  # the service stops and has waited long enough
        text = "The service stopped before it could answer. Ask again in a moment; a change may be there all the same."
        return error_response(HTTPError(503, text, LATER | CLOSE))
    fault = secrets.token_hex(4)
    LOG.error("fault %s", fault, exc_info=error, extra={"about": {"fault": fault}})
    return reply({"error": f"The service met a fault of its own; it is logged as {fault}."}, 500)


def _place(origin: str) -> str | None:
    """Return the host and port of a web page; None where its address cannot be read."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _client(scope: Scope) -> str:
    address: str = (scope.get("client") or ("",))[0]
    return address


def rate_limit_key(address: str) -> str:
    """Return what a rate is counted for: an address, or of IPv6 the /64 network that one customer has."""
    if ":" in address and "." not in address:
        with suppress(ValueError):
            return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    return address


def _name(host: str) -> str:
    """Return a host without its port; nothing where it is not written as one."""
    match = HOST.fullmatch(host)
    return (match["address"] or match["name"]).lower() if match and int(match["port"] or 0) < 65536 else ""
