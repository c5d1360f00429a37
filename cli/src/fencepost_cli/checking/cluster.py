"""What a pipeline needs in the cluster: the objects, topics and tables that its spec names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fencepost.contract import ClusteringColumn
from fencepost.contract.code_check import DeclaredTable
from fencepost_cli.ports import Column, Finding, Store
from fencepost_operator.api import Spec


def missing_objects(missing: Sequence[str], namespace: str) -> Iterator[Finding]:
    """Yield a finding for each 'Kind/name' that does not exist."""
    for reference in missing:
        kind, _, name = reference.partition("/")
        yield Finding(
            f"{kind} {name}", f"does not exist in namespace {namespace}", f"create it, or name another {kind}"
        )


def missing_tables(spec: Spec, tables: Mapping[str, DeclaredTable]) -> Iterator[Finding]:
    """Yield a finding for each sink's table that Cassandra does not have."""
    for index, sink in enumerate(spec.sinks):
        place = f"spec.sinks[{index}].cassandra.table"
        if sink.cassandra and not sink.cassandra.create_table:
            name = f"{sink.cassandra.keyspace}.{sink.cassandra.table}"
            if name not in tables:
                yield Finding(place, f"{name} does not exist", "create it, add createTable, or name another table")


def tables_of(spec: Spec, store: Store) -> dict[str, DeclaredTable]:
    """Return the tables of the sinks that exist, by 'keyspace.table'. Raises CliError."""
    sinks = [sink.cassandra for sink in spec.sinks if sink.cassandra]
    found = ((sink.keyspace, sink.table, store.columns(sink.keyspace, sink.table)) for sink in sinks)
    return {f"{keyspace}.{table}": _declared(keyspace, table, columns) for keyspace, table, columns in found if columns}


def _declared(keyspace: str, table: str, columns: Sequence[Column]) -> DeclaredTable:
    def key(kind: str) -> list[str]:
        found = sorted((one for one in columns if one.kind == kind), key=lambda one: one.position)
        return [one.name for one in found]

    return DeclaredTable(
        keyspace=keyspace,
        name=table,
        columns={one.name: one.type for one in columns},
        partition_key=tuple(key("partition_key")),
        clustering_key=tuple(ClusteringColumn(column=name) for name in key("clustering")),
    )
