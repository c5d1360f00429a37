"""Files of records: JSON lines that are records or plain values, and Parquet.

A line is a record where the first line of its file is an object with the field `value` and none but those of FIELDS.
Otherwise each line is the value of a record, as it stands.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

EPOCH: Final = datetime.fromtimestamp(0, UTC)
FIELDS: Final = frozenset({"topic", "partition", "offset", "timestamp", "key", "value", "headers"})
PARQUET: Final = ".parquet"
BASE64: Final = "base64"
"""The only field of an object that stands for bytes."""


class RecordsInvalid(Exception):
    """A file has something else than records. The message names the file and the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """A record of a file; what it leaves out is None."""

    topic: str | None = None
    partition: int = 0
    offset: int | None = None
    timestamp: datetime = EPOCH
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_file(path: Path) -> Iterator[FileRecord]:
    """Yield the records of a file in their order. Raises RecordsInvalid, OSError."""
    yield from _of_parquet(path) if path.suffix == PARQUET else _of_lines(path)


def _of_lines(path: Path) -> Iterator[FileRecord]:
    are_records: bool | None = None
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            text = line.rstrip(b"\r\n")
            if not text:
                continue
            if are_records is None:
                are_records = _is_record(text)
            if not are_records:
                yield FileRecord(value=text)
                continue
            try:
                yield _record(json.loads(text))
            except (ValueError, TypeError, KeyError) as error:
                raise RecordsInvalid(f"{path}, line {number}: not a record: {error}") from error


def _is_record(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and "value" in found and found.keys() <= FIELDS


def _record(fields: Mapping[str, Any]) -> FileRecord:
    """Return a record. Raises ValueError, TypeError, KeyError."""
    if unknown := fields.keys() - FIELDS:
        raise ValueError(f"it has the field {min(unknown)!r}")
    return FileRecord(
        topic=None if fields.get("topic") is None else str(fields["topic"]),
        partition=int(fields.get("partition") or 0),
        offset=None if fields.get("offset") is None else int(fields["offset"]),
        timestamp=_moment(fields.get("timestamp")),
        key=_bytes(fields.get("key")),
        value=_bytes(fields["value"]),
        headers=tuple((str(name), _bytes(value)) for name, value in _pairs(fields.get("headers") or ())),
    )


def _moment(value: object) -> datetime:
    """Return the moment of an ISO 8601 text, UTC where it names no zone, or of milliseconds since 1970."""
    if value is None:
        return EPOCH
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value / 1000, UTC)
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


def _pairs(headers: Mapping[str, Any] | Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    """Return headers of an object, of [name, value] pairs, or of Spark's structs."""
    if isinstance(headers, Mapping):
        return headers.items()
    return [(each["key"], each["value"]) if isinstance(each, Mapping) else (each[0], each[1]) for each in headers]


def _of_parquet(path: Path) -> Iterator[FileRecord]:
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyarrow import parquet  # noqa: PLC0415

    try:
        with parquet.ParquetFile(path) as file:
            if "value" not in file.schema_arrow.names or not FIELDS.issuperset(file.schema_arrow.names):
                raise RecordsInvalid(
                    f"{path}: its columns are {', '.join(file.schema_arrow.names)}, and those of records are"
                    f" {', '.join(sorted(FIELDS))}"
                )
            for batch in file.iter_batches():
                yield from map(_record, batch.to_pylist())
    except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
        raise RecordsInvalid(f"{path}: {error}") from error
