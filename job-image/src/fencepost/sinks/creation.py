"""Creates a sink's table for the transform's columns, where the spec asks for it and Cassandra has none.

Two coordinators that create one table at the same moment give it two ids, and one of them loses its data.  So all
drivers ask the same node, which makes its schema changes one after the other, and the nodes agree before and after.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from cassandra import InvalidRequest, Unauthorized
from cassandra.protocol import ConfigurationException, SyntaxException

from fencepost.contract import CassandraSink, CreateTable, Reason
from fencepost.errors import BadSpec, DependencyDown
from fencepost.fence.cassandra_errors import UNANSWERED
from fencepost.fence.schema import STATEMENT_LIMIT, await_agreement, columns_of
from fencepost.sinks.cql import quoted

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType

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
    """Create the table for the frame's columns, unless there is one meanwhile. `schema` has what is stored.

    Raises BadSpec when the columns make no table or Cassandra refuses it, DependencyDown when it does not answer, or
    when the user may not create it.
    """
    name = f"{sink.keyspace}.{sink.table}"
    if problems := list(_problems(wanted, schema)):
        raise BadSpec(
            f"sink {sink.name!r}: no table {name} for these columns: {'; '.join(problems)}",
            reason=Reason.SINK_MISMATCH,
            remedy="Correct the transform or createTable, or create the table yourself.",
        )
    text = statement(sink, wanted, schema)
    try:
        await_agreement(session)
        if not columns_of(session, sink.keyspace, sink.table):
            log.info("creating table %s", name, extra={"fields": {"statement": text}})
            session.execute(text, timeout=STATEMENT_LIMIT, host=_same_for_all(session))
        await_agreement(session)
        session.cluster.refresh_table_metadata(sink.keyspace, sink.table)
    except Unauthorized as error:
        log.warning("the user may not create table %s", name, extra={"fields": {"statement": text}})
        raise DependencyDown(
            f"sink {sink.name!r}: {error}",
            reason=Reason.CASSANDRA_CREDENTIALS_REJECTED,
            remedy=(
                f"GRANT CREATE ON KEYSPACE {sink.keyspace} to the user of spec.checkpoint.cassandra.credentialsFrom, or"
                " create the table yourself by the statement in the driver's log."
            ),
        ) from error
    except (InvalidRequest, ConfigurationException, SyntaxException) as error:
        raise BadSpec(
            f"sink {sink.name!r}: Cassandra refuses to create {name}: {error}",
            reason=Reason.SINK_INVALID,
            remedy="Correct createTable or the transform, or create the table yourself.",
        ) from error
    except UNANSWERED as error:
        raise DependencyDown(
            f"sink {sink.name!r}: creating {name}: {error}", reason=Reason.CASSANDRA_UNREACHABLE
        ) from error


def statement(sink: CassandraSink, wanted: CreateTable, schema: StructType) -> str:
    """Return the CREATE TABLE statement for columns that have no problems."""
    columns = [f"{quoted(field.name)} {cql_type(field.dataType)}" for field in schema.fields]
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
    return (
        f"CREATE TABLE IF NOT EXISTS {quoted(sink.keyspace)}.{quoted(sink.table)}"
        f" ({', '.join(columns)}, PRIMARY KEY ({key}))" + (f" WITH {' AND '.join(options)}" if options else "")
    )


def cql_type(spark: DataType) -> str | None:
    """Return the type of a new column, None where there is none for it."""
    if spark.typeName() == "array":
        element = cql_type(cast("ArrayType", spark).elementType)
        return element and f"frozen<list<{element}>>"
    if spark.typeName() == "map":
        key, value = cql_type(cast("MapType", spark).keyType), cql_type(cast("MapType", spark).valueType)
        return key and value and f"frozen<map<{key}, {value}>>"
    return _TYPES.get(spark.simpleString().partition("(")[0])


def _problems(wanted: CreateTable, schema: StructType) -> Iterator[str]:
    for name in (*wanted.partition_key, *(part.column for part in wanted.clustering_key)):
        if name not in schema.names:
            yield f"column {name!r} is part of createTable's key, and the frame does not store it"
    for field in schema.fields:
        if not _NAME.fullmatch(field.name):
            yield f"column {field.name!r} is no name of letters, digits and _; rename it with alias"
        if cql_type(field.dataType) is None:
            yield (
                f"column {field.name!r}: createTable has no type for {field.dataType.simpleString()}; cast it, select"
                " the fields of a struct, or create the table yourself"
            )


def _same_for_all(session: Session) -> Any:  # noqa: ANN401 - a host of the untyped library
    """Return the connected node that every driver of this datacenter finds first, None for any."""
    hosts = [pool.host for pool in session.get_pools() if pool.host.is_up]
    return min(hosts, key=lambda host: str(host.host_id), default=None)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
