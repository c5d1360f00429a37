"""A record of a file, and the line of JSON that has it.

A line is read as the bytes that it was written for: UTF-8 is a text or, where it is compact JSON, an object or a list;
all other bytes are in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

EPOCH: Final = datetime.fromtimestamp(0, UTC)
FIELDS: Final = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})
BASE64: Final = "base64"
"""The only field of an object that stands for bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """A record of a file. Without a topic or an offset, the file leaves them out; without a timestamp, it has none."""

    topic: str | None = None
    partition: int = 0
    offset: int | None = None
    timestamp: datetime | None = EPOCH
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers


def is_record(line: bytes) -> bool:
    """Return whether a line is a record, and not the value of one."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "value" in found and found.keys() <= FIELDS


def read_line(line: bytes) -> FileRecord:
    """Return the record of a line. Raises ValueError, TypeError, KeyError."""
    return record_of(json.loads(line))


def record_of(fields: Mapping[str, Any]) -> FileRecord:
    """Return the record that has these fields. Raises ValueError, TypeError, KeyError."""
    if unknown := fields.keys() - FIELDS:
        raise ValueError(f"it has the field {min(unknown)!r}")
    return FileRecord(
        topic=None if fields.get("topic") is None else str(fields["topic"]),
        partition=int(fields.get("partition") or 0),
        offset=None if fields.get("offset") is None else int(fields["offset"]),
        timestamp=_moment(fields["timestamp"]) if "timestamp" in fields else EPOCH,
        key=_bytes(fields.get("key")),
        value=_bytes(fields["value"]),
        headers=tuple((str(name), _bytes(value)) for name, value in _pairs(fields.get("headers") or ())),
    )


def line_of(record: FileRecord) -> str:
    """Return the line, without its end, that is read as the same record."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp is None else record.timestamp.isoformat().replace("+00:00", "Z"),
        "key": _json(record.key),
        "value": _json(record.value),
    }
    if record.headers:
        fields["headers"] = [[name, _json(value)] for name, value in record.headers]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _moment(value: object) -> datetime | None:
    """Return the moment of an ISO 8601 text, UTC where it names no zone, or of milliseconds since 1970."""
    if value is None:
        return None
    if isinstance(value, int | float):
        try:
            return EPOCH + timedelta(milliseconds=value)
        except OverflowError as error:
            raise ValueError(f"timestamp {value} is not of the years 1 to 9999") from error
    found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _bytes(value: object) -> bytes | None:
    """Return a text in UTF-8, the bytes of {"base64": "…"}, and any other JSON as its text."""
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case {"base64": str(text), **more} if not more:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ValueError(f"{text[:40]!r} is not base64") from error
        case _:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _json(content: bytes | None) -> object:
    """Return the JSON that `_bytes` reads as this content."""
    if content is None:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(content).decode()}
    try:
        found = json.loads(text, parse_constant=_refuse) if text[:1] in {"{", "["} else text
        return found if _bytes(found) == content else text
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _pairs(headers: Mapping[str, Any] | Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    """Return headers of an object, of [name, value] pairs, or of Spark's structs."""
    if isinstance(headers, Mapping):
        return headers.items()
    return [(each["key"], each["value"]) if isinstance(each, Mapping) else (each[0], each[1]) for each in headers]
