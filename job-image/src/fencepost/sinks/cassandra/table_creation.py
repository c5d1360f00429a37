"""Creates a sink's table for the transform's columns, where the spec asks for it and Cassandra has none.

Two coordinators that create one table at the same moment give it two ids, and one of them loses its data.  So all
drivers ask the same node, which makes its schema changes one after the other, and the nodes agree before and after.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from cassandra import InvalidRequest, Unauthorized
from cassandra.protocol import ConfigurationException, SyntaxException

from fencepost.contract import CassandraSink, CreateTable, Reason
from fencepost.errors import BadSpec, DependencyDown
from fencepost.fence.cassandra.errors import UNANSWERED
from fencepost.fence.cassandra.schema import STATEMENT_LIMIT, await_agreement, columns_of
from fencepost.sinks.cassandra.cql import UserTypes, quoted
from fencepost.sinks.cassandra.table_metadata import Table, user_types

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_TYPES: Final = {
    "string": "text",
    "varchar": "text",
    "char": "text",
    "binary": "blob",
    "decimal": "decimal",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
    **{name: name for name in ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date")},
}
"""Spark type (`simpleString`, without parameters) to the type of a new column."""


def create(session: Session, sink: CassandraSink, wanted: CreateTable, schema: StructType) -> None:
    """Create the table for the frame's columns, unless there is one meanwhile, and the types of its structs.

    `schema` has what is stored.

    Raises BadSpec when the columns make no table or Cassandra refuses it, DependencyDown when it does not answer, or
    when the user may not create it.
    """
    name = f"{sink.keyspace}.{sink.table}"
    existing = user_types(session, sink.keyspace)
    if problems := list(_problems(sink, wanted, schema, existing)):
        raise BadSpec(
            f"sink {sink.name!r}: no table {name} for these columns: {'; '.join(problems)}",
            reason=Reason.SINK_MISMATCH,
            remedy="Correct the transform or createTable, or create the table yourself.",
        )
    texts = statements(sink, wanted, schema)
    try:
        await_agreement(session)
        if not columns_of(session, sink.keyspace, sink.table):
            log.info("creating table %s", name, extra={"fields": {"statements": texts}})
            for text in texts:
                session.execute(text, timeout=STATEMENT_LIMIT, host=_same_for_all(session))
                await_agreement(session)
        session.cluster.refresh_keyspace_metadata(sink.keyspace)
        session.cluster.refresh_table_metadata(sink.keyspace, sink.table)
    except Unauthorized as error:
        log.warning("the user may not create table %s", name, extra={"fields": {"statements": texts}})
        raise DependencyDown(
            f"sink {sink.name!r}: {error}",
            reason=Reason.CASSANDRA_CREDENTIALS_REJECTED,
            remedy=(
                f"GRANT CREATE ON KEYSPACE {sink.keyspace} to the user of spec.checkpoint.cassandra.credentialsFrom, or"
                " create the table yourself by the statements in the driver's log."
            ),
        ) from error
    except (InvalidRequest, ConfigurationException, SyntaxException) as error:
        raise BadSpec(
            f"sink {sink.name!r}: Cassandra refuses to create {name}: {error}",
            reason=Reason.SINK_INVALID,
            remedy="Correct createTable or the transform, or create the table yourself.",
        ) from error
    except UNANSWERED as error:
        raise DependencyDown(f"sink {sink.name!r}: creating {name}: {error}", reason=Reason.SINK_UNREACHABLE) from error


def statements(sink: CassandraSink, wanted: CreateTable, schema: StructType) -> list[str]:
    """Return the CREATE TYPE statements, each after those that it needs, and CREATE TABLE; for what has no problems."""
    types: list[NewType] = []
    columns = [f"{quoted(field.name)} {_column_type(sink, field, types)}" for field in schema.fields]
    partition = ", ".join(map(quoted, wanted.partition_key))
    key = ", ".join([f"({partition})", *(quoted(part.column) for part in wanted.clustering_key)])
    options = []
    if wanted.clustering_key:
        orders = ", ".join(f"{quoted(part.column)} {part.order}" for part in wanted.clustering_key)
        options.append(f"CLUSTERING ORDER BY ({orders})")
    if wanted.default_time_to_live is not None:
        options.append(f"default_time_to_live = {wanted.default_time_to_live:d}")
    if wanted.compaction:
        pairs = ", ".join(f"{_literal(name)}: {_literal(value)}" for name, value in sorted(wanted.compaction.items()))
        options.append(f"compaction = {{{pairs}}}")
    return [
        *(one.statement(sink.keyspace) for one in types),
        f"CREATE TABLE IF NOT EXISTS {quoted(sink.keyspace)}.{quoted(sink.table)}"
        f" ({', '.join(columns)}, PRIMARY KEY ({key}))" + (f" WITH {' AND '.join(options)}" if options else ""),
    ]


@dataclass(frozen=True, slots=True)
class NewType:
    """A user-defined type for the structs of a column: field to CQL type."""

    name: str
    fields: Mapping[str, str]

    def statement(self, keyspace: str) -> str:
        """Return the CREATE TYPE statement."""
        fields = ", ".join(f"{quoted(name)} {kind}" for name, kind in self.fields.items())
        return f"CREATE TYPE IF NOT EXISTS {quoted(keyspace)}.{quoted(self.name)} ({fields})"


def cql_type(spark: DataType, name: str, types: list[NewType]) -> str | None:
    """Return the type of a new column, None where Cassandra has none; append the types that it needs to `types`.

    `name` is that of the column's user-defined type if it is a struct; the structs in it append their fields' names.
    """
    if spark.typeName() == "array":
        element = cql_type(cast("ArrayType", spark).elementType, name, types)
        return element and f"frozen<list<{element}>>"
    if spark.typeName() == "map":
        pairs = cast("MapType", spark)
        key, value = cql_type(pairs.keyType, f"{name}_key", types), cql_type(pairs.valueType, f"{name}_value", types)
        return key and value and f"frozen<map<{key}, {value}>>"
    if spark.typeName() == "struct":
        found = {
            field.name: cql_type(field.dataType, f"{name}_{field.name}", types)
            for field in cast("StructType", spark).fields
        }
        fields = {field: kind for field, kind in found.items() if kind is not None}
        types.append(NewType(name, fields))
        return f"frozen<{quoted(name)}>" if fields and len(fields) == len(found) else None
    return _TYPES.get(spark.simpleString().partition("(")[0])


def _column_type(sink: CassandraSink, field: StructField, types: list[NewType]) -> str | None:
    return cql_type(field.dataType, f"{sink.table}_{field.name}", types)


def _problems(sink: CassandraSink, wanted: CreateTable, schema: StructType, existing: UserTypes) -> Iterator[str]:
    key = (*wanted.partition_key, *(part.column for part in wanted.clustering_key))
    for name in key:
        if name not in schema.names:
            yield f"column {name!r} is part of createTable's key, and the frame does not store it"
    types: list[NewType] = []
    columns: dict[str, str] = {}
    for field in schema.fields:
        if not _NAME.fullmatch(field.name):
            yield f"column {field.name!r} may contain only letters, digits and _; rename it with alias"
        kind = _column_type(sink, field, types)
        if kind is None:
            found = field.dataType.simpleString()
            yield f"column {field.name!r}: createTable has no type for {found}; cast it, or create the table yourself"
        else:
            columns[field.name] = kind
    for name in sorted({name for one in types for name in one.fields if not _NAME.fullmatch(name)}):
        yield f"field {name!r} of a struct may contain only letters, digits and _; rename it"
    for name, count in Counter(one.name for one in types).items():
        if count > 1:
            yield f"two structs would have the type {name}; rename one of their fields or columns"
    # A type of that name may exist: then the structs have to fit it.
    known = {**{one.name: one.fields for one in types}, **existing}
    table = Table(keyspace=sink.keyspace, name=sink.table, columns=columns, partition_key=(), user_types=known)
    yield from (problem for field in schema.fields if field.name in columns for problem in table.misfits(field))


def _same_for_all(session: Session) -> Any:  # noqa: ANN401 - a host of the untyped library
    """Return the connected node that every driver of this datacenter finds first, None for any."""
    hosts = [pool.host for pool in session.get_pools() if pool.host.is_up]
    return min(hosts, key=lambda host: str(host.host_id), default=None)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
