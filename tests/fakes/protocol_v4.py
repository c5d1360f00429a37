"""A Cassandra that refuses protocol v5, as ScyllaDB does: a listener in front of a real node passes v4 on."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fakes.listener import Listener
from fakes.relay import pass_on

NEWEST: Final = 4
_HEADER: Final = struct.Struct(">BBhBi")
_ERROR: Final = 0
_PROTOCOL_ERROR: Final = 0x000A


@contextmanager
def v4_in_front_of(host: str, port: int) -> Iterator[int]:
    """Listen on a free port of 127.0.0.1 and relay to a node whoever begins with v4; yield the port."""

    def serve(client: socket.socket) -> None:
        first = client.recv(_HEADER.size, socket.MSG_PEEK | socket.MSG_WAITALL)
        if len(first) == _HEADER.size and (first[0] & 0x7F) > NEWEST:
            with contextlib.suppress(OSError), client:
                client.sendall(_refusal(first))
        else:
            pass_on(client, (host, port))

    with contextlib.closing(Listener(serve)) as listener:
        yield listener.port


def _refusal(request: bytes) -> bytes:
    """Return the error of ScyllaDB's transport/server.cc for a request of another version."""
    version, _, stream, _, _ = _HEADER.unpack(request)
    text = f"Invalid or unsupported protocol version: {version}".encode()
    body = struct.pack(">iH", _PROTOCOL_ERROR, len(text)) + text
    return _HEADER.pack(0x80 | NEWEST, 0, stream, _ERROR, len(body)) + body
