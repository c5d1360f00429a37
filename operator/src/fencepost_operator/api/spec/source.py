"""`spec.source`: what is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field

from fencepost.contract import Format, KafkaEndpoint, RegistryEndpoint, kafka_properties
from fencepost_operator.api.checks import SET, DurationRange, Matching, QuantityRange, Rule, keyed_by
from fencepost_operator.api.effects import Effect
from fencepost_operator.api.fields import (
    BootstrapServers,
    Bytes,
    Count,
    HttpAddress,
    KafkaName,
    Line,
    MessageName,
    ObjectName,
    PartitionKey,
    Seconds,
)
from fencepost_operator.api.model import Model
from fencepost_operator.api.spec.pods import SecretReference

BatchRecords = Annotated[int, Field(ge=1, le=10_000_000)]

_RESERVED: Final = sorted(kafka_properties.RESERVED)
_UNSET: Final = Rule(
    f"self.all(k, !(k in {_RESERVED}))",
    f"remove {', '.join(_RESERVED[:-1])} or {_RESERVED[-1]}; Fencepost sets them from source.kafka.bootstrapServers and"
    " source.kafka.startingOffsets",
)
_NO_SECRETS: Final = Rule(
    f"self.all(k, !(k in {sorted(kafka_properties.SECRETS)}))",
    "passwords and private keys must not be in a manifest; put them into the Secret that"
    " source.kafka.propertiesFrom.secretName names",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingOffsetsSpec(Model):
    """Where to begin in a partition without a committed offset. It has no effect after the first commit."""

    position: Literal["earliest", "latest"] = "earliest"
    """Begin at the oldest record of the log, or at its end."""
    partitions: Annotated[Mapping[PartitionKey, Count], Field(max_length=1000)] = field(default_factory=dict)
    """First offset to read, by topic/partition, such as flights/0. Takes precedence over position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistrySpec(Model, RegistryEndpoint):
    """A schema registry with Confluent's REST API. The driver and its workers connect to it, the operator does not."""

    url: HttpAddress
    """Address of the registry, such as https://registry.shop.svc:8081, with the path of the API if it has one."""
    credentials_from: SecretReference | None = None
    """Secret with the keys that the registry asks for: username and password, or token; headers with a line `name:
    value` for each; ca.crt with the authorities of its certificate; tls.crt and tls.key of a client certificate.
    Without ca.crt, the image's own authorities count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFormatSpec(Model):
    """A schema of the registry. The column has its type; the records may be written with other schemas that it can
    read.
    """

    MARKS = (
        Rule(
            f"!has(self.message) || self.format == '{Format.PROTOBUF}'",
            f"needs the format {Format.PROTOBUF}; remove it",
            field_path=".message",
        ),
    )

    format: Format
    """Format of the schema and of the records."""
    subject: Annotated[Line, Field(min_length=1, max_length=500)]
    """Subject of the schema to read with, such as flights-value."""
    version: Annotated[int, Field(ge=1, le=2_147_483_647)]
    """Version of the subject. It is pinned, so that a repeated batch has the same columns."""
    message: MessageName | None = None
    """Full name of the Protobuf message, such as air.Flight. Defaults to the first one of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSpec(Model, KafkaEndpoint):
    """Topics of one Kafka cluster. Each partition is read in batches, in the order of its offsets."""

    MARKS = (
        Rule(
            "!has(self.startingOffsets) || !has(self.startingOffsets.partitions) ||"
            " self.startingOffsets.partitions.all(k, k.split('/')[0] in self.topics)",
            "every key must name a topic of source.kafka.topics, as topic/partition; add the topic or remove the key",
            field_path=".startingOffsets.partitions",
        ),
        Rule(
            "!has(self.minRecordsPerBatch) || self.minRecordsPerBatch <= self.maxRecordsPerBatch",
            "must not be more than maxRecordsPerBatch; lower it",
            field_path=".minRecordsPerBatch",
        ),
        Rule(
            "has(self.schemaRegistry) || !(has(self.key) || has(self.value))",
            "key and value must have a schemaRegistry beside them; add it, or remove them to get bytes",
        ),
    )

    bootstrap_servers: BootstrapServers
    """Bootstrap servers as host:port, or several separated by commas."""
    topics: Annotated[tuple[KafkaName, ...], Field(min_length=1, max_length=50), SET]
    """Names of the topics."""
    starting_offsets: StartingOffsetsSpec = field(default_factory=StartingOffsetsSpec)
    target_batch_duration: Annotated[Seconds, DurationRange("100ms", "1h", "5s or 1m30s"), Effect.NEXT_RUN] = 10.0
    """Time that a batch should take to be read, transformed and written, such as 5s. The number of records per batch
    follows from it and the rate of the batches before, between minRecordsPerBatch and maxRecordsPerBatch. From 100ms to
    1h."""
    min_records_per_batch: Annotated[BatchRecords | None, Effect.NEXT_RUN] = None
    """Records to which a batch that takes too long may shrink. By default 1,000, or maxRecordsPerBatch if that is less.
    maxBytesPerBatch takes precedence."""
    max_records_per_batch: Annotated[BatchRecords, Effect.NEXT_RUN] = 100_000
    """Maximum number of records per batch over all partitions. It limits memory, also after an outage."""
    max_bytes_per_batch: Annotated[Annotated[Bytes, QuantityRange("1Mi", "256Mi")] | None, Effect.NEXT_RUN] = None
    """Bytes of keys, values and headers that a batch may read, a quantity such as 256Mi. The number of records follows
    from the mean size of those before; until that is known, each record counts as 1Mi. By default a quarter of the
    heaps of all executors together."""
    split_partitions: bool = True
    """Whether several Spark tasks may share the records that a batch has of one partition. If false, they stay in one
    task, in the order of their offsets; a partition is then not faster than one core."""
    mirror_to_group: KafkaName | None = None
    """Consumer group to which the driver copies the committed offsets, for Kafka's tools, such as
    kafka-consumer-groups. The group is never joined and never read. It needs Read on the group. Use one group per
    pipeline."""
    properties: Annotated[
        Mapping[
            Annotated[
                str,
                Field(max_length=100),
                Matching("[a-z0-9._]+", "a property of librdkafka, such as security.protocol"),
            ],
            Annotated[Line, Field(max_length=16384)],
        ],
        Field(max_length=100),
        _UNSET,
        _NO_SECRETS,
    ] = field(default_factory=dict)
    """Properties of the Kafka client by their librdkafka names, such as security.protocol. Values are strings. Only
    allowed properties are accepted. Passwords and keys belong in propertiesFrom."""
    properties_from: SecretReference | None = None
    """Properties of the Kafka client from a Secret, in which each key is a property's librdkafka name. They take
    precedence over properties."""

    schema_registry: SchemaRegistrySpec | None = None
    key: RecordFormatSpec | None = None
    """Schema of the keys. Keys are bytes by default."""
    value: RecordFormatSpec | None = None
    """Schema of the values. Values are bytes by default."""

    @property
    def registry_secret(self) -> str | None:
        """The Secret with the registry's credentials."""
        found = self.schema_registry.credentials_from if self.schema_registry else None
        return found.secret_name if found else None

    @property
    def properties_secret(self) -> str | None:
        """The Secret with properties of the client."""
        return self.properties_from.secret_name if self.properties_from else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedStateSpec(Model):
    """Rows of a stateful pipeline's state as a snapshot has them, which the function gets from context.state(NAME). The
    pipeline has the same checkpoint.cassandra. The snapshot is kept while an entry names it.
    """

    name: Annotated[
        str,
        Field(max_length=40),
        Matching("[a-z]([-_a-z0-9]*[a-z0-9])?", "a name: lower-case letters, digits, - and _"),
    ]
    """Name of the entry, as the function passes it."""
    pipeline: ObjectName
    """Name of the stateful pipeline, in this pipeline's namespace."""
    snapshot: Annotated[
        str,
        Field(max_length=36),
        Matching("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "a snapshot's id, as `fencepost snapshots list` has it"),
    ]
    """Id of the snapshot. Not a name: several snapshots may have one, one after the other."""
    operator: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of the stateful operator, as `fencepost state show` has it. Not needed where there is only one."""
    store: Annotated[Line, Field(min_length=1, max_length=200)] | None = None
    """Store of the operator: a side of a join, a variable or timers. Not needed where there is only one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec(Model):
    """Input of the pipeline."""

    kafka: KafkaSpec
    pinned_states: Annotated[tuple[PinnedStateSpec, ...], Field(max_length=5), keyed_by("name")] = ()
    """Rows of other pipelines' states beside the records. They are read once per run and never change; each may have 32
    MiB."""
