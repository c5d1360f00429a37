"""Dead letters: the records that a driver set aside because each of them fails alone.

A letter is written before the offsets move past its record, so a record is in the sinks, in this table, or still to be
read.  Its key is the record's place, so a repetition overwrites it.  A run removes, once it has claimed its epoch, the
letters of what it is to read again.  It expires after the pipeline's retention.
A record is kept whole: what is too long for a row is in chunks of a table of its own, which are written before the row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any, Final

from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args

from fencepost.contract import split_offset_key
from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.letters import TYPES, DeadLetter, checked
from fencepost.fence.patience import Patience

LONGEST: Final[Mapping[str, int]] = {"key": 64 * 1024, "value": 1024 * 1024, "headers": 64 * 1024}
"""Bytes of each part of a record that the letter's row holds; a longer one is in chunks, as a whole."""
CHUNK: Final = 1024 * 1024
"""Bytes of one chunk."""
CHUNKS_OUTLIVE: Final = 3600
"""Seconds that chunks live longer than the row that names them."""
QUORUMS: Final = frozenset({"QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"})
PAGE: Final = 50
"""Letters that one request reads, without their records: with errors of the greatest length 1 MiB."""
AT_ONCE: Final = 64
"""Requests in flight."""
_LARGEST: Final = 2**63 - 1


