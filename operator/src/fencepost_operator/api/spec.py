"""What the user says: the spec of a StreamingPipeline, with every default in its place.

Durations are in seconds, memory in bytes. Parts that go to Kubernetes as they came (env, resources, tolerations,
affinity) stay plain mappings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from fencepost.contract import SERIAL, CassandraEndpoint, CassandraTls, KafkaEndpoint
from fencepost_operator.api.effects import Effect
from fencepost_operator.api.fields import (
    AnnotationKey,
    AnnotationText,
    Bytes,
    ClusteringOrder,
    ColumnName,
    Count,
    Entrypoint,
    GroupId,
    HostName,
    Identifier,
    Model,
    ObjectName,
    PluginName,
    Position,
    Positive,
    QuantityText,
    Seconds,
    SerialConsistency,
    SinkName,
    TableOption,
    Text,
)

Plain: TypeAlias = Mapping[str, Any]
"""A piece of JSON that Kubernetes understands and we only pass on."""


SMALLEST_WORKER: Final = 1024 * 1024 * 1024
"""Bytes. Python and the worker's daemon come on top of an executor's smallest heap, 450 MiB."""
WORKER_MEMORY: Final = 2 * 1024 * 1024 * 1024
DRIVER_HEAP: Final = 1024 * 1024 * 1024
"""Bytes, for transforms of single records in production; docs/sizing.md has the reasons."""


class DeletionPolicy(StrEnum):
    """Whether the fence row outlives the pipeline."""

    RETAIN = "Retain"
    DELETE = "Delete"


class UnprovenDeath(StrEnum):
    """What to do about a run whose driver may still live, as on a node that Kubernetes has lost."""

    FENCE = "fence"
    WAIT = "wait"


class Rollback(StrEnum):
    """Whether a new spec that fails is replaced by the last stable one."""

    ENABLED = "enabled"
    DISABLED = "disabled"


class PoisonAction(StrEnum):
    """What happens to a record that fails alone."""

    STOP = "stop"
    DEAD_LETTER = "deadLetter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference(Model):
    """An object in the pipeline's namespace."""

    name: ObjectName


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference(Model):
    """A Secret in the pipeline's namespace."""

    secret_name: ObjectName


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFromSpec(Model):
    """A ConfigMap with Python modules."""

    config_map_name: ObjectName


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec(Model):
    """The author's code and the driver's pod."""

    image: Annotated[Text, Effect.NEW_CLUSTER]
    entrypoint: Entrypoint
    image_pull_policy: Annotated[str | None, Effect.NEW_CLUSTER] = None
    image_pull_secrets: Annotated[tuple[ObjectReference, ...], Effect.NEW_CLUSTER] = ()
    code_from: Annotated[CodeFromSpec | None, Effect.NEW_CLUSTER] = None
    args: tuple[str, ...] = ()
    env: Annotated[tuple[Plain, ...], Effect.NEW_CLUSTER] = ()
    env_from: Annotated[tuple[Plain, ...], Effect.NEW_CLUSTER] = ()
    resources: Plain = field(default_factory=dict)
    memory: Bytes = DRIVER_HEAP
    termination_grace_period_seconds: Positive = 60
    scratch_size: QuantityText = "1Gi"

    @property
    def code_config_map(self) -> str | None:
        """The ConfigMap that the code comes from, None for the image."""
        return self.code_from.config_map_name if self.code_from else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec(Model):
    """One Spark worker; `memory` is the pod's."""

    cores: Positive = 1
    memory: Bytes = WORKER_MEMORY
    scratch_size: QuantityText = "2Gi"
    resources: Plain = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSpec(Model):
    """The master's recovery volume."""

    size: QuantityText = "64Mi"
    storage_class_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSpec(Model):
    """The Spark master."""

    resources: Plain = field(default_factory=dict)
    storage: StorageSpec = field(default_factory=StorageSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec(Model):
    """The Spark cluster, and where all the pipeline's pods run."""

    workers: Annotated[Positive, Effect.AT_ONCE] = 1
    worker: WorkerSpec = field(default_factory=WorkerSpec)
    master: MasterSpec = field(default_factory=MasterSpec)
    image: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Plain, ...] = ()
    affinity: Plain = field(default_factory=dict)
    priority_class_name: str | None = None
    service_account_name: ObjectName | None = None
    pod_annotations: Annotated[Mapping[AnnotationKey, AnnotationText], Field(max_length=32)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartingOffsetsSpec(Model):
    """Where to begin. `partitions` maps 'topic/partition' to an offset and takes precedence over `position`."""

    position: Position = "earliest"
    partitions: Mapping[str, Count] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSpec(Model, KafkaEndpoint):
    """What is read.

    `max_bytes_per_batch` None follows from the cluster's memory.
    """

    topics: Annotated[tuple[str, ...], Field(min_length=1)]
    starting_offsets: StartingOffsetsSpec = field(default_factory=StartingOffsetsSpec)
    max_records_per_batch: Annotated[Positive, Effect.NEXT_RUN] = 100_000
    min_records_per_batch: Annotated[Positive | None, Effect.NEXT_RUN] = None
    target_batch_duration: Annotated[Seconds, Effect.NEXT_RUN] = 10.0
    max_bytes_per_batch: Annotated[Bytes | None, Effect.NEXT_RUN] = None
    split_partitions: bool = True
    mirror_to_group: GroupId | None = None
    properties_from: SecretReference | None = None

    @property
    def properties_secret(self) -> str | None:
        """The Secret with properties of the client."""
        return self.properties_from.secret_name if self.properties_from else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSpec(Model):
    """The input."""

    kafka: KafkaSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringColumnSpec(Model):
    """A clustering column of a table that is created."""

    column: ColumnName
    order: ClusteringOrder = "ASC"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTableSpec(Model):
    """How a table is created that does not exist; its columns are the frame's."""

    partition_key: Annotated[tuple[ColumnName, ...], Field(min_length=1)]
    clustering_key: tuple[ClusteringColumnSpec, ...] = ()
    default_time_to_live: Positive | None = None
    compaction: Mapping[TableOption, TableOption] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeIndexSpec(Model):
    """The table beside a sink's that finds the rows of an offset."""

    retention: Seconds = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraSinkSpec(Model):
    """A table of the checkpoint's Cassandra cluster."""

    keyspace: Identifier
    table: Identifier
    ttl: Positive | None = None
    ttl_column: Text | None = None
    delete_where: Text | None = None
    create_table: CreateTableSpec | None = None
    purge_index: PurgeIndexSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSinkSpec(Model):
    """A topic; without `bootstrap_servers` of the source's cluster, reached as the source is."""

    topic: Text
    bootstrap_servers: Text | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    properties_from: SecretReference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSinkSpec(Model):
    """A function of the author. `options_from` takes precedence over `options`, name by name."""

    entrypoint: Entrypoint
    options: Mapping[str, str] = field(default_factory=dict)
    options_from: SecretReference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSinkSpec(Model):
    """A sink of another package, by its name in the entry-point group `fencepost.sinks`."""

    kind: PluginName
    options: Mapping[str, str] = field(default_factory=dict)
    options_from: SecretReference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec(Model):
    """One output, of exactly one kind."""

    name: SinkName
    cassandra: CassandraSinkSpec | None = None
    kafka: KafkaSinkSpec | None = None
    function: FunctionSinkSpec | None = None
    plugin: PluginSinkSpec | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are set."""
        return tuple(name for name in SINK_KINDS if getattr(self, name) is not None)

    @property
    def options_secret(self) -> str | None:
        """The Secret with options, or with properties of Kafka."""
        part = self.function or self.plugin
        found = self.kafka.properties_from if self.kafka else part.options_from if part else None
        return found.secret_name if found else None


SINK_KINDS: Final = ("cassandra", "kafka", "function", "plugin")
"""Fields of a sink of which exactly one is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraTlsSpec(Model, CassandraTls):
    """How the connection to Cassandra is encrypted, and the Secret with the certificates."""

    secret_name: ObjectName
    server_name: HostName | None = None
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSpec(Model):
    """Of a keyspace that is created; `replication_factor` None is as many as is usual and there are nodes."""

    class_: str = "NetworkTopologyStrategy"
    replication_factor: Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraSpec(Model, CassandraEndpoint):
    """The Cassandra cluster of the fence row."""

    contact_points: Annotated[tuple[str, ...], Field(min_length=1)]
    port: Positive = 9042
    local_datacenter: str | None = "datacenter1"
    keyspace: Identifier = "fencepost"
    consistency: str = "LOCAL_QUORUM"
    create_schema: Annotated[bool, Effect.AT_ONCE] = True
    serial_consistency: SerialConsistency = SERIAL
    tls: CassandraTlsSpec | None = None
    replication: Annotated[ReplicationSpec, Effect.AT_ONCE] = field(default_factory=ReplicationSpec)
    credentials_from: SecretReference | None = None

    @property
    def credentials_secret(self) -> str | None:
        """The Secret with the user name and the password."""
        return self.credentials_from.secret_name if self.credentials_from else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec(Model):
    """Where the fence row is."""

    cassandra: CassandraSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSpec(Model):
    """When a run is replaced; `max_attempts` 0 tries forever, another `nonce` tries again.

    `stop_timeout` None leaves a run that is asked to stop the whole of its pod's grace period.
    """

    max_backoff: Seconds = 300.0
    start_timeout: Seconds = 180.0
    stall_timeout: Seconds = 60.0
    stop_timeout: Seconds | None = None
    max_attempts: Count = 20
    nonce: Annotated[str, Field(max_length=64)] = ""
    on_unproven_death: UnprovenDeath = UnprovenDeath.FENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class StableAfterSpec(Model):
    """When a spec counts as stable: after so many commits of one run that has lived for so long."""

    commits: Positive = 3
    window: Seconds = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeSpec(Model):
    """What happens to a new spec that fails before it is stable.

    `max_attempts` bounds its runs that fail on their own, in a row and without progress, within `deadline` of its
    first one.
    """

    rollback: Rollback = Rollback.DISABLED
    max_attempts: Positive = 3
    deadline: Seconds = 1800.0
    stable_after: StableAfterSpec = field(default_factory=StableAfterSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnPoisonSpec(Model):
    """What to do about a record that fails each time; `retention` is of its dead letter."""

    action: PoisonAction = PoisonAction.STOP
    failures: Annotated[Positive, Effect.NEXT_RUN] = 3
    retention: Seconds = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepSpec(Model):
    """Which snapshots are kept."""

    count: Positive = 100
    age: Seconds = 720 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsSpec(Model):
    """How often the committed offsets are copied, in seconds (0: only on request), and which copies are kept."""

    every: Seconds = 3600.0
    keep: KeepSpec = field(default_factory=KeepSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(Model):
    """The whole spec."""

    job: Annotated[JobSpec, Effect.NEW_RUN]
    source: Annotated[SourceSpec, Effect.NEW_RUN]
    sinks: Annotated[tuple[SinkSpec, ...], Field(min_length=1), Effect.NEW_RUN]
    checkpoint: Annotated[CheckpointSpec, Effect.NEW_RUN]
    cluster: Annotated[ClusterSpec, Effect.NEW_CLUSTER] = field(default_factory=ClusterSpec)
    batch_interval: Annotated[Seconds, Effect.NEW_RUN] = 5.0
    restart: Annotated[RestartSpec, Effect.AT_ONCE] = field(default_factory=RestartSpec)
    upgrade: Annotated[UpgradeSpec, Effect.AT_ONCE] = field(default_factory=UpgradeSpec)
    on_poison: Annotated[OnPoisonSpec, Effect.NEW_RUN] = field(default_factory=OnPoisonSpec)
    snapshots: Annotated[SnapshotsSpec, Effect.AT_ONCE] = field(default_factory=SnapshotsSpec)
    deletion_policy: Annotated[DeletionPolicy, Effect.AT_ONCE] = DeletionPolicy.RETAIN
    suspend: Annotated[bool, Effect.SUSPENDS] = False


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong in a spec: the field's path, what is wrong, what to do."""

    field: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}; {self.remedy}"
