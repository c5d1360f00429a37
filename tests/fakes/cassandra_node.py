"""A Cassandra node that speaks just enough of the native protocol, version 5, and answers reads as the test sets."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from cassandra.segment import CRC32_INITIAL, compute_crc24

from fakes.listener import Listener

Send = Callable[[bytes], None]
Answer = Callable[[Send, int], None]
"""Sends the answer to a request on a stream, by a function that sends bytes as they are."""

READY, SUPPORTED, ERROR, RESULT = 2, 6, 0, 8
STARTUP, OPTIONS, REGISTER = 1, 5, 11
VARCHAR: Final = struct.pack(">H", 0x0D)
LOCAL: Final = {"cluster_name": "fake", "data_center": "dc1", "rack": "r1", "release_version": "5.0.0"}


def _text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


_ONE: Final = struct.pack(">H", 1)
OFFERED: Final = (
    struct.pack(">H", 2) + _text("CQL_VERSION") + _ONE + _text("3.4.7") + _text("COMPRESSION") + struct.pack(">H", 0)
)


class Node(Listener):
    """A node with one connection per client.

    `answer` is for reads of other tables than the node's own, in segments; `greeting` for the first request of all.
    """

    def __init__(self, answer: Answer | None = None, *, greeting: Answer | None = None) -> None:
        self._answer, self._greeting = answer, greeting
        self.opcodes: list[int] = []
        super().__init__(self._answer_requests)

    def _answer_requests(self, connection: socket.socket) -> None:
        with suppress(OSError, struct.error), connection, connection.makefile("rb") as received:
            segmented = False
            while True:
                if segmented:
                    received.read(6)
                _, _, stream, opcode, size = struct.unpack(">BBhBi", received.read(9))
                body = received.read(size)
                if segmented:
                    received.read(4)
                self.opcodes.append(opcode)
                if opcode == OPTIONS and self._greeting is not None:
                    self._greeting(connection.sendall, stream)
                    continue
                wrapped = partial(_send, connection, segmented=segmented)
                if opcode in {STARTUP, OPTIONS, REGISTER}:
                    kind, answered = (SUPPORTED, OFFERED) if opcode == OPTIONS else (READY, b"")
                    wrapped(frame(kind, stream, answered))
                    segmented = segmented or opcode == STARTUP
                elif b"system.local" in body:
                    wrapped(frame(RESULT, stream, rows(LOCAL)))
                elif b"system.peers" in body:
                    wrapped(frame(RESULT, stream, rows({"peer": None}, count=0)))
                elif self._answer is not None:
                    self._answer(connection.sendall, stream)


def _send(connection: socket.socket, data: bytes, *, segmented: bool) -> None:
    connection.sendall(b"".join(segments(data)) if segmented else data)


def frame(opcode: int, stream: int, body: bytes, *, size: int | None = None) -> bytes:
    """Return a frame that announces `size` bytes, by default those that it has."""
    return struct.pack(">BBhBi", 0x85, 0, stream, opcode, len(body) if size is None else size) + body


def segments(data: bytes, *, at_most: int = 100_000) -> Iterator[bytes]:
    """Yield the segments of version 5 that carry the bytes."""
    for start in range(0, max(1, len(data)), at_most):
        part = data[start : start + at_most]
        header = len(part) | (len(data) <= at_most) << 17
        crc = compute_crc24(header, 3).to_bytes(3, "little")
        yield header.to_bytes(3, "little") + crc + part + zlib.crc32(part, CRC32_INITIAL).to_bytes(4, "little")


def rows(values: dict[str, str] | dict[str, None], *, count: int = 1, kind: bytes = VARCHAR) -> bytes:
    """Return the body of a result whose columns are of one type."""
    columns = b"".join(_text(name) + kind for name in values)
    cells = b"".join(struct.pack(">i", len(value or "")) + (value or "").encode() for value in values.values())
    head = struct.pack(">iii", 2, 1, len(values)) + _text("k") + _text("t") + columns
    return head + struct.pack(">i", count) + cells * count
