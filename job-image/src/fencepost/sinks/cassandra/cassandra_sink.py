"""The driver's half of the Cassandra sink: whether the frame fits the table, and how it is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.contract import CassandraEndpoint, CassandraSink, DriverConfig, Reason
from fencepost.errors import BadSpec, DependencyDown
from fencepost.sinks.cassandra.index_upkeep import Indexing, indexing
from fencepost.sinks.cassandra.row_changes import Rules
from fencepost.sinks.cassandra.table_creation import create
from fencepost.sinks.cassandra.table_metadata import Table, described
from fencepost.sinks.cassandra.type_fit import misnamed
from fencepost.sinks.cassandra.writer import Target, write
from fencepost.sinks.interface import BatchToken, Sink

if TYPE_CHECKING:
    import pyarrow as pa
    from cassandra.cluster import Session
    from pyspark.sql.types import StructType

    from fencepost.fence.tls import TlsMaterial


@dataclass(frozen=True, slots=True)
class TableTask:
    """The task's half: writes the rows at the batch's token."""

    target: Target

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        """Write all rows; see `fencepost.sinks.cassandra.writer.write`."""
        return write(self.target, batch.token, batches, rehearsal=batch.is_rehearsal)


class TableSink(Sink):
    """One declared sink, bound to its table; `check` creates the table where that is asked for."""

    def __init__(
        self, sink: CassandraSink, session: Session, *, table: Table | None, cluster: Cluster, indexing: Indexing
    ) -> None:
        self._sink = sink
        self._session = session
        self._table = table
        self._cluster = cluster
        self._indexing = indexing

    def check(self, schema: StructType) -> None:
        """Raise BadSpec naming every column that does not fit the table; DependencyDown where none can be created."""
        from pyspark.sql.types import StructType  # noqa: PLC0415 - workers import this module

        sink, own = self._sink, {self._sink.delete_where, self._sink.ttl_column, *self._unstored}
        problems = [*self._indexing.problems(schema)]
        problems += misnamed(schema, sink.delete_where, "deleteWhere names", "boolean")
        problems += misnamed(schema, sink.ttl_column, "ttlColumn names", "int")
        stored = StructType([field for field in schema.fields if field.name not in own])
        if not problems and self._table is None and sink.create_table is not None:
            create(self._session, sink, sink.create_table, stored)
            self._table = described(self._session, sink.keyspace, sink.table)
        if self._table is not None:
            problems += self._table.differences(sink.create_table) if sink.create_table is not None else ()
            problems += self._table.problems(stored)
        elif not problems:
            raise DependencyDown(
                f"sink {sink.name!r}: {sink.keyspace}.{sink.table} is created, and Cassandra does not show it yet",
                reason=Reason.SINK_UNREACHABLE,
            )
        if problems:
            raise BadSpec(
                f"sink {sink.name!r} ({sink.keyspace}.{sink.table}): {'; '.join(problems)}",
                reason=Reason.SINK_MISMATCH,
                remedy="Make the transform's columns and the table agree.",
            )

    @property
    def _unstored(self) -> frozenset[str]:
        return self._indexing.unstored(self._table.columns) if self._table is not None else frozenset()

    def task(self) -> TableTask:
        """Return the task's half, once the table is there."""
        if self._table is None:
            raise RuntimeError(f"sink {self._sink.name!r}: its table is created by `check`, which was not called")
        sink = self._sink
        target = Target(
            cassandra=self._cluster.endpoint,
            credentials=self._cluster.credentials,
            consistency=self._cluster.consistency,
            keyspace=sink.keyspace,
            table=sink.table,
            primary_key=self._table.primary_key,
            partition_key=self._table.partition_key,
            patience=self._cluster.patience,
            rules=Rules(
                ttl=sink.ttl,
                ttl_column=sink.ttl_column,
                delete_where=sink.delete_where,
                unstored=self._unstored,
            ),
            tls=self._cluster.tls,
            index=self._indexing.index,
        )
        return TableTask(target)

    def begin(self, batch: BatchToken) -> None:
        """Note in the purge index, where there is one, from which offset on it is complete."""
        if self._indexing.ledger is not None:
            self._indexing.ledger.begin(batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """How a task reaches the tables; `patience` in seconds."""

    endpoint: CassandraEndpoint
    credentials: tuple[str, str] | None
    tls: TlsMaterial | None
    consistency: str
    patience: float


def bind(
    config: DriverConfig,
    sink: CassandraSink,
    session: Session,
    credentials: tuple[str, str] | None,
    tls: TlsMaterial | None = None,
) -> TableSink:
    """Return a declared sink. Raises BadSpec for a table that does not exist and is not to be created."""
    if sink.keyspace not in session.cluster.metadata.keyspaces:
        raise BadSpec(
            f"sink {sink.name!r}: keyspace {sink.keyspace!r} does not exist",
            reason=Reason.SINK_NOT_FOUND,
            remedy="Create the keyspace and the table, or correct spec.sinks.",
        )
    table = described(session, sink.keyspace, sink.table)
    if table is None and sink.create_table is None:
        raise BadSpec(
            f"sink {sink.name!r}: table {sink.keyspace}.{sink.table} does not exist",
            reason=Reason.SINK_NOT_FOUND,
            remedy="Create the table, add createTable to the sink, or correct spec.sinks.",
        )
    cluster = Cluster(
        endpoint=config.cluster,
        credentials=credentials,
        tls=tls,
        consistency=config.consistency,
        patience=config.task_patience,
    )
    return TableSink(sink, session, table=table, cluster=cluster, indexing=indexing(session, sink, config))
