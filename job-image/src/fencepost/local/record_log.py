"""The records of files as a log with offsets: a table beside the fence row, which the tasks read.

A file is loaded once. A run that continues finds the records of the first one at the same offsets.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost.batch import Range, Record, Watermarks
from fencepost.contract import offset_key
from fencepost.fence.sqlite.database import Database
from fencepost.local.record_files import RecordsInvalid, read_file
from fencepost.local.record_lines import EPOCH, FileRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from fencepost.kafka.reader import Reached, Seen

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS fencepost_records (
  topic TEXT, partition INTEGER, offset INTEGER, timestamp INTEGER, key BLOB, value BLOB, headers TEXT,
  PRIMARY KEY (topic, partition, offset)
) STRICT;
CREATE TABLE IF NOT EXISTS fencepost_record_files (path TEXT PRIMARY KEY, digest TEXT NOT NULL) STRICT, WITHOUT ROWID;
"""
CHUNK: Final = 5_000
"""Records of one Arrow batch."""
_MICROSECOND: Final = timedelta(microseconds=1)


class RecordLog:
    """The driver's Log of a local run. `topics` are those that the pipeline reads."""

    def __init__(self, database: Database, topics: Sequence[str]) -> None:
        self._database = database
        self._topics = tuple(topics)

    def load(self, path: Path, topic: str | None) -> int:
        """Load a file unless it is loaded, and return how many records are new.

        `topic` is that of records which name none. Raises RecordsInvalid, also for a file that has changed since.
        """
        digest = _digest(path)
        with self._database.changing() as connection:
            known = connection.execute(
                "SELECT digest FROM fencepost_record_files WHERE path = ?", (str(path),)
            ).fetchone()
            if known == (digest,):
                return 0
            if known is not None:
                raise RecordsInvalid(f"{path} has changed since its records were loaded")
            connection.execute("INSERT INTO fencepost_record_files VALUES (?, ?)", (str(path), digest))
            placed = self._placed(path, topic, connection)
            return connection.executemany("INSERT INTO fencepost_records VALUES (?, ?, ?, ?, ?, ?, ?)", placed).rowcount

    def state(self) -> Watermarks:
        """Return the bounds of all partitions; a topic without records has an empty partition."""
        with self._database.reading() as connection:
            found = connection.execute(
                "SELECT topic, partition, min(offset), max(offset) + 1 FROM fencepost_records GROUP BY topic, partition"
            ).fetchall()
        bounds = {offset_key(topic, partition): (begin, end) for topic, partition, begin, end in found}
        empty = {offset_key(topic, 0): (0, 0) for topic in self._topics if topic not in {row[0] for row in found}}
        every = {**empty, **bounds}
        return Watermarks(
            begins={key: begin for key, (begin, _) in every.items()},
            ends={key: end for key, (_, end) in every.items()},
            topic_ids={topic: topic for topic in self._topics},
        )

    def offsets_at(self, time: int, partitions: Collection[str]) -> Mapping[str, int | None]:
        """Return the first offset of each partition whose record is at least as new; see the port."""
        found: dict[str, int | None] = {}
        for key in partitions:
            offsets, newest = self._newest.get(key, ([], []))
            place = bisect_left(newest, time * 1000)
            found[key] = offsets[place] if place < len(offsets) else None
        return found

    @cached_property
    def _newest(self) -> Mapping[str, tuple[Sequence[int], Sequence[int]]]:
        """By partition, its offsets, and the largest timestamp up to each in µs. All files are loaded by then."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT topic, partition, offset, ifnull(timestamp, -1) FROM fencepost_records"
                " ORDER BY topic, partition, offset"
            )
            parts = {key: list(group) for key, group in groupby(rows, key=lambda row: offset_key(*row[:2]))}
        return {
            key: ([row[2] for row in part], list(accumulate((row[3] for row in part), max)))
            for key, part in parts.items()
        }

    def _placed(
        self, path: Path, topic: str | None, connection: sqlite3.Connection
    ) -> Iterator[tuple[str, int, int, int | None, bytes | None, bytes | None, str | None]]:
        """Yield the records of a file with their offsets: those that they have, or the next ones."""
        following: dict[tuple[str, int], int] = {}
        for given in read_file(path):
            record = replace(given, topic=given.topic or topic)
            if record.topic not in self._topics:
                raise RecordsInvalid(_of_no_topic(path, record, self._topics))
            place = record.topic, record.partition
            if place not in following:
                (end,) = connection.execute(
                    "SELECT max(offset) + 1 FROM fencepost_records WHERE topic = ? AND partition = ?", place
                ).fetchone()
                following[place] = end or 0
            offset = following[place] if record.offset is None else record.offset
            if offset < following[place]:
                raise RecordsInvalid(f"{path}: offset {offset} of {offset_key(*place)} is not after the one before it")
            following[place] = offset + 1
            micros = None if record.timestamp is None else (record.timestamp - EPOCH) // _MICROSECOND
            yield (*place, offset, micros, record.key, record.value, _headers_text(record))


class NoRecords:
    """The driver's own reads, which follow a loss of records or a change of leaders: neither happens in a file."""

    def first(self, part: Range) -> Record | None:  # noqa: ARG002 - of the port
        """Return None."""
        return None

    def check(self, parts: Sequence[Range], at_least: Mapping[str, int] | None = None) -> Mapping[str, int]:  # noqa: ARG002 - of the port
        """Return no epochs."""
        return {}


def read(path: str, ranges: Sequence[Range], *, reached: Reached, seen: Seen) -> Iterator[pa.RecordBatch]:
    """Yield the records of some ranges that are not left out, in a task."""
    del reached, seen
    import pyarrow as pa  # noqa: PLC0415 - the driver does without

    from fencepost.kafka.reader import ARROW_SCHEMA  # noqa: PLC0415

    with closing(sqlite3.connect(path)) as database:
        for part in ranges:
            found = database.execute(
                "SELECT topic, partition, offset, timestamp, key, value, headers FROM fencepost_records"
                " WHERE topic = ? AND partition = ? AND offset >= ? AND offset < ? AND offset NOT IN"
                " (SELECT offset FROM fencepost_left_out WHERE partition = ?) ORDER BY offset",
                (part.topic, part.partition, part.start, part.until, part.key),
            )
            while rows := found.fetchmany(CHUNK):
                yield pa.RecordBatch.from_pylist([_fields(row) for row in rows], ARROW_SCHEMA)


def _fields(row: tuple[Any, ...]) -> dict[str, Any]:
    topic, partition, offset, micros, key, value, headers = row
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": None if micros is None else EPOCH + timedelta(microseconds=micros),
        "key": key,
        "value": value,
        "headers": None if headers is None else [
            {"key": name, "value": None if text is None else base64.b64decode(text)}
            for name, text in json.loads(headers)
        ],
    }  # fmt: skip


def _headers_text(record: FileRecord) -> str | None:
    if not record.headers:
        return None
    coded = [(name, None if value is None else base64.b64encode(value).decode()) for name, value in record.headers]
    return json.dumps(coded)


def _of_no_topic(path: Path, record: FileRecord, topics: Sequence[str]) -> str:
    if record.topic is None:
        return f"{path}: its records name no topic, and the pipeline reads {', '.join(topics)}"
    return f"{path} has records of topic {record.topic!r}, and the pipeline reads {', '.join(topics)}"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
