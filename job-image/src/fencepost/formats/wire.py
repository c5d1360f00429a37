"""Confluent's wire format: a zero, four bytes of the schema's id, the payload.

A payload of Protobuf begins with the place of its message in the file: the count and then the index at each depth, as
zigzag varints; a single zero stands for the first message.
"""

from __future__ import annotations

from typing import Final

HEADER: Final = 5
"""Bytes before the payload."""
_DEEPEST: Final = 100
"""Messages within messages."""
_LONGEST: Final = 35
"""Bits of a varint that is an index."""


def schema_id(record: bytes) -> int:
    """Return the id of the schema that wrote a record. Raises ValueError for another format."""
    if len(record) < HEADER:
        raise ValueError(f"it has {len(record)} bytes, and the header of the wire format has {HEADER}")
    if record[0] != 0:
        raise ValueError(f"it begins with the byte 0x{record[0]:02x}, and not with the 0x00 of the wire format")
    return int.from_bytes(record[1:HEADER])


def message_place(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of a Protobuf message in its file, and where it begins in the payload. Raises ValueError."""
    if payload[:1] == b"\0":
        return (0,), 1
    count, at = _varint(payload, 0)
    if not 0 < count <= _DEEPEST:
        raise ValueError(f"it has a message at depth {count}")
    place = []
    for _ in range(count):
        index, at = _varint(payload, at)
        if index < 0:
            raise ValueError(f"it has a message at index {index}")
        place.append(index)
    return tuple(place), at


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint, and where it ends."""
    found = 0
    for shift in range(0, _LONGEST, 7):
        if at >= len(payload):
            raise ValueError("it ends within the place of its message")
        byte = payload[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("the place of its message is not a number")
