"""What stands before the routes: who may ask, how much, how often; and what every answer carries."""

import hmac
import json
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from labelwise.server.measures import Measures
from labelwise.server.refusals import Refusal
from labelwise.server.settings import Service

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
ADDRESSES = 10_000  # whose rates are remembered
OPEN = ("/", "/health")


class Buckets:
    """Token buckets, one for each address: ``rate`` a second, and twice as many at once."""

    def __init__(self, rate: float) -> None:
        self.rate, self.most = rate, max(1.0, 2 * rate)
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, now: float) -> float:
        """Return 0 and take one where the bucket has it; else the seconds until it does."""
        level, then = self._levels.pop(address, (self.most, now))
        level = min(self.most, level + (now - then) * self.rate)
        wait = 0.0 if level >= 1 else (1 - level) / self.rate
        self._levels[address] = (level if wait else level - 1, now)
        if len(self._levels) > ADDRESSES:
            self._levels.popitem(last=False)
        return wait


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, service: Service, measures: Measures, routes: frozenset[str]) -> None:
        self.app, self.service, self.measures, self.routes = app, service, measures, routes
        self._buckets = Buckets(service.rate) if service.rate else None
        self._token = None if service.token is None else f"Bearer {service.token}".encode()
        self._names = service.names
        self._inside, self._bytes = 0, 0
        self._most_bytes = max(16 * service.body, 256_000_000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, headers = time.perf_counter(), 0, _headers(scope)
        allowed = self._allowed_origin(headers)

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in HEADERS if one[0] not in own), *allowed]
            await send(message)

        length = 0
        try:
            self._check(scope, headers)
            length = self._length(scope, headers)
            self._inside, self._bytes = self._inside + 1, self._bytes + length
            try:
                if scope["method"] == "OPTIONS" and allowed:
                    await answer(sent, 204, b"")
                else:
                    await self.app(scope, receive, sent)
            finally:
                self._inside, self._bytes = self._inside - 1, self._bytes - length
        except Refusal as refusal:
            await answer(sent, refusal.status, _document(refusal.text), refusal.headers)
        except Exception:
            number = secrets.token_hex(4)
            LOG.exception("fault %s", number, extra={"fault": number})
            if status:  # the answer has begun; what is left is to break it off
                raise
            await answer(sent, 500, _document(f"The service met a fault of its own; it is logged as {number}."))
        finally:
            self._note(scope, status, time.perf_counter() - began)

    def _check(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Refuse a request that must not come through."""
        service, path = self.service, scope["path"]
        host = _name(headers.get("host", ""))
        if self._names is not None and host not in self._names:
            raise Refusal(
                403, f'This service is not called "{host}". Use 127.0.0.1, or start it with --allow-host {host}.'
            )
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            self._check_origin(headers)
        if self._buckets is not None and (
            wait := self._buckets.take((scope.get("client") or ("",))[0], time.monotonic())
        ):
            raise Refusal(
                429, f"Too many requests: {service.rate:g} a second are allowed.", {"Retry-After": str(int(wait) + 1)}
            )
        free = path in OPEN or path.startswith("/static/") or scope["method"] == "OPTIONS"
        if self._token is not None and not free:
            given = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, self._token):
                what = "wrong" if given else "missing"
                raise Refusal(
                    401,
                    f"The token is {what}. Send the header Authorization: Bearer TOKEN.",
                    {"WWW-Authenticate": "Bearer"},
                )
        if self._inside >= service.queue:
            raise Refusal(503, f"{service.queue} requests are in work. Ask again in a moment.", {"Retry-After": "1"})

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse what another web page makes a browser send."""
        origin = headers.get("origin")
        if origin is not None and origin in self.service.allow_origins:
            return
        foreign = origin is not None and urlsplit(origin).netloc != headers.get("host")
        if foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refusal(403, f'Requests from other web pages are refused (origin "{origin}"). See --allow-origin.')

    def _allowed_origin(self, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
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

    def _length(self, scope: Scope, headers: Mapping[str, str]) -> int:
        """Return the announced length of the body, or refuse it before a byte is read."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return 0
        given = headers.get("content-length")
        if given is None:
            if "transfer-encoding" not in headers:
                return 0
            raise Refusal(411, "Send the length of the body (Content-Length); bodies in chunks are not taken.", _CLOSE)
        if not (given.isascii() and given.isdigit()):
            raise Refusal(400, "Content-Length is no number.", _CLOSE)
        length = int(given)
        if length > self.service.body:
            raise Refusal(
                413, f"The body has {length} bytes; the limit is {self.service.body}. Make it smaller.", _CLOSE
            )
        if self._bytes + length > self._most_bytes:
            raise Refusal(503, "Too many large requests are in work. Ask again in a moment.", {"Retry-After": "1"})
        return length

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"]
        kept = path if path in self.routes else f"/{path.split('/')[1]}/*" if path.startswith(_FOLDERS) else "other"
        self.measures.request(kept, status, seconds)
        if LOG.isEnabledFor(logging.INFO):
            path = path if path.isprintable() else ascii(path)  # a line of the log stays one line
            client = (scope.get("client") or ("",))[0]
            about = {
                "method": scope["method"],
                "path": path,
                "status": status,
                "ms": round(seconds * 1000, 2),
                "client": client,
            }
            LOG.info("%s %s %s %.1f ms", scope["method"], path, status, seconds * 1000, extra={"about": about})


_CLOSE = {"Connection": "close"}
_FOLDERS = ("/static/", "/gallery/", "/examples/")


async def answer(send: Send, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
    """Send one JSON answer."""
    rows = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    rows.append((b"content-length", str(len(body)).encode()))
    if body:
        rows.append((b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": status, "headers": rows})
    await send({"type": "http.response.body", "body": body})


def _document(text: str) -> bytes:
    return json.dumps({"error": text}, ensure_ascii=False).encode(errors="replace")


def _headers(scope: Mapping[str, Any]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _name(host: str) -> str:
    """Return a host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
