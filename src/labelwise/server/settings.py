"""What a service is started with."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from labelwise.errors import UsageError

MEGABYTE = 1_000_000
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Service:
    """Settings of one service.

    Attributes:
        model: the folder of a saved classifier.
        host: the address to listen on.
        port: 0 takes a free one.
        token: what requests must carry; None asks for none.
        read_only: refuse teach, forget and undo.
        gallery: a folder of pictures for ``retrieve``.
        examples: a folder of pictures that the page offers to try.
        workers: processes on the one port.
        device: auto, cpu or cuda.
        batch: pictures encoded together at most.
        wait: milliseconds that a picture waits at most for others that are being decoded.
        queue: requests in work at most; others are told to come back.
        connections: open connections of a worker at most.
        body: bytes of a request at most.
        pixels: of a picture at most; checked before it is decoded.
        rate: requests a second of one address, over a while; 0 is no limit.
        timeout: seconds within which a request must have arrived.
        allow_hosts: names by which the service may be called, beside those of this machine when it listens there alone.
        allow_origins: web pages of other origins that may use it.
        log: plain lines, or JSON lines.
    """

    model: Path
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    read_only: bool = False
    gallery: Path | None = None
    examples: Path | None = None
    workers: int = 1
    device: str = "auto"
    batch: int = 16
    wait: float = 1.0
    queue: int = 256
    connections: int = 1_000
    body: int = 16 * MEGABYTE
    pixels: int = 25_000_000
    rate: float = 0.0
    timeout: float = 20.0
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    log: Literal["plain", "json"] = "plain"

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("workers", "batch", "queue", "connections", "body", "pixels"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} must be at least 1; given {getattr(self, name)}.")
        if not 0 <= self.port < 65536:
            raise UsageError(f"--port lies from 0 to 65535; given {self.port}.")
        if self.wait < 0 or self.rate < 0 or self.timeout <= 0:
            raise UsageError(
                f"--wait and --rate must not be negative and --timeout must be above 0; given {self.wait}, {self.rate}, "
                f"{self.timeout}."
            )
        if self.token is not None and (not self.token.isascii() or not self.token.strip()):
            raise UsageError("A token is made of letters, digits and signs of ASCII, and is not empty.")

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def names(self) -> frozenset[str] | None:
        """By which host names it may be called; None is any."""
        if self.allow_hosts:
            return frozenset((*LOOPBACK_NAMES, *self.allow_hosts))
        return frozenset((*LOOPBACK_NAMES, self.host)) if self.loopback else None
