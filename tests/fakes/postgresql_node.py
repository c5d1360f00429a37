"""A server that begins as PostgreSQL does, and then answers what a test wants."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable

from fakes.listener import Listener

Send = Callable[[bytes], None]
Answer = Callable[[Send], None]
_SSL = 80877103
_SETTINGS = {
    "server_version": "15.0",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "in_hot_standby": "off",
    "default_transaction_read_only": "off",
}


def message(kind: bytes, body: bytes) -> bytes:
    """Return a message of the protocol."""
    return kind + struct.pack(">I", len(body) + 4) + body


READY = message(b"Z", b"I")


def rows(columns: int, *values: bytes, oid: int = 25) -> bytes:
    """Return the answer to a statement: each value is a row, in each of its columns."""
    fields = b"".join(b"c\0" + struct.pack(">IhIhih", 0, 0, oid, -1, -1, 0) for _ in range(columns))
    found = message(b"T", struct.pack(">h", columns) + fields)
    for value in values:
        found += message(b"D", struct.pack(">h", columns) + (struct.pack(">i", len(value)) + value) * columns)
    return found + message(b"C", b"SELECT 1\0") + READY


class PostgresqlNode:
    """Listens on a port of this machine. The two requests that begin a session are answered honestly."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = Listener(self._serve)
        self.port = self._listener.port

    def close(self) -> None:
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            self._begin(client)
            for _ in range(2):
                _request(client)
                client.sendall(rows(1, b"on"))
            while _request(client):
                self._answer(client.sendall)

    @staticmethod
    def _begin(client: socket.socket) -> None:
        (code,) = struct.unpack(">4xI", _exactly(client, 8))
        if code == _SSL:
            client.sendall(b"N")
            size, _ = struct.unpack(">II", _exactly(client, 8))
        else:
            raise OSError("libpq asks for TLS first")
        _exactly(client, size - 8)
        client.sendall(message(b"R", struct.pack(">I", 0)))
        for name, value in _SETTINGS.items():
            client.sendall(message(b"S", f"{name}\0{value}\0".encode()))
        client.sendall(READY)


def _request(client: socket.socket) -> bool:
    """Read up to a simple query or the end of an extended one; return whether there was one."""
    while head := client.recv(1, socket.MSG_WAITALL):
        (size,) = struct.unpack(">I", _exactly(client, 4))
        _exactly(client, size - 4)
        if head in {b"Q", b"S"}:
            return True
        if head == b"X":
            return False
    return False


def _exactly(client: socket.socket, size: int) -> bytes:
    data = client.recv(size, socket.MSG_WAITALL) if size else b""
    if len(data) < size:
        raise OSError("the client is gone")
    return data
