"""Deletes the output of ranges of offsets from Cassandra tables whose primary key is the record's place in Kafka.

Such a key has the columns topic, partition and offset; offset is its first clustering column, or part of the partition
key.  The partition key may hold more, as a bucket: which values exist is read from the table first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fencepost.contract import CassandraSink, Reason, split_offset_key
from fencepost.errors import BadSpec, DependencyDown
from fencepost.fence.cassandra_errors import UNANSWERED

if TYPE_CHECKING:
    from cassandra.cluster import Session

KEY: Final = {"topic": "text", "partition": "int", "offset": "bigint"}
"""Columns of the primary key, and their types."""
_PAGE: Final = 5000
"""Rows of one page of an answer."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of one Cassandra partition: its key, in the key's order, and the offsets [start, until)."""

    key: tuple[Any, ...]
    start: int
    until: int


@dataclass(frozen=True, slots=True)
class PurgeableTable:
    """A table of which the output of offsets can be deleted, with requests at the session's consistency level."""

    session: Session
    sink: str
    keyspace: str
    name: str
    partition_key: tuple[str, ...]

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
        where, values = self._where(part)
        return sum(1 for _ in self._ask(f'SELECT "offset" FROM {self._table} WHERE {where}', values))  # noqa: S608 - names of the schema

    def delete(self, part: Slice, timestamp: int) -> None:
        """Delete the rows that were written at this timestamp, in µs, or before. Raises DependencyDown, BadSpec."""
        where, values = self._where(part)
        list(self._ask(f"DELETE FROM {self._table} USING TIMESTAMP {timestamp:d} WHERE {where}", values))  # noqa: S608

    @property
    def _table(self) -> str:
        return f'"{self.keyspace}"."{self.name}"'

    def _where(self, part: Slice) -> tuple[str, list[Any]]:
        terms = [f'"{name}" = ?' for name in self.partition_key]
        if "offset" in self.partition_key:
            return " AND ".join(terms), list(part.key)
        return " AND ".join([*terms, '"offset" >= ?', '"offset" < ?']), [*part.key, part.start, part.until]

    def _keys(self, wanted: Iterable[tuple[str, int]]) -> Iterator[tuple[Any, ...]]:
        """Return the partition keys to look at: they are known where topic and partition are the whole key."""
        if set(self.partition_key) == {"topic", "partition"}:
            parts = ({"topic": topic, "partition": partition} for topic, partition in wanted)
            return (tuple(part[name] for name in self.partition_key) for part in parts)
        columns = ", ".join(f'"{name}"' for name in self.partition_key)
        return (tuple(found) for found in self._ask(f"SELECT DISTINCT {columns} FROM {self._table}", []))  # noqa: S608

    def _ask(self, statement: str, values: Sequence[Any]) -> Iterator[Any]:
        from cassandra import InvalidRequest, Unauthorized  # noqa: PLC0415 - as the driver's other clients

        try:
            prepared = self.session.prepare(statement)
            prepared.fetch_size = _PAGE
            yield from self.session.execute(prepared, values)
        except Unauthorized as error:
            raise BadSpec(
                f"sink {self.sink!r}: the account may not read or delete in {self.keyspace}.{self.name}: {error}",
                reason=Reason.SINK_INVALID,
                remedy=f"GRANT SELECT and MODIFY ON KEYSPACE {self.keyspace} to it.",
            ) from error
        except InvalidRequest as error:
            raise BadSpec(f"sink {self.sink!r}: {error}", reason=Reason.SINK_INVALID) from error
        except UNANSWERED as error:
            raise DependencyDown(
                f"sink {self.sink!r}: Cassandra did not answer: {error}", reason=Reason.CASSANDRA_UNREACHABLE
            ) from error


def purgeable(session: Session, sink: CassandraSink) -> PurgeableTable:
    """Return the table of a sink. Raises BadSpec where it does not exist, or is not keyed by topic, partition, offset.

    The session has the cluster's schema.
    """
    keyspace = session.cluster.metadata.keyspaces.get(sink.keyspace)
    table = keyspace.tables.get(sink.table) if keyspace is not None else None
    if table is None:
        raise BadSpec(
            f"sink {sink.name!r}: table {sink.keyspace}.{sink.table} does not exist", reason=Reason.SINK_NOT_FOUND
        )
    partition_key = tuple(column.name for column in table.partition_key)
    clustering = [column.name for column in table.clustering_key]
    kinds = {column.name: column.cql_type for column in table.primary_key}
    is_placed = {"topic", "partition"} <= set(partition_key) and "offset" in {*partition_key, *clustering[:1]}
    if not is_placed or any(kinds.get(name) != kind for name, kind in KEY.items()):
        raise BadSpec(
            f"sink {sink.name!r}: the output of an offset cannot be found in {sink.keyspace}.{sink.table}: its"
            " partition key does not hold topic text and partition int, with offset bigint in it or as the first"
            " clustering column",
            reason=Reason.SINK_INVALID,
            remedy="Set deleteOutput to false, and delete what is wrong in the table yourself.",
        )
    return PurgeableTable(session, sink.name, sink.keyspace, sink.table, partition_key)