_RETRIED: Final = ("retried_at", "retried_by", "retried_to")
_PLACE: Final = "pipeline = ? AND topic = ? AND partition = ? AND topic_id = ?"


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
        self._prepared: dict[tuple[str, str | None], Any] = {}

    def write(
        self, one: DeadLetter, *, write_timestamp: int, retention: float, consistency: str, patience: float
    ) -> None:
        """Write a letter at a quorum or more, at `write_timestamp` in µs, to expire after `retention`.

        Raises FenceUnavailable when Cassandra does not answer for `patience`, FenceSchemaInvalid.
        """
        asking = Patience(patience, self._monotonic, self._sleep)
        asking.ask(lambda: self._write(one, write_timestamp, max(1, round(retention)), consistency))

    def _write(self, one: DeadLetter, timestamp: int, ttl: int, consistency: str) -> None:
        long = {name: content for name, content in _parts(one).items() if len(content) > LONGEST[name]}
        values = {"pipeline": self._pipeline, **{name: getattr(one, name) for name in TYPES}}
        values |= {**dict.fromkeys(long), "chunked": {name: len(content) for name, content in long.items()}}
        place = (self._pipeline, one.topic, one.partition, one.topic_id, one.offset)
        with translated("writing a dead letter"):
            for name, content in long.items():
                for number, start in enumerate(range(0, len(content), CHUNK)):
                    chunk = (*place, name, number, content[start : start + CHUNK])
                    columns = tuple(schema.DEAD_LETTER_CHUNKS.all_columns)
                    self._insert(
                        schema.DEAD_LETTER_CHUNKS, columns, chunk, timestamp, ttl + CHUNKS_OUTLIVE, consistency
                    )
            self._insert(schema.DEAD_LETTERS, tuple(values), tuple(values.values()), timestamp, ttl, consistency)

    def _insert(
        self,
        table: schema.Table,
        columns: Sequence[str],
        values: Sequence[object],
        timestamp: int,
        ttl: int,
        consistency: str,
    ) -> None:
        names, marks = ", ".join(columns), ", ".join("?" * len(columns))
        insert = self._prepare(
            f"INSERT INTO {self._name(table)} ({names}) VALUES ({marks}) USING TIMESTAMP ? AND TTL ?",
            consistency,
        )
        self._session.execute(insert, (*values, timestamp, ttl))

    def remove_from(
        self,
        offsets: Mapping[str, int],
        topic_ids: Mapping[str, str],
        *,
        write_timestamp: int,
        consistency: str,
        patience: float,
    ) -> None:
        """Remove the letters of each partition's offset and beyond, as far as they were written until then.

        The deletion is of a range, so a letter that a replaced driver writes late stays removed too.  Chunks expire.
        Raises FenceUnavailable when Cassandra does not answer for `patience`, FenceSchemaInvalid.
        """
        places = [(*split_offset_key(key), offset) for key, offset in offsets.items()]
        rows = [
            (write_timestamp, self._pipeline, topic, partition, topic_ids.get(topic, ""), offset)
            for topic, partition, offset in places
        ]
        asking = Patience(patience, self._monotonic, self._sleep)
        asking.ask(lambda: self._remove(rows, consistency))

    def _remove(self, rows: Sequence[tuple[object, ...]], consistency: str) -> None:
        with translated("removing the dead letters of what is read again"):
            delete = self._prepare(
                f"DELETE FROM {self._name(schema.DEAD_LETTERS)} USING TIMESTAMP ? WHERE {_PLACE} AND offset >= ?",
                consistency,
            )
            execute_concurrent_with_args(self._session, delete, rows, concurrency=AT_ONCE)

    def of_partition(
        self, topic: str, partition: int, *, start: int = 0, until: int = _LARGEST, limit: int | None = None
    ) -> Iterator[DeadLetter]:
        """Yield the letters of offsets [start, until), at most `limit`, without key, value, headers and traceback.

        Letters of an offset follow by topic id.  The fence row's offsets name a pipeline's partitions.
        Raises FenceError.
        """
        listed = [name for name in TYPES if name not in {*LONGEST, "traceback"}]
        found = (
            self._select(listed, (topic, partition, topic_id), start, until)
            for topic_id in self._topic_ids(topic, partition)
        )
        for letter, _ in islice(merge(*found, key=lambda pair: (pair[0].offset, pair[0].topic_id)), limit):
            yield letter

    def read(self, one: DeadLetter) -> DeadLetter | None:
        """Return a letter of a list with all that it holds. Raises FenceError."""
        place = (one.topic, one.partition, one.topic_id)
        found = next(self._select([*TYPES, "chunked"], place, one.offset, one.offset + 1), None)
        if found is None:
            return None
        letter, chunked = found
        parts = {name: self._chunks(letter, name, size) for name, size in chunked.items() if name in LONGEST}
        whole: dict[str, Any] = {name: content for name, content in parts.items() if content is not None}
        if "headers" in whole:
            whole["headers"] = whole["headers"].decode(errors="replace")
        return replace(letter, **whole, is_whole=whole.keys() == chunked.keys())

    def _chunks(self, one: DeadLetter, name: str, size: int) -> bytes | None:
        """Return a part of a record that is in chunks, None where they are not of its size."""
        with translated("reading a dead letter's chunks"):
            select = self._prepare(
                f"SELECT content FROM {self._name(schema.DEAD_LETTER_CHUNKS)}"
                f" WHERE {_PLACE} AND offset = ? AND part = ?"
            )
            select.fetch_size = 1
            content = bytearray()
            place = (self._pipeline, one.topic, one.partition, one.topic_id, one.offset, name)
            for row in self._session.execute(select, place):
                content += row.content or b""
                if len(content) > size:
                    return None
        return bytes(content) if len(content) == size else None

    def _topic_ids(self, topic: str, partition: int) -> Iterator[str]:
        """Yield the ids under which the partition has letters: few requests, however many letters there are."""
        last: str | None = None
        with translated("reading the dead letters"):
            while True:
                beyond = "" if last is None else " AND topic_id > ?"
                select = self._prepare(
                    f"SELECT topic_id FROM {self._name(schema.DEAD_LETTERS)}"
                    f" WHERE pipeline = ? AND topic = ? AND partition = ?{beyond} LIMIT 1"
                )
                values = (self._pipeline, topic, partition, *(() if last is None else (last,)))
                found = self._session.execute(select, values).one()
                if found is None:
                    return
                last = found.topic_id
                yield found.topic_id

    def mark_retried(self, one: DeadLetter, *, by: str, at: datetime, to: str) -> None:
        """Record who sent a letter's record to Kafka again, when and to where; the mark expires with the letter.

        The mark follows the letter in time, and not this machine's clock: what replaces or removes the letter later
        does so with the mark.
        Raises FenceError.
        """
        place = (self._pipeline, one.topic, one.partition, one.topic_id, one.offset)
        table, where = self._name(schema.DEAD_LETTERS), f"WHERE {_PLACE} AND offset = ?"
        with translated("marking a dead letter"):
            select = self._prepare(
                "SELECT TTL(at) AS left, WRITETIME(at) AS written, WRITETIME(retried_at) AS marked"
                f" FROM {table} {where}"
            )
            found = self._session.execute(select, place).one()
            if found is None or found.written is None:
                return  # it expired, and a mark alone would never
            update = self._prepare(
                f"UPDATE {table} USING TTL ? AND TIMESTAMP ?"
                f" SET {', '.join(f'{name} = ?' for name in _RETRIED)} {where}",
                "LOCAL_QUORUM",
            )
            timestamp = max(found.written, found.marked or 0) + 1
            self._session.execute(update, (found.left or 0, timestamp, at, by, to, *place))

    def _select(
        self, columns: Sequence[str], place: tuple[str, int, str], start: int, until: int
    ) -> Iterator[tuple[DeadLetter, Mapping[str, int]]]:
        """Yield letters with the sizes of what is in chunks."""
        with translated("reading the dead letters"):
            select = self._prepare(
                f"SELECT {', '.join(columns)} FROM {self._name(schema.DEAD_LETTERS)}"
                f" WHERE {_PLACE} AND offset >= ? AND offset < ?"
            )
            select.fetch_size = PAGE
            for row in self._session.execute(select, (self._pipeline, *place, start, until)):
                values = {name: getattr(row, name) for name in columns}
                chunked = dict((values.pop("chunked", None) or {}).items())
                yield checked(values), chunked

    def _prepare(self, statement: str, consistency: str | None = None) -> Any:  # noqa: ANN401 - the library is untyped
        """Return the statement; with a consistency, at that level, or at a quorum if that is less."""
        prepared = self._prepared.get((statement, consistency))
        if prepared is None:
            prepared = self._prepared[statement, consistency] = self._session.prepare(statement)
            if consistency is not None:
                level = consistency if consistency in QUORUMS else "LOCAL_QUORUM"
                prepared.consistency_level = ConsistencyLevel.name_to_value[level]
        return prepared

    def _name(self, table: schema.Table) -> str:
        return f'"{self._keyspace}".{table.name}'


def _parts(one: DeadLetter) -> dict[str, bytes]:
    """Return the parts of a record by the column that holds them."""
    headers = None if one.headers is None else one.headers.encode()
    parts = {"key": one.key, "value": one.value, "headers": headers}
    return {name: content for name, content in parts.items() if content is not None}
