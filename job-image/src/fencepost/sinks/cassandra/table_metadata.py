"""A table as the cluster describes it, and whether a frame fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fencepost.contract import ClusteringColumn, CreateTable
from fencepost.sinks.cassandra import type_fit
from fencepost.sinks.cassandra.cql import UserTypes, parsed

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql.types import StructField, StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: column name to CQL type, its key, and the user-defined types of its keyspace."""

    keyspace: str
    name: str
    columns: Mapping[str, str]
    partition_key: tuple[str, ...]
    clustering_key: tuple[ClusteringColumn, ...] = ()
    user_types: UserTypes = field(default_factory=dict)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of all columns of the key, in its order."""
        return (*self.partition_key, *(part.column for part in self.clustering_key))

    def problems(self, schema: StructType) -> Iterator[str]:
        """Yield why a frame does not fit, one sentence for each column, or field of one; nothing when it fits."""
        for name in self.primary_key:
            if name not in schema.names:
                yield f"column {name!r} is part of the primary key, and the frame does not have it"
        for column in schema.fields:
            if column.name not in self.columns:
                yield f"column {column.name!r} is not in the table, which has {', '.join(sorted(self.columns))}"
            else:
                yield from self.misfits(column)

    def misfits(self, column: StructField) -> Iterator[str]:
        """Yield why a column of the frame does not fit the table's column of that name."""
        yield from type_fit.problems(column.name, column.dataType, parsed(self.columns[column.name], self.user_types))

    def differences(self, wanted: CreateTable) -> Iterator[str]:
        """Yield how the table's key differs from that of `createTable`."""
        found = _key(self.partition_key, self.clustering_key)
        asked = _key(wanted.partition_key, wanted.clustering_key)
        if found != asked:
            yield (
                f"the table exists with PRIMARY KEY {found}, and createTable says {asked}: createTable changes no table"
                " that exists; correct createTable, or drop the table"
            )


def _key(partition: Iterable[str], clustering: Iterable[ClusteringColumn]) -> str:
    orders = (f"{part.column}{' DESC' if part.order == 'DESC' else ''}" for part in clustering)
    return f"(({', '.join(partition)}){''.join(f', {order}' for order in orders)})"


def described(session: Session, keyspace: str, name: str) -> Table | None:
    """Return a table as the session's metadata have it, None without such a keyspace or table."""
    keyspaces: Mapping[str, Any] = session.cluster.metadata.keyspaces
    if keyspace not in keyspaces or name not in keyspaces[keyspace].tables:
        return None
    found = keyspaces[keyspace].tables[name]
    return Table(
        keyspace=keyspace,
        name=name,
        columns={name: column.cql_type for name, column in found.columns.items()},
        partition_key=tuple(column.name for column in found.partition_key),
        clustering_key=tuple(
            ClusteringColumn(column=column.name, order="DESC" if column.is_reversed else "ASC")
            for column in found.clustering_key
        ),
        user_types=user_types(session, keyspace),
    )


def user_types(session: Session, keyspace: str) -> UserTypes:
    """Return the user-defined types of a keyspace as the session's metadata have them."""
    return {
        name: dict(zip(kind.field_names, kind.field_types, strict=True))
        for name, kind in session.cluster.metadata.keyspaces[keyspace].user_types.items()
    }
