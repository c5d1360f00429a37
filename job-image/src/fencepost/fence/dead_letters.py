"""Dead letters: the records that a driver set aside because each of them fails alone.

A letter is written before the offsets move past its record, so a record is in the sinks, in this table, or still to be
read.  Its key is the record's place, so a repetition overwrites it.  It expires after the pipeline's retention.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.cluster import Session

from fencepost.fence import FenceSchemaInvalid, schema
from fencepost.fence.cassandra_errors import translated
from fencepost.fence.patience import Patience

LONGEST_VALUE: Final = 1024 * 1024
"""Bytes of a record's value that a letter keeps."""
LONGEST_KEY: Final = 64 * 1024
"""Bytes of a record's key, and of all its headers together."""
LONGEST_TEXT: Final = 16 * 1024
"""Characters of the error, and of the traceback."""
QUORUMS: Final = frozenset({"QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"})
PAGE: Final = 50
"""Letters that one request reads, without values: with keys and errors of the greatest length 6 MiB."""
_LEFT_OUT: Final = ("value", "headers", "traceback")
"""Columns of a letter that a list does not read."""
_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record, and why it was set aside.

    `headers` are JSON, [[key, value in base64 or null], …].  `value_size` and `value_sha256` are of the whole value;
    `truncated` says that key, value or headers are not all there.  `code` is that of the run, as in the fence row.
    `retried_at`, `retried_by` and `retried_to` ('topic/partition@offset') are set when somebody sends the record to
    Kafka again; a driver that writes the letter later clears them.
    """

    topic: str
    partition: int
    offset: int
    epoch: int
    at: datetime
    code: str | None = None
    reason: str | None = None
    error: str | None = None
    traceback: str | None = None
    timestamp: datetime | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: str | None = None
    value_size: int | None = None
    value_sha256: str | None = None
    truncated: bool | None = None
    retried_at: datetime | None = None
    retried_by: str | None = None
    retried_to: str | None = None


_TYPES: Final = {
    **dict.fromkeys(("topic", "code", "reason", "error", "traceback", "headers", "value_sha256"), str),
    **dict.fromkeys(("retried_by", "retried_to"), str),
    **dict.fromkeys(("partition", "offset", "epoch", "value_size"), int),
    **dict.fromkeys(("at", "timestamp", "retried_at"), datetime),
    **dict.fromkeys(("key", "value"), bytes),
    "truncated": bool,
}
"""What a column of a letter may hold: anybody with the account may have written others by hand."""
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "epoch", "at"})
_RETRIED: Final = ("retried_at", "retried_by", "retried_to")


def letter(
    *,
    topic: str,
    partition: int,
    offset: int,
    epoch: int,
    code: str,
    reason: str,
    error: str,
    traceback: str,
    timestamp: datetime | None,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> DeadLetter:
    """Return the letter of a record, with everything in it bounded."""
    kept, size = [], 0
    for name, content in headers:
        size += len(name.encode()) + len(content or b"")
        if size <= LONGEST_KEY:
            kept.append([name, None if content is None else base64.b64encode(content).decode()])
    is_cut = len(key or b"") > LONGEST_KEY or len(value or b"") > LONGEST_VALUE or len(kept) < len(headers)
    return DeadLetter(
        topic=topic,
        partition=partition,
        offset=offset,
        epoch=epoch,
        at=datetime.now(UTC),
        code=code,
        reason=reason,
        error=_both_ends(error),
        traceback=_both_ends(traceback),
        timestamp=timestamp,
        key=None if key is None else key[:LONGEST_KEY],
        value=None if value is None else value[:LONGEST_VALUE],
        headers=json.dumps(kept),
        value_size=None if value is None else len(value),
        value_sha256=None if value is None else hashlib.sha256(value).hexdigest(),
        truncated=is_cut,
    )


class DeadLetters:
    """The letters of one pipeline. Times in seconds."""

    def __init__(
        self,
        session: Session,
        keyspace: str,
        pipeline: str,
        *,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._keyspace = keyspace
        self._pipeline = pipeline
        self._sleep = sleep
        self._monotonic = monotonic

    def write(
        self, one: DeadLetter, *, write_timestamp: int, retention: float, consistency: str, patience: float
    ) -> None:
        """Write a letter at a quorum or more, at `write_timestamp` in µs, to expire after `retention`.

        A table of an earlier release lacks columns, and what they hold is then left out.
        Raises FenceUnavailable when Cassandra does not answer for `patience`, FenceSchemaInvalid.
        """
        asking = Patience(patience, self._monotonic, self._sleep)
        asking.ask(lambda: self._write(one, write_timestamp, max(1, round(retention)), consistency))

    def _write(self, one: DeadLetter, timestamp: int, ttl: int, consistency: str) -> None:
        with translated("writing a dead letter"):
            columns = self._columns()
            names, marks = ", ".join(["pipeline", *columns]), ", ".join("?" * (len(columns) + 1))
            insert = self._session.prepare(
                f"INSERT INTO {self._table} ({names}) VALUES ({marks}) USING TIMESTAMP ? AND TTL ?"  # noqa: S608 - ours
            )
            insert.consistency_level = ConsistencyLevel.name_to_value[
                consistency if consistency in QUORUMS else "LOCAL_QUORUM"
            ]
            values = [getattr(one, name) for name in columns]
            self._session.execute(insert, (self._pipeline, *values, timestamp, ttl))

    def of_partition(
        self, topic: str, partition: int, *, start: int = 0, until: int = _LARGEST, limit: int | None = None
    ) -> Iterator[DeadLetter]:
        """Yield the letters of offsets [start, until), at most `limit`, without value, headers and traceback.

        The fence row's offsets name a pipeline's partitions.  Raises FenceError.
        """
        where = "topic = ? AND partition = ? AND offset >= ? AND offset < ?"
        found = self._select(where, (topic, partition, start, until), without=_LEFT_OUT)
        yield from islice(found, limit)

    def read(self, topic: str, partition: int, offset: int) -> DeadLetter | None:
        """Return one letter with all that it holds. Raises FenceError."""
        found = self._select("topic = ? AND partition = ? AND offset = ?", (topic, partition, offset))
        return next(found, None)

    def keeps_retries(self) -> bool:
        """Return whether the table has the columns that `mark_retried` writes. Raises FenceError."""
        with translated("reading the dead letters"):
            return set(_RETRIED) <= set(self._columns())

    def mark_retried(self, one: DeadLetter, *, by: str, at: datetime, to: str) -> None:
        """Record who sent a letter's record to Kafka again, when and to where; the mark expires with the letter.

        Raises FenceError.
        """
        place = (self._pipeline, one.topic, one.partition, one.offset)
        where = "WHERE pipeline = ? AND topic = ? AND partition = ? AND offset = ?"
        with translated("marking a dead letter"):
            select = self._session.prepare(
                f"SELECT TTL(at) AS left, WRITETIME(at) AS written FROM {self._table} {where}"  # noqa: S608 - ours
            )
            found = self._session.execute(select, place).one()
            if found is None or found.written is None:
                return  # it expired, and a mark alone would never
            update = self._session.prepare(
                f"UPDATE {self._table} USING TTL ? AND TIMESTAMP ?"  # noqa: S608 - ours
                f" SET {', '.join(f'{name} = ?' for name in _RETRIED)} {where}"
            )
            update.consistency_level = ConsistencyLevel.LOCAL_QUORUM
            # The pipeline's clock, at which the letter was written, may be ahead of this machine's.
            timestamp = max(int(at.timestamp() * 1_000_000), found.written + 1)
            self._session.execute(update, (found.left or 0, timestamp, at, by, to, *place))

    def _select(self, where: str, values: tuple[object, ...], without: Sequence[str] = ()) -> Iterator[DeadLetter]:
        with translated("reading the dead letters"):
            columns = [name for name in self._columns() if name not in without]
            select = self._session.prepare(
                f"SELECT {', '.join(columns)} FROM {self._table} WHERE pipeline = ? AND {where}"  # noqa: S608 - ours
            )
            select.fetch_size = PAGE
            for row in self._session.execute(select, (self._pipeline, *values)):
                yield _letter({name: getattr(row, name) for name in columns})

    def _columns(self) -> list[str]:
        """Return the letter's columns that the table has, in this release's order."""
        found: Mapping[str, str] = schema.columns_of(self._session, self._keyspace, schema.DEAD_LETTERS.name)
        return [one.name for one in fields(DeadLetter) if one.name in found or one.name in schema.DEAD_LETTERS.columns]

    @property
    def _table(self) -> str:
        return f'"{self._keyspace}".{schema.DEAD_LETTERS.name}'


def _letter(values: dict[str, Any]) -> DeadLetter:
    """Return the letter in a row. Raises FenceSchemaInvalid, naming the column that holds something else."""
    for name, value in values.items():
        if value is None and name not in _NEVER_NULL:
            continue
        if not isinstance(value, _TYPES[name]) or (_TYPES[name] is int and isinstance(value, bool)):
            raise FenceSchemaInvalid(f"column {name} of a dead letter holds {type(value).__name__}")
        if isinstance(value, datetime):
            values[name] = value.replace(tzinfo=UTC)
    return DeadLetter(**values)


def _both_ends(text: str) -> str:
    """Return a text that fits, in characters that UTF-8 has: a lone surrogate of a record's JSON is none."""
    fitting = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT // 3]}\n…\n{text[-LONGEST_TEXT // 2 :]}"
    return fitting.encode("utf-8", "backslashreplace").decode("utf-8")
