"""Reads rows of a table by their primary keys, as CQL's bytes.

Keys of one Cassandra partition are asked for together, so a table that is keyed by a record's place costs a request for
a hundred rows, and one with a row in each partition a request for each.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.protocol import ResultMessage, _ProtocolHandler, read_int
from cassandra.query import tuple_factory

from fencepost.sinks.cassandra.cql import full_name, quoted
from fencepost.sinks.cassandra.queries import AT_ONCE, Queries
from fencepost.sinks.comparison.pace import Pace

T = TypeVar("T")

KEYS_AT_ONCE: Final = 100
"""Rows of one Cassandra partition that one request asks for."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as the table has it: its compared cells, and the latest of their write times in µs.

    None where no cell has a write time: each is null, or is an element of a collection.
    """

    cells: tuple[bytes | None, ...]
    written: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableShape:
    """What of a table is read. `timed` are those of `columns` that have one write time each."""

    keyspace: str
    table: str
    partition_key: tuple[str, ...]
    clustering_key: tuple[str, ...]
    columns: tuple[str, ...]
    timed: tuple[str, ...]

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of all columns of the key, in its order."""
        return (*self.partition_key, *self.clustering_key)

    def select(self, where: str) -> str:
        """Return the CQL that reads key, cells and write times."""
        names = [quoted(name) for name in (*self.primary_key, *self.columns)]
        times = [f"WRITETIME({quoted(name)})" for name in self.timed]
        return f"SELECT {', '.join((*names, *times))} FROM {full_name(self.keyspace, self.table)} WHERE {where}"  # noqa: S608 - names of the schema

    def by_key(self) -> str:
        """Return the CQL that reads rows of one partition: all keys that are asked for, or its only row."""
        terms = [f"{quoted(name)} = ?" for name in self.partition_key]
        if len(self.clustering_key) == 1:
            terms.append(f"{quoted(self.clustering_key[0])} IN ?")
        elif self.clustering_key:
            terms.append(f"({', '.join(map(quoted, self.clustering_key))}) IN ?")
        return self.select(" AND ".join(terms))

    def row(self, found: Sequence[bytes | None]) -> tuple[bytes, StoredRow]:
        """Return the key of a row that `select` reads, its columns' lengths and bytes, and the row."""
        keys, cells = len(self.primary_key), len(self.columns)
        key = b"".join(struct.pack(">i", len(part or b"")) + (part or b"") for part in found[:keys])
        times = [struct.unpack(">q", time)[0] for time in found[keys + cells :] if time is not None]
        return key, StoredRow(tuple(found[keys : keys + cells]), max(times, default=None))


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Reads by a session of `raw`. `queries` are for the table's sink."""

    queries: Queries
    shape: TableShape
    pace: Pace

    def read(self, keys: Sequence[tuple[Sequence[bytes], bytes]]) -> dict[bytes, StoredRow]:
        """Return the rows that exist, by their keys. Raises BadSpec, DependencyDown.

        Each of `keys` is the partition key's values, and the clustering columns' lengths and bytes.
        """
        found: dict[bytes, StoredRow] = {}
        for wave in _parts(self._requests(keys), AT_ONCE):
            self.pace.take(sum(rows for _, rows in wave))
            for answer in self.queries.many(self.shape.by_key(), [values for values, _ in wave]):
                found |= dict(self.shape.row(row) for row in answer)
        return found

    def _requests(self, keys: Sequence[tuple[Sequence[bytes], bytes]]) -> Iterator[tuple[list[bytes], int]]:
        """Yield the values of each request, and how many rows it asks for."""
        partitions: dict[tuple[bytes, ...], dict[bytes, None]] = {}
        for partition, clustering in keys:
            partitions.setdefault(tuple(partition), {})[clustering] = None
        for partition, rows in partitions.items():
            if not self.shape.clustering_key:
                yield list(partition), 1
                continue
            for some in _parts(rows, KEYS_AT_ONCE):
                yield [*partition, self._listed(some)], len(some)

    def _listed(self, keys: Sequence[bytes]) -> bytes:
        """Return CQL's list of the clustering column's values, or of tuples where there are several."""
        if len(self.shape.clustering_key) > 1:
            keys = [struct.pack(">i", len(key)) + key for key in keys]
        return struct.pack(">i", len(keys)) + b"".join(keys)


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


class _RawResult(ResultMessage):  # type: ignore[misc] # the library is untyped
    """Rows as CQL's bytes: decoding costs more than comparing."""

    def recv_results_rows(
        self,
        f: Any,  # noqa: ANN401 - a file of the driver's
        protocol_version: int,  # noqa: ARG002 - the driver's signature
        user_type_map: Mapping[str, Any],
        result_metadata: Sequence[Any],
        column_encryption_policy: Any = None,  # noqa: ANN401, ARG002
    ) -> None:
        """Read the body of a result with rows."""
        self.recv_results_metadata(f, user_type_map)
        columns = self.column_metadata or result_metadata
        self.column_names = [column[2] for column in columns]
        self.column_types = [column[3] for column in columns]
        self.parsed_rows = [self.recv_row(f, len(columns)) for _ in range(read_int(f))]


class _RawRows(_ProtocolHandler):  # type: ignore[misc]
    message_types_by_opcode = {**_ProtocolHandler.message_types_by_opcode, _RawResult.opcode: _RawResult}  # noqa: RUF012 - as the driver's


def raw(session: Session) -> Session:
    """Make a session return rows as sequences of CQL's bytes, None for null; return it."""
    session.client_protocol_handler = _RawRows
    session.get_execution_profile(EXEC_PROFILE_DEFAULT).row_factory = tuple_factory
    return session
