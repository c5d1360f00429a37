"""Deletes the output of ranges of offsets from Cassandra tables.

A table is purged by its key where that is the record's place in Kafka: it has the columns topic, partition and offset,
and offset is its first clustering column, or part of the partition key.  The partition key may hold more, as a bucket:
which values exist is read from the table first.  Other tables are purged by their index, where they have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.contract import CassandraSink, DriverConfig, Reason, split_offset_key
from fencepost.contract.sinks import index_name
from fencepost.errors import BadSpec
from fencepost.fence.patience import Patience
from fencepost.sinks.cassandra import purge_index
from fencepost.sinks.cassandra.cql import full_name, quoted
from fencepost.sinks.cassandra.queries import Queries
from fencepost.sinks.purge.indexed_output import IndexedTable
from fencepost.sinks.purge.purged_sink import Purged

if TYPE_CHECKING:
    from cassandra.cluster import Session


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of one Cassandra partition: its key, in the key's order, and the offsets [start, until)."""

    key: tuple[Any, ...]
    start: int
    until: int


@dataclass(frozen=True, slots=True)
class PurgeableTable:
    """A table of which the output of offsets can be deleted, with requests at the session's consistency level."""

    queries: Queries
    sink: str
    keyspace: str
    name: str
    partition_key: tuple[str, ...]

    def check(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Do nothing: the key finds the rows of every offset."""

    def purge(self, ranges: Mapping[str, tuple[int, int]], timestamp: int | None) -> Purged:
        """Delete the rows of these records at a timestamp in µs, or only count them. Raises DependencyDown, BadSpec."""
        rows = left = 0
        for part in self.slices(ranges):
            found = self.count(part)
            rows += found
            if timestamp is not None:
                self.delete(part, timestamp)
            left += self.count(part) if timestamp is not None else found
        return Purged(rows, left)

    def slices(self, ranges: Mapping[str, tuple[int, int]]) -> Iterator[Slice]:
        """Yield what the table holds of these ranges, by Cassandra partition. Raises DependencyDown, BadSpec."""
        wanted = {split_offset_key(key): bounds for key, bounds in ranges.items()}
        places = {name: index for index, name in enumerate(self.partition_key)}
        for key in self._keys(wanted):
            bounds = wanted.get((key[places["topic"]], key[places["partition"]]))
            if bounds is None:
                continue
            start, until = bounds
            offset = key[places["offset"]] if "offset" in places else None
            if offset is None or start <= offset < until:
                yield Slice(key, start, until)

    def count(self, part: Slice) -> int:
        """Return how many rows are there. Raises DependencyDown, BadSpec."""
        where, values = self.where(part)
        return sum(1 for _ in self.queries.ask(f'SELECT "offset" FROM {self._table} WHERE {where}', values))  # noqa: S608 - names of the schema

    def delete(self, part: Slice, timestamp: int) -> None:
        """Delete the rows that were written at this timestamp, in µs, or before. Raises DependencyDown, BadSpec."""
        where, values = self.where(part)
        self.queries.execute(f"DELETE FROM {self._table} USING TIMESTAMP {timestamp:d} WHERE {where}", values)  # noqa: S608

    @property
    def _table(self) -> str:
        return full_name(self.keyspace, self.name)

    def where(self, part: Slice) -> tuple[str, list[Any]]:
        """Return the condition of a part's rows, and its values."""
        terms = [f"{quoted(name)} = ?" for name in self.partition_key]
        if "offset" in self.partition_key:
            return " AND ".join(terms), list(part.key)
        return " AND ".join([*terms, '"offset" >= ?', '"offset" < ?']), [*part.key, part.start, part.until]

    def _keys(self, wanted: Iterable[tuple[str, int]]) -> Iterator[tuple[Any, ...]]:
        """Return the partition keys to look at: they are known where topic and partition are the whole key."""
        if set(self.partition_key) == {"topic", "partition"}:
            parts = ({"topic": topic, "partition": partition} for topic, partition in wanted)
            return (tuple(part[name] for name in self.partition_key) for part in parts)
        columns = ", ".join(quoted(name) for name in self.partition_key)
        return (tuple(found) for found in self.queries.ask(f"SELECT DISTINCT {columns} FROM {self._table}", []))  # noqa: S608


def purgeable(session: Session, sink: CassandraSink, config: DriverConfig) -> PurgeableTable | IndexedTable:
    """Return the table of a sink. Raises BadSpec where neither its key nor an index finds the rows of an offset.

    The session has the cluster's schema.
    """
    keyspace = session.cluster.metadata.keyspaces.get(sink.keyspace)
    table = keyspace.tables.get(sink.table) if keyspace is not None else None
    if table is None:
        raise BadSpec(
            f"sink {sink.name!r}: table {sink.keyspace}.{sink.table} does not exist", reason=Reason.SINK_NOT_FOUND
        )
    # The session's requests take up to the task's patience, and an attempt may prepare its statement first.
    patience = Patience(config.patience, longest=2 * config.task_patience)
    queries = Queries(session, sink.name, sink.keyspace, patience)
    if purge_index.needs_no_index(table) or (purge_index.finds_rows(table) and sink.purge_retention is None):
        partition_key = tuple(column.name for column in table.partition_key)
        return PurgeableTable(queries, sink.name, sink.keyspace, sink.table, partition_key)
    index = keyspace.tables.get(index_name(sink.table))
    if index is None or not purge_index.is_index(index):
        raise BadSpec(
            f"sink {sink.name!r}: the output of an offset cannot be found in {sink.keyspace}.{sink.table}: its"
            " partition key does not hold topic text and partition int, with offset bigint in it or as the first"
            " clustering column, and it has no purge index",
            reason=Reason.SINK_INVALID,
            remedy="Set deleteOutput to false, and delete what is wrong in the table yourself. With"
            " cassandra.purgeIndex, what is written from then on can be deleted.",
        )
    primary_key = tuple(column.name for column in table.primary_key)
    return IndexedTable(queries, sink.name, sink.keyspace, sink.table, primary_key, config.pipeline)
