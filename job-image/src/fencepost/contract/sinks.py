"""The declared outputs of a run, as the operator writes them and the driver reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import msgspec

INDEX_SUFFIX: Final = "_by_offset"
"""Of the name of a table's purge index."""
LONGEST_INDEXED_TABLE: Final = 48 - len(INDEX_SUFFIX)
"""Characters of the name of a table with a purge index: Cassandra takes 48 for the index."""


def index_name(table: str) -> str:
    """Return the name of a table's purge index."""
    return f"{table}{INDEX_SUFFIX}"


def finds_records(partition_key: Collection[str], clustering_key: Sequence[str]) -> bool:
    """Return whether a primary key with these columns finds the rows of an offset."""
    return {"topic", "partition"} <= {*partition_key} and "offset" in {*partition_key, *clustering_key[:1]}


def is_of_records_alone(partition_key: Collection[str]) -> bool:
    """Return whether a partition key has no column that may distinguish pipelines."""
    return {*partition_key} <= {"topic", "partition", "offset"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringColumn:
    """A column of the primary key after the partition key, and the order of rows by it."""

    column: str
    order: Literal["ASC", "DESC"] = "ASC"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """How a table is created that does not exist; its columns are the frame's."""

    partition_key: tuple[str, ...]
    clustering_key: tuple[ClusteringColumn, ...] = ()
    default_time_to_live: int | None = None
    """Seconds; Cassandra's default is to keep rows."""
    compaction: Mapping[str, str] = field(default_factory=dict)
    """As in CQL; empty for Cassandra's default."""


class CassandraSink(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="cassandra"):
    """Rows of the author's frame named `name` go to keyspace.table, column by column name."""

    name: str
    keyspace: str
    table: str
    ttl: int | None = None
    """Seconds."""
    ttl_column: str | None = None
    delete_where: str | None = None
    create_table: CreateTable | None = None
    """None for a table that must exist."""
    purge_retention: float | None = None
    """Seconds for which the purge index keeps the key of each row that is written; None for no index."""


RECORD_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "offset": ("bigint",),
    "i": ("int", "bigint"),
}
"""A record's columns, and the types that each may have. The last four are the coordinates."""


class KafkaSink(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="kafka"):
    """Rows go to topics, as records with key, value and headers.

    `topics` is one, or those that the column `topic_column` may name for each row.
    `bootstrap_servers` None means the source's cluster, with the source's properties; `properties` are librdkafka's.
    """

    name: str
    topics: tuple[str, ...]
    topic_column: str | None = None
    bootstrap_servers: str | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)


class FunctionSink(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="function"):
    """Rows go to a function of the author, `module:function`."""

    name: str
    entrypoint: str
    options: Mapping[str, str] = msgspec.field(default_factory=dict)


class PluginSink(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="plugin"):
    """Rows go to a sink of another package: `plugin` is its name in the entry-point group `fencepost.sinks`."""

    name: str
    plugin: str
    options: Mapping[str, str] = msgspec.field(default_factory=dict)


class FilesSink(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="files"):
    """Rows go to files below a path, `file:///…` or `s3://bucket/…`, in a folder for each value of `folders`' columns.

    `endpoint` is the address of an S3-compatible store; None means Amazon's.
    """

    name: str
    path: str
    format: Literal["parquet", "jsonLines"] = "parquet"
    folders: tuple[str, ...] = ()
    endpoint: str | None = None
    region: str | None = None


class PostgresqlSink(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="postgresql"):
    """Rows go to schema.table in the database of the fence, column by column name, in the transaction of the commit."""

    name: str
    schema: str
    table: str


class HttpSink(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="http"):
    """Each row is a request to `url`, up to `parallelism` at once in a task; `timeout` is in seconds."""

    name: str
    url: str
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    content_type: str = "application/json"
    parallelism: int = 8
    timeout: float = 10.0


class SqliteSink(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="sqlite"):
    """Rows go to a table of a SQLite file, which a local run creates from the frame. No pipeline declares one."""

    name: str
    path: str
    table: str
    key: tuple[str, ...] | None = None
    """The columns of the primary key; None for the place of the record: topic, partition, offset, and i if there."""
    delete_where: str | None = None
    ttl_column: str | None = None
    """It is not stored, and rows live on."""


DeclaredSink: TypeAlias = (
    CassandraSink | KafkaSink | FunctionSink | PluginSink | FilesSink | HttpSink | PostgresqlSink | SqliteSink
)
"""Structs, because msgspec reads a union of them by their tag, the field `kind`; it takes no union of dataclasses."""
