"""`spec.sinks`: where rows go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field

from fencepost.contract import RECORD_COLUMNS
from fencepost_operator.api.checks import SET, DurationRange, Matching, Rule, keyed_by
from fencepost_operator.api.fields import (
    ColumnName,
    Entrypoint,
    Identifier,
    KafkaName,
    Line,
    PluginName,
    Seconds,
    SinkName,
    TableOption,
)
from fencepost_operator.api.model import Model
from fencepost_operator.api.spec.pods import SecretReference

SINK_KINDS: Final = ("cassandra", "postgresql", "kafka", "files", "http", "function", "plugin")
"""Fields of a sink of which exactly one is set."""

TimeToLive = Annotated[int, Field(ge=1, le=630_720_000)]
"""Seconds, at most Cassandra's 20 years."""
Options = Annotated[
    Mapping[Annotated[str, Field(max_length=253)], Annotated[Line, Field(max_length=4096)]], Field(max_length=100)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringColumnSpec(Model):
    """A clustering column of a table that is created."""

    column: ColumnName
    """Name of the column."""
    order: Literal["ASC", "DESC"] = "ASC"
    """Order of the rows of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableSpec(Model):
    """Creates the table if it does not exist, with the columns of the DataFrame. A table that exists is never changed.
    The account of checkpoint.cassandra.credentialsFrom must have the right CREATE on the keyspace.
    """

    MARKS = (
        Rule(
            "!has(self.clusteringKey) || self.clusteringKey.all(c, !(c.column in self.partitionKey))",
            "a column must not be in both partitionKey and clusteringKey; remove it from one",
        ),
        Rule(
            "!has(self.compaction) || 'class' in self.compaction",
            "compaction must have a class, such as TimeWindowCompactionStrategy",
        ),
    )

    partition_key: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=10), SET]
    """Columns of the partition key, in order."""
    clustering_key: Annotated[tuple[ClusteringColumnSpec, ...], Field(max_length=10), keyed_by("column")] = ()
    """Clustering columns, in order. Without them a partition has one row."""
    default_time_to_live: TimeToLive | None = None
    """Option default_time_to_live of the new table, in seconds. Rows do not expire by default."""
    compaction: Annotated[Mapping[TableOption, TableOption], Field(max_length=20)] = field(default_factory=dict)
    """Option compaction of the new table, as in CQL. Defaults to Cassandra's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeIndexSpec(Model):
    """Keeps the key of each row that is written in the table <table>_by_offset, so that a PipelineRewind can delete
    output from a table whose partition key does not hold topic and partition. The DataFrame has topic, partition and
    offset of the input record.
    """

    retention: Annotated[Seconds, DurationRange("1h", "8760h", "24h or 168h")] = 7 * 24 * 3600.0
    """How far back a rewind may delete output, from 1h to 8760h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraSinkSpec(Model):
    """A table in the Cassandra cluster of checkpoint.cassandra. The DataFrame's columns are written by name."""

    MARKS = (
        Rule(
            "!has(self.ttl) || !has(self.ttlColumn)",
            "a table must not have both ttl and ttlColumn; remove one of them",
        ),
    )

    keyspace: Identifier
    """Keyspace of the table, in lower case."""
    table: Identifier
    """Name of the table, in lower case. It must exist, unless there is createTable."""
    ttl: TimeToLive | None = None
    """Time to live of each row, in seconds. Defaults to the table's default_time_to_live."""
    ttl_column: ColumnName | None = None
    """An int column of the DataFrame with each row's time to live in seconds, instead of ttl. It is not stored."""
    delete_where: ColumnName | None = None
    """A boolean column of the DataFrame. Rows in which it is true delete: a row by its whole primary key, a range where
    the last clustering columns are null. It is not stored."""
    create_table: CreateTableSpec | None = None
    purge_index: PurgeIndexSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresqlSinkSpec(Model):
    """A table in the database of checkpoint.postgresql. The DataFrame's columns are written by name. The rows of a
    batch become visible in the transaction that commits its offsets: each record's rows are in the table exactly once,
    also without a key.
    """

    schema: Identifier = "public"
    """Schema of the table, in lower case. It must not be checkpoint.postgresql.schema."""
    table: Identifier
    """Name of the table, in lower case. It must exist, and the account of checkpoint.postgresql.credentialsFrom must
    have the right INSERT on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSinkSpec(Model):
    """A topic, or several between which a column chooses. The DataFrame's columns are key, value, headers and the
    coordinates of the input record. docs/sinks.md says what its readers do.
    """

    MARKS = (
        Rule(
            "has(self.topic) != has(self.topicColumn) && has(self.topicColumn) == has(self.topics)",
            "a sink must have either topic, or topicColumn together with topics; remove the others",
        ),
        Rule(
            f"!has(self.topicColumn) || !(self.topicColumn in {sorted(RECORD_COLUMNS)})",
            f"topicColumn must not be a column of the record ({', '.join(sorted(RECORD_COLUMNS))}); name another one",
        ),
        Rule(
            "has(self.bootstrapServers) || !(has(self.properties) || has(self.propertiesFrom))",
            "properties and propertiesFrom must have a bootstrapServers beside them; remove them to connect as"
            " source.kafka does",
        ),
    )

    topic: KafkaName | None = None
    """Name of an existing topic."""
    topic_column: ColumnName | None = None
    """A string column of the DataFrame that names the topic of each row, one of topics. It is not written."""
    topics: Annotated[tuple[KafkaName, ...], Field(min_length=1, max_length=100), SET] = ()
    """Names of existing topics, which topicColumn may name. A row that names another one is a bad record."""
    bootstrap_servers: (
        Annotated[
            str,
            Field(max_length=2000),
            Matching(r"[A-Za-z0-9._:,\[\]-]+", "host:port, or several with commas and no blanks between them"),
        ]
        | None
    ) = None
    """Bootstrap servers as host:port, or several separated by commas. Defaults to the cluster of source.kafka, with the
    properties and the Secret of the source."""
    properties: Annotated[
        Mapping[Annotated[str, Field(max_length=100)], Annotated[Line, Field(max_length=4096)]], Field(max_length=100)
    ] = field(default_factory=dict)
    """Properties of the Kafka client by their librdkafka names. Passwords and keys belong in propertiesFrom."""
    properties_from: SecretReference | None = None
    """Properties of the Kafka client from a Secret, in which each key is a property's librdkafka name. They take
    precedence over properties."""

    @property
    def destinations(self) -> tuple[str, ...]:
        """The topics to which it may write."""
        return self.topics if self.topic is None else (self.topic,)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSinkSpec(Model):
    """Files in an S3-compatible store, with a manifest per batch. docs/sinks.md says how they are read."""

    path: Annotated[
        str,
        Field(max_length=500),
        Matching(
            r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9][A-Za-z0-9_.=-]*)+",
            "s3://bucket/folder, without a slash at the end",
        ),
    ]
    """Where the files go, as s3://bucket/folder. The bucket must exist."""
    format: Literal["parquet", "jsonLines"] = "parquet"
    """Format of the files."""
    folders: Annotated[tuple[ColumnName, ...], Field(max_length=5), SET] = ()
    """Columns of the DataFrame whose values name folders, such as carrier=AA/day=2013-01-01, in order. The files keep
    these columns."""
    endpoint: (
        Annotated[
            str,
            Field(max_length=300),
            Matching(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?", "https://host or https://host:port"),
        ]
        | None
    ) = None
    """Address of an S3-compatible store. Defaults to Amazon S3 in the region."""
    region: Annotated[str, Field(max_length=50), Matching("[a-z0-9-]+", "a region, such as eu-central-1")] | None = None
    """Region of the bucket. Defaults to us-east-1."""
    credentials_from: SecretReference | None = None
    """Secret with the keys AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for temporary credentials, AWS_SESSION_TOKEN.
    Defaults to what the pod has, such as the identity of its service account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSinkSpec(Model):
    """An HTTP server, to which each row is a request with an Idempotency-Key header. The DataFrame's columns are body,
    path and the coordinates of the input record. docs/sinks.md says what the server does.
    """

    url: Annotated[
        str,
        Field(max_length=1000),
        Matching(
            r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%-]+)*",
            "https://host/path, without a slash at the end, a query or credentials",
        ),
    ]
    """Address of the requests. The column path is appended to it."""
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    """Method of the requests."""
    content_type: Annotated[str, Field(max_length=100), Matching("[A-Za-z0-9.+/;= -]+", "such as application/json")] = (
        "application/json"
    )
    """Header Content-Type of the requests."""
    parallelism: Annotated[int, Field(ge=1, le=64)] = 8
    """Requests that one Spark task has open at the same time."""
    timeout: Annotated[Seconds, DurationRange("1s", "5m", "5s or 30s")] = 10.0
    """How long a request waits for its answer, from 1s to 5m."""
    headers_from: SecretReference | None = None
    """Headers from a Secret, in which each key is the name of a header, such as Authorization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSinkSpec(Model):
    """A function of the author's code, which stores the rows of each Spark task itself. docs/sinks.md says how it stays
    exact.
    """

    entrypoint: Annotated[Entrypoint, Field(max_length=253)]
    """The function as module:function. It takes the rows as Arrow batches and a FunctionContext with the fencing
    token."""
    options: Options = field(default_factory=dict)
    """Settings that the function finds in its context."""
    options_from: SecretReference | None = None
    """Options from a Secret, in which each key is the name of an option, such as a password. They take precedence over
    options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSinkSpec(Model):
    """A sink of a Python package that the image has, found by its entry point."""

    kind: PluginName
    """Name of the sink in the entry-point group fencepost.sinks."""
    options: Options = field(default_factory=dict)
    """Settings of the sink; its package says which it has."""
    options_from: SecretReference | None = None
    """Options from a Secret, in which each key is the name of an option, such as a password. They take precedence over
    options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec(Model):
    """One output, of exactly one kind."""

    MARKS = (
        Rule(
            f"[{', '.join(f'has(self.{kind})' for kind in SINK_KINDS)}].exists_one(kind, kind)",
            f"a sink must have exactly one of {', '.join(SINK_KINDS[:-1])} and {SINK_KINDS[-1]}",
        ),
    )

    name: SinkName
    """Name of the sink, as in the mapping that the transform returns."""
    cassandra: CassandraSinkSpec | None = None
    postgresql: PostgresqlSinkSpec | None = None
    kafka: KafkaSinkSpec | None = None
    files: FilesSinkSpec | None = None
    http: HttpSinkSpec | None = None
    function: FunctionSinkSpec | None = None
    plugin: PluginSinkSpec | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are set."""
        return tuple(name for name in SINK_KINDS if getattr(self, name) is not None)

    @property
    def options_secret(self) -> str | None:
        """The Secret with options, with properties of Kafka, the credentials of a store, or headers."""
        references = (
            self.kafka.properties_from if self.kafka else None,
            self.files.credentials_from if self.files else None,
            self.http.headers_from if self.http else None,
            self.function.options_from if self.function else None,
            self.plugin.options_from if self.plugin else None,
        )
        return next((reference.secret_name for reference in references if reference), None)
