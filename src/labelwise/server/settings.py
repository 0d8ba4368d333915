"""Settings of a service."""

import ipaddress
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from labelwise.support.errors import UsageError

MEGABYTE = 1_000_000
ADDRESSES = ("postgresql://", "postgres://")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def is_address(state: str) -> bool:
    """Return whether the store is PostgreSQL and not a folder."""
    return state.startswith(ADDRESSES)


@dataclass(frozen=True, kw_only=True)
class Service:
    """Settings of one service."""

    model: Path  # the folder of a saved classifier
    host: str = "127.0.0.1"  # the address to listen on
    port: int = 8000  # 0 chooses a free one
    token: str | None = None  # required in every request; None for no token
    state: str | None = None  # the store of changes: a folder or a PostgreSQL address; None is next to the model
    read_only: bool = False  # refuse teach, forget and undo
    gallery: Path | None = None  # images for ``retrieve``: a folder, a file of ``retrieve --index``, a gallery on disk
    examples: Path | None = None  # a folder of example images for the page
    workers: int = 1  # processes on one port
    device: str = "auto"  # auto, cpu or cuda
    batch: int = 16  # most images encoded together
    batch_delay: float = 1.0  # most milliseconds that an image waits for others that are being decoded
    queue: int = 256  # most requests in progress; more are answered with 503
    max_body: int = 16 * MEGABYTE  # most bytes of a request
    pixels: int = 25_000_000  # most pixels of an image, checked before decoding
    rate: float = 0.0  # average requests per second and address; 0 for no limit
    timeout: float = 20.0  # seconds in which a body must arrive
    connections: int = 1_000  # most open connections per worker; more are answered with 503
    allow_hosts: tuple[str, ...] = ()  # accepted host names in addition to those of this machine
    allow_origins: tuple[str, ...] = ()  # accepted web origins
    log: Literal["plain", "json"] = "plain"  # plain lines, or JSON lines

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("workers", "batch", "queue", "max_body", "pixels", "connections"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} must be at least 1; given {getattr(self, name)}.")
        if not 0 <= self.port < 65536:
            raise UsageError(f"--port must be between 0 and 65535; given {self.port}.")
        if self.batch_delay < 0 or self.rate < 0 or self.timeout <= 0:
            raise UsageError(
                f"--batch-delay and --rate must not be negative and --timeout must be above 0; given {self.batch_delay}, "
                f"{self.rate}, {self.timeout}."
            )
        if self.state is not None and ("://" in self.state) != is_address(self.state):
            raise UsageError(f"--state takes a folder, or an address such as {ADDRESSES[0]}user@host/database.")
        if self.token is not None and (not self.token.isascii() or not self.token.strip()):
            raise UsageError("A token consists of ASCII letters, digits and signs, and is not empty.")

    @property
    def shares(self) -> bool:
        """Whether other services may change the labels."""
        return self.read_only or (self.state is not None and is_address(self.state))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"

    @property
    def names(self) -> frozenset[str] | None:
        """The accepted host names; None for any."""
        if self.allow_hosts:
            return frozenset((*LOOPBACK_NAMES, *self.allow_hosts))
        return frozenset((*LOOPBACK_NAMES, self.host)) if self.loopback else None
