"""Deletes the output of ranges of offsets from a Cassandra table by its purge index.

The rows of a page of entries are deleted and looked for; when none of a bucket is left, its entries go.  So a Job that
is killed finds on its next attempt all that it has not finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from fencepost.contract import Reason, split_offset_key
from fencepost.contract.sinks import index_name
from fencepost.errors import BadSpec
from fencepost.sinks.cassandra.cql import full_name, quoted
from fencepost.sinks.cassandra.index_completeness import MarkTable, complete_from
from fencepost.sinks.cassandra.purge_index import BUCKET, split_key
from fencepost.sinks.cassandra.queries import PAGE, Queries
from fencepost.sinks.purge.purged_sink import Purged


@dataclass(frozen=True, slots=True)
class Slice:
    """The offsets [start, until) of one Cassandra partition of the index."""

    topic: str
    partition: int
    bucket: int
    start: int
    until: int


@dataclass(frozen=True, slots=True)
class IndexedTable:
    """A table, and the index of the keys that this pipeline wrote to it."""

    queries: Queries
    sink: str
    keyspace: str
    name: str
    primary_key: tuple[str, ...]
    pipeline: str

    def purge(self, ranges: Mapping[str, tuple[int, int]], timestamp: int | None) -> Purged:
        """Delete the rows of these records at a timestamp in µs, or count the entries alone.

        A row that two records wrote has two entries, and counts twice.  Raises BadSpec where the index is not complete
        for the ranges, DependencyDown.
        """
        self.check(ranges)
        rows = left = 0
        for part in slices(ranges):
            found, remaining = self._purge(part, timestamp)
            rows, left = rows + found, left + remaining
        self.check(ranges)  # what expired meanwhile was not found
        return Purged(rows, left)

    def check(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Raise BadSpec where the index is not complete for the ranges, DependencyDown."""
        marks = MarkTable(self.queries, self.name, self.pipeline)
        for key, (start, _) in sorted(ranges.items()):
            first = complete_from(marks.read(key))
            if first is None or first > start:
                since = f"from offset {first} on" if first is not None else "for no offset"
                raise BadSpec(
                    f"sink {self.sink!r}: the purge index of {self.keyspace}.{self.name} is complete for {key} {since},"
                    f" and the target is {start}: earlier rows were written without it, or longer ago than its"
                    " retention",
                    reason=Reason.SINK_INVALID,
                    remedy="Choose a later target, or set deleteOutput to false.",
                )

    def _purge(self, part: Slice, timestamp: int | None) -> tuple[int, int]:
        if timestamp is None:
            rows = sum(1 for _ in self.keys(part))
            return rows, rows
        rows = left = 0
        entries = self.keys(part)
        while page := list(islice(entries, PAGE)):
            keys = list(dict.fromkeys(page))
            self._delete(keys, timestamp)
            rows, left = rows + len(page), left + self._count(keys)
        if rows and not left:
            self._forget(part, timestamp)
        return rows, left

    def keys(self, part: Slice) -> Iterator[bytes]:
        """Yield the primary keys of the entries, of which several may have one. Raises DependencyDown, BadSpec."""
        found = self.queries.ask(
            f"SELECT key FROM {self._index} WHERE {_PLACE}",  # noqa: S608 - names of the schema
            [self.pipeline, part.topic, part.partition, part.bucket, part.start, part.until],
        )
        return (row.key for row in found)

    def _delete(self, keys: Iterable[bytes], timestamp: int) -> None:
        statement = f"DELETE FROM {self._table} USING TIMESTAMP {timestamp:d} WHERE {self._where}"  # noqa: S608
        for _ in self.queries.many(statement, self._split(keys)):
            pass

    def _count(self, keys: Iterable[bytes]) -> int:
        statement = f"SELECT {quoted(self.primary_key[0])} FROM {self._table} WHERE {self._where}"  # noqa: S608
        return sum(1 for answer in self.queries.many(statement, self._split(keys)) for _ in answer)

    def _forget(self, part: Slice, timestamp: int) -> None:
        self.queries.execute(
            f"DELETE FROM {self._index} USING TIMESTAMP {timestamp:d} WHERE {_PLACE}",  # noqa: S608
            [self.pipeline, part.topic, part.partition, part.bucket, part.start, part.until],
        )

    def _split(self, keys: Iterable[bytes]) -> Iterator[list[bytes]]:
        return (list(split_key(key, columns=len(self.primary_key))) for key in keys)

    @property
    def _table(self) -> str:
        return full_name(self.keyspace, self.name)

    @property
    def _index(self) -> str:
        return full_name(self.keyspace, index_name(self.name))

    @property
    def _where(self) -> str:
        return " AND ".join(f"{quoted(name)} = ?" for name in self.primary_key)


_PLACE: Final = 'pipeline = ? AND topic = ? AND "partition" = ? AND bucket = ? AND "offset" >= ? AND "offset" < ?'


def slices(ranges: Mapping[str, tuple[int, int]]) -> Iterator[Slice]:
    """Yield the ranges by the Cassandra partitions of an index."""
    for key, (start, until) in sorted(ranges.items()):
        topic, partition = split_offset_key(key)
        for bucket in range(start // BUCKET, (until - 1) // BUCKET + 1):
            yield Slice(topic, partition, bucket, max(start, bucket * BUCKET), min(until, (bucket + 1) * BUCKET))
