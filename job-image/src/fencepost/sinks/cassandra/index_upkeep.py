"""The driver's half of a purge index: whether a sink has one, and what is done for it before a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fencepost.contract import CassandraSink, DriverConfig, Reason
from fencepost.contract.sinks import index_name
from fencepost.errors import BadSpec
from fencepost.fence.patience import Patience
from fencepost.sinks.cassandra import purge_index
from fencepost.sinks.cassandra.index_completeness import ClosedLedger, Ledger, MarkTable, OpenLedger
from fencepost.sinks.cassandra.queries import Queries
from fencepost.sinks.cassandra.type_fit import misnamed

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Indexing:
    """What a sink does for its purge index; both None where there is nothing to do."""

    index: purge_index.Index | None = None
    ledger: Ledger | None = None

    def unstored(self, columns: Mapping[str, str]) -> frozenset[str]:
        """Return the columns of the frame that are for the index alone: a table with these columns lacks them."""
        return frozenset(name for name in purge_index.COORDINATES if self.index is not None and name not in columns)

    def problems(self, schema: StructType) -> Iterator[str]:
        """Yield what the index lacks in a frame."""
        for name, wanted in {"topic": "string", "partition": "int", "offset": "bigint"}.items():
            yield from misnamed(schema, name if self.index is not None else None, "purgeIndex needs", wanted)


def indexing(session: Session, sink: CassandraSink, config: DriverConfig) -> Indexing:
    """Return what a sink does for its index; a run without one ends what an earlier run's index is complete for.

    The session has the cluster's schema.  Raises BadSpec for an index that does not exist, or is not needed.
    """
    tables: Mapping[str, Any] = session.cluster.metadata.keyspaces[sink.keyspace].tables
    queries = Queries(session, sink.name, sink.keyspace, Patience(config.patience))
    marks = MarkTable(queries, sink.table, config.pipeline)
    found = tables.get(index_name(sink.table))
    if sink.purge_retention is None:
        return Indexing(ledger=ClosedLedger(marks) if found is not None and purge_index.is_index(found) else None)
    if sink.table in tables and purge_index.needs_no_index(tables[sink.table]):
        raise BadSpec(
            f"sink {sink.name!r}: {sink.keyspace}.{sink.table} needs no purge index: its key has the coordinates",
            reason=Reason.SINK_INVALID,
            remedy="Remove cassandra.purgeIndex from the sink.",
        )
    purge_index.check(tables, sink=sink.name, keyspace=sink.keyspace, table=sink.table)
    retention = int(sink.purge_retention)
    return Indexing(purge_index.Index(pipeline=config.pipeline, retention=retention), OpenLedger(marks, retention))
