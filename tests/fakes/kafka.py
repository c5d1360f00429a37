"""A Kafka broker that speaks just enough of the protocol for librdkafka, and names as many brokers as the test sets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from fakes.listener import Listener

TOPIC: Final = b"t"
API_VERSIONS, METADATA, LIST_OFFSETS, DESCRIBE_CONFIGS = 18, 3, 2, 32
VERSIONS: Final = {API_VERSIONS: (0, 3), METADATA: (12, 12), LIST_OFFSETS: (6, 6), DESCRIBE_CONFIGS: (1, 1)}
ELSEWHERE: Final = 10
"""The first id of the brokers that are named and not there."""


class Broker(Listener):
    """A broker whose topic 't' has one partition that ends at offset 7: it answers `offset` to all questions for one.

    `brokers` of an answer are this one and others that do not exist.  `padding` are further bytes of each answer.
    `settings` are the topic's configuration.
    """

    def __init__(self, brokers: int = 1, *, padding: int = 1) -> None:
        self.brokers, self.padding = brokers, padding
        self.offset = 7
        self.settings: dict[str, str] = {}
        self.requests: list[int] = []
        self.connections: list[socket.socket] = []
        super().__init__(self._answer_requests)

    def close(self) -> None:
        """End the listener and all connections."""
        super().close()
        for connection in self.connections:
            connection.close()

    def _answer_requests(self, connection: socket.socket) -> None:
        self.connections.append(connection)
        with suppress(OSError, struct.error), connection.makefile("rb") as requests:
            while True:
                (size,) = struct.unpack(">i", requests.read(4))
                request = requests.read(size)
                key, version, correlation = struct.unpack(">hhi", request[:8])
                self.requests.append(key)
                body = struct.pack(">i", correlation) + self._answer(key, version, request)
                connection.sendall(struct.pack(">i", len(body)) + body)

    def _answer(self, key: int, version: int, request: bytes) -> bytes:
        match key:
            case 18:
                return _versions() if version == VERSIONS[API_VERSIONS][1] else struct.pack(">hi", 35, 0)
            case 3:
                return self._metadata(TOPIC + b"\0" in request[30:])
            case 32:
                return _configuration(self.settings)
            case _:
                return _offsets(self.offset)

    def _metadata(self, with_topic: bool) -> bytes:
        nodes = [(1, self.port), *((ELSEWHERE + number, 1) for number in range(self.brokers - 1))]
        brokers = [
            struct.pack(">i", node) + _text(b"127.0.0.1") + struct.pack(">i", at) + b"\0\0" for node, at in nodes
        ]
        ids = _array([struct.pack(">i", 1)])
        partition = struct.pack(">hiii", 0, 0, 1, 0) + ids + ids + _array([]) + b"\0"
        topic = struct.pack(">h", 0) + _text(TOPIC) + b"\1" * 16 + b"\0" + _array([partition]) + _NO_RIGHTS + b"\0"
        topics = _array([topic] if with_topic else [])
        return b"\0" + bytes(4) + _array(brokers) + _text(b"c" * self.padding) + struct.pack(">i", 1) + topics + b"\0"


_NO_RIGHTS: Final = struct.pack(">i", -(2**31))


def _versions() -> bytes:
    keys = [struct.pack(">hhh", key, *versions) + b"\0" for key, versions in VERSIONS.items()]
    return struct.pack(">h", 0) + _array(keys) + bytes(4) + b"\0"


def _configuration(settings: Mapping[str, str]) -> bytes:
    entries = [_plain(name) + _plain(value) + bytes(3) + struct.pack(">i", 0) for name, value in settings.items()]
    topic = struct.pack(">hhb", 0, -1, 2) + _plain(TOPIC.decode())
    return struct.pack(">ii", 0, 1) + topic + struct.pack(">i", len(entries)) + b"".join(entries)


def _plain(text: str) -> bytes:
    """Return a string of the protocol's older messages."""
    return struct.pack(">h", len(text.encode())) + text.encode()


def _offsets(offset: int) -> bytes:
    partition = struct.pack(">ihqqi", 0, 0, -1, offset, 0) + b"\0"
    return b"\0" + bytes(4) + _array([_text(TOPIC) + _array([partition]) + b"\0"]) + b"\0"


def _number(value: int) -> bytes:
    """Return Kafka's unsigned varint."""
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def _text(value: bytes) -> bytes:
    return _number(len(value) + 1) + value


def _array(items: list[bytes]) -> bytes:
    return _number(len(items) + 1) + b"".join(items)
