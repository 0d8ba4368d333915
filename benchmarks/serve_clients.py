"""Cheap clients for ``benchmarks/serve.py``: raw keep-alive connections that post one picture after another."""

import asyncio
import json
import sys
import time
from collections.abc import Sequence


class Client(asyncio.Protocol):
    """One connection that sends the next request when the answer to the last one is whole."""

    def __init__(self, requests: Sequence[bytes], times: list[float], faults: list[str]) -> None:
        self.requests, self.times, self.faults = requests, times, faults
        self.sent, self.began, self.buffer, self.stopped = 0, 0.0, b"", False
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.send()

    def send(self) -> None:
        """Send the next request."""
        self.began = time.perf_counter()
        self.transport.write(self.requests[self.sent % len(self.requests)])
        self.sent += 1

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer."""
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self.buffer = b""
        if head[9:12] == b"200":
            self.times.append(time.perf_counter() - self.began)
        else:
            self.faults.append(body.decode(errors="replace")[:200])
        if self.stopped:
            self.transport.close()
        else:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        if not self.stopped:
            self.faults.append(f"connection lost: {exc}")
        if not self.ended.done():
            self.ended.set_result(None)


async def load(port: int, clients: int, seconds: float, requests: Sequence[bytes]) -> dict[str, object]:
    """Return the seconds of each answered request and the faults of ``clients`` connections that ask for a while."""
    times: list[float] = []
    faults: list[str] = []
    loop = asyncio.get_running_loop()
    made = []
    for i in range(clients):
        client = Client([*requests[i % len(requests) :], *requests[: i % len(requests)]], times, faults)
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
        made.append(client)
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    for client in made:
        client.stopped = True
    await asyncio.wait([client.ended for client in made], timeout=30)
    return {"seconds": time.perf_counter() - began, "times": times, "faults": faults}


def request_of(path: str, body: bytes, kind: str) -> bytes:
    """Return one POST request as bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main() -> None:
    """Read what to do from standard input as JSON, and write what happened to standard output."""
    todo = json.load(sys.stdin)
    requests = [request_of(path, bytes.fromhex(body), kind) for path, body, kind in todo["requests"]]
    json.dump(asyncio.run(load(todo["port"], todo["clients"], todo["seconds"], requests)), sys.stdout)


if __name__ == "__main__":
    main()
