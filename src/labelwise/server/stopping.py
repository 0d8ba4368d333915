"""The end of a service, in an order that loses no answer: no new connections, all that there are accepted, all that is accepted answered.

A listening socket that is closed resets the connections that wait in its queue. So the kernel is first told to make no new ones: a filter
drops packets that ask for one (Linux; elsewhere the queue is reset). Connections under way get ``SETTLE`` to be accepted.
``asyncio`` forgets a connection that it accepted in the turn in which its server is closed; so it stops accepting one turn earlier.
"""

import asyncio
import ctypes
import socket
import struct
import sys
from contextlib import suppress

import uvicorn

MOMENT = 0.5  # seconds for which it goes on accepting connections, so that clients see that each answer closes theirs
SETTLE = 0.1  # seconds for connections that are being made
SILENT = 1.0  # seconds for which connections may yet send a request
ATTACH_FILTER = 26  # SO_ATTACH_FILTER of Linux
# Of a TCP header: drop where the flags (byte 13) have SYN and not ACK, pass all else. Each is code, two jumps, a number.
FILTER = b"".join(
    struct.pack("HBBI", *line)
    for line in ((0x30, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
)


def make_no_more_connections(listener: socket.socket) -> None:
    """Let the kernel make no new connections for a socket; those who ask wait until it is closed, and are then refused."""
    if sys.platform == "linux":
        code = ctypes.create_string_buffer(FILTER)
        with suppress(OSError):  # a sandbox may not allow it
            program = struct.pack("HP", len(FILTER) // 8, ctypes.addressof(code))
            listener.setsockopt(socket.SOL_SOCKET, ATTACH_FILTER, program)


async def finish(server: uvicorn.Server, listener: socket.socket, *, alone: bool) -> None:
    """Let a server accept what has a connection, then exit once all are answered; ``alone`` if no other process has the socket."""
    await asyncio.sleep(MOMENT)
    if alone:
        make_no_more_connections(listener)
    await asyncio.sleep(SETTLE)
    if not server.started:  # it was stopped while it began
        server.should_exit = True
        return
    loop = asyncio.get_running_loop()
    loop.remove_reader(listener)
    await asyncio.sleep(0)  # what was accepted becomes a connection of the server
    for one in server.servers:
        one.close()
    end = loop.time() + SILENT
    while server.server_state.connections and loop.time() < end:
        await asyncio.sleep(0.02)
    server.should_exit = True
