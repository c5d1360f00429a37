"""The driver's half of the Cassandra sink: whether the frame fits the table, and how it is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.contract import CassandraSink, DriverConfig, Reason
from fencepost.errors import BadSpec
from fencepost.sinks.changes import Rules
from fencepost.sinks.interface import BatchToken, Sink
from fencepost.sinks.types import mismatch
from fencepost.sinks.writer import Target, write

if TYPE_CHECKING:
    import pyarrow as pa
    from cassandra.cluster import Session
    from pyspark.sql.types import StructType

    from fencepost.fence.tls import TlsMaterial


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the cluster describes it: column name to CQL type, and its key."""

    keyspace: str
    name: str
    columns: Mapping[str, str]
    primary_key: tuple[str, ...]
    partition_key: tuple[str, ...]

    def problems(self, columns: Mapping[str, str]) -> list[str]:
        """Return why a frame (column name to Spark type) does not fit, one sentence per column; empty when it fits."""
        found = [
            f"column {name!r} is part of the primary key, and the frame does not have it"
            for name in self.primary_key
            if name not in columns
        ]
        for name, spark_type in columns.items():
            if name not in self.columns:
                found.append(f"column {name!r} is not in the table, which has {', '.join(sorted(self.columns))}")
                continue
            problem = mismatch(spark_type, self.columns[name])
            if problem is not None:
                found.append(f"column {name!r}: {problem}")
        return found


@dataclass(frozen=True, slots=True)
class TableTask:
    """The task's half: writes the rows at the batch's token."""

    target: Target

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Write all rows; see `fencepost.sinks.writer.write`."""
        return write(self.target, batch.token, batches, rehearsal=batch.is_rehearsal)


class TableSink(Sink):
    """One declared sink, bound to its table."""

    def __init__(self, name: str, table: Table, target: Target) -> None:
        self._name = name
        self._table = table
        self._task = TableTask(target)

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column that does not fit the table."""
        columns = {field.name: field.dataType.simpleString() for field in schema.fields}
        rules = self._task.target.rules
        problems = [
            *_marker(columns, rules.delete_where, "deleteWhere", "boolean"),
            *_marker(columns, rules.ttl_column, "ttlColumn", "int"),
        ]
        own = {rules.delete_where, rules.ttl_column}
        problems += self._table.problems({name: kind for name, kind in columns.items() if name not in own})
        if problems:
            raise BadSpec(
                f"sink {self._name!r} ({self._table.keyspace}.{self._table.name}): {'; '.join(problems)}",
                reason=Reason.SINK_MISMATCH,
                remedy="Make the transform's columns and the table agree.",
            )

    def task(self) -> TableTask:
        """Return the task's half."""
        return self._task


def bind(
    config: DriverConfig,
    sink: CassandraSink,
    session: Session,
    credentials: tuple[str, str] | None,
    tls: TlsMaterial | None = None,
) -> TableSink:
    """Return a declared sink. Raises BadSpec for a table that does not exist."""
    keyspaces: Mapping[str, Any] = session.cluster.metadata.keyspaces
    if sink.keyspace not in keyspaces:
        raise BadSpec(
            f"sink {sink.name!r}: keyspace {sink.keyspace!r} does not exist",
            reason=Reason.SINK_NOT_FOUND,
            remedy="Create the keyspace and the table, or correct spec.sinks.",
        )
    tables: Mapping[str, Any] = keyspaces[sink.keyspace].tables
    if sink.table not in tables:
        raise BadSpec(
            f"sink {sink.name!r}: table {sink.keyspace}.{sink.table} does not exist",
            reason=Reason.SINK_NOT_FOUND,
            remedy="Create the table, or correct spec.sinks.",
        )
    found = tables[sink.table]
    table = Table(
        keyspace=sink.keyspace,
        name=sink.table,
        columns={name: column.cql_type for name, column in found.columns.items()},
        primary_key=_names(found.primary_key),
        partition_key=_names(found.partition_key),
    )
    target = Target(
        cassandra=config.cassandra,
        credentials=credentials,
        consistency=config.consistency,
        keyspace=sink.keyspace,
        table=sink.table,
        primary_key=table.primary_key,
        partition_key=table.partition_key,
        patience=config.task_patience,
        rules=Rules(ttl=sink.ttl, ttl_column=sink.ttl_column, delete_where=sink.delete_where),
        tls=tls,
    )
    return TableSink(sink.name, table, target)


def _marker(columns: Mapping[str, str], name: str | None, field: str, wanted: str) -> Iterator[str]:
    """Yield what is wrong with the column that a field of the sink names."""
    if name is not None and columns.get(name) != wanted:
        yield f"column {name!r}, which {field} names, is {columns.get(name, 'missing')}, and must be {wanted}"


def _names(columns: Iterable[Any]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)
