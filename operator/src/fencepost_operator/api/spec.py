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
from fencepost_operator.api.fields import (
    AnnotationKey,
    AnnotationText,
    At,
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
    ObjectNames,
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
class JobSpec(Model):
    """The author's code and the driver's pod."""

    image: Text
    entrypoint: Entrypoint
    image_pull_policy: str | None = None
    image_pull_secrets: ObjectNames = ()
    code_config_map: Annotated[ObjectName | None, At("codeFrom", "configMapName")] = None
    args: tuple[str, ...] = ()
    env: tuple[Plain, ...] = ()
    env_from: tuple[Plain, ...] = ()
    resources: Plain = field(default_factory=dict)
    memory: Bytes = DRIVER_HEAP
    termination_grace: Annotated[Positive, At("terminationGracePeriodSeconds")] = 60
    scratch_size: QuantityText = "1Gi"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec(Model):
    """One Spark worker; `memory` is the pod's."""

    cores: Positive = 1
    memory: Bytes = WORKER_MEMORY
    scratch_size: QuantityText = "2Gi"
    resources: Plain = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSpec(Model):
    """The Spark master and its recovery volume."""

    resources: Plain = field(default_factory=dict)
    storage_size: Annotated[QuantityText, At("storage", "size")] = "64Mi"
    storage_class: Annotated[str | None, At("storage", "storageClassName")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec(Model):
    """The Spark cluster, and where all the pipeline's pods run."""

    workers: Positive = 1
    worker: WorkerSpec = field(default_factory=WorkerSpec)
    master: MasterSpec = field(default_factory=MasterSpec)
    image: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Plain, ...] = ()
    affinity: Plain = field(default_factory=dict)
    priority_class: Annotated[str | None, At("priorityClassName")] = None
    service_account_name: ObjectName | None = None
    pod_annotations: Annotated[Mapping[AnnotationKey, AnnotationText], Field(max_length=32)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSpec(Model, KafkaEndpoint):
    """What is read. `starting_partitions` maps 'topic/partition' to an offset and goes before the position.

    `max_bytes_per_batch` None follows from the cluster's memory.
    """

    topics: Annotated[tuple[str, ...], Field(min_length=1)]
    starting_position: Annotated[Position, At("startingOffsets", "position")] = "earliest"
    starting_partitions: Annotated[Mapping[str, Count], At("startingOffsets", "partitions")] = field(
        default_factory=dict
    )
    max_records_per_batch: Positive = 100_000
    min_records_per_batch: Positive | None = None
    target_batch_duration: Seconds = 10.0
    max_bytes_per_batch: Bytes | None = None
    split_partitions: bool = True
    mirror_to_group: GroupId | None = None
    properties_secret: Annotated[ObjectName | None, At("propertiesFrom", "secretName")] = None


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
class SecretReference(Model):
    """A Secret in the pipeline's namespace."""

    secret_name: ObjectName


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
class CheckpointSpec(Model, CassandraEndpoint):
    """The Cassandra cluster of the fence row."""

    contact_points: Annotated[tuple[str, ...], Field(min_length=1)]
    port: Positive = 9042
    local_datacenter: str | None = "datacenter1"
    keyspace: Identifier = "fencepost"
    consistency: str = "LOCAL_QUORUM"
    create_schema: bool = True
    serial_consistency: SerialConsistency = SERIAL
    tls: CassandraTlsSpec | None = None
    replication_class: Annotated[str, At("replication", "class")] = "NetworkTopologyStrategy"
    replication_factor: Annotated[Positive | None, At("replication", "replicationFactor")] = None
    credentials_secret: Annotated[ObjectName | None, At("credentialsFrom", "secretName")] = None


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
    failures: Positive = 3
    retention: Seconds = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsSpec(Model):
    """How often the committed offsets are copied, in seconds (0: only on request), and how many copies are kept."""

    every: Seconds = 3600.0
    keep_count: Annotated[Positive, At("keep", "count")] = 100
    keep_age: Annotated[Seconds, At("keep", "age")] = 720 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec(Model):
    """The whole spec."""

    job: JobSpec
    source: Annotated[KafkaSpec, At("source", "kafka")]
    sinks: Annotated[tuple[SinkSpec, ...], Field(min_length=1)]
    checkpoint: Annotated[CheckpointSpec, At("checkpoint", "cassandra")]
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    batch_interval: Seconds = 5.0
    restart: RestartSpec = field(default_factory=RestartSpec)
    upgrade: UpgradeSpec = field(default_factory=UpgradeSpec)
    on_poison: OnPoisonSpec = field(default_factory=OnPoisonSpec)
    snapshots: SnapshotsSpec = field(default_factory=SnapshotsSpec)
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    suspend: bool = False


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong in a spec: the field's path, what is wrong, what to do."""

    field: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}; {self.remedy}"
