"""What the user says: the spec of a StreamingPipeline, with every default in its place.

Durations are in seconds, memory in bytes. Parts that go to Kubernetes as they came (env, resources, tolerations,
affinity) stay plain mappings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from fencepost.contract import CassandraEndpoint, KafkaEndpoint

Plain: TypeAlias = Mapping[str, Any]
"""A piece of JSON that Kubernetes understands and we only pass on."""


class DeletionPolicy(StrEnum):
    """Whether the fence row outlives the pipeline."""

    RETAIN = "Retain"
    DELETE = "Delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """The author's code and the driver's pod."""

    image: str
    entrypoint: str
    image_pull_policy: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    code_config_map: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[Plain, ...] = ()
    env_from: tuple[Plain, ...] = ()
    resources: Plain = field(default_factory=dict)
    memory: int = 512 * 1024 * 1024
    termination_grace: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One Spark worker; `memory` is the pod's."""

    cores: int = 1
    memory: int = 1024 * 1024 * 1024
    resources: Plain = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterSpec:
    """The Spark master and its recovery volume."""

    resources: Plain = field(default_factory=dict)
    storage_size: str = "64Mi"
    storage_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The Spark cluster, and where all the pipeline's pods run."""

    workers: int = 1
    worker: WorkerSpec = field(default_factory=WorkerSpec)
    master: MasterSpec = field(default_factory=MasterSpec)
    image: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Plain, ...] = ()
    affinity: Plain = field(default_factory=dict)
    priority_class: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSpec(KafkaEndpoint):
    """What is read. `starting_partitions` maps 'topic/partition' to an offset and goes before the position."""

    topics: tuple[str, ...]
    starting_position: str = "earliest"
    starting_partitions: Mapping[str, int] = field(default_factory=dict)
    max_records_per_batch: int = 100_000
    properties_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """One output table of the checkpoint's Cassandra cluster."""

    name: str
    keyspace: str
    table: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec(CassandraEndpoint):
    """The Cassandra cluster of the fence row."""

    local_datacenter: str | None = "datacenter1"
    keyspace: str = "fencepost"
    consistency: str = "LOCAL_QUORUM"
    create_schema: bool = True
    replication_class: str = "SimpleStrategy"
    replication_factor: int = 1
    credentials_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSpec:
    """When a run is replaced; `max_attempts` 0 tries for ever."""

    max_backoff: float = 300.0
    stall_timeout: float = 60.0
    max_attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The whole spec."""

    job: JobSpec
    source: KafkaSpec
    sinks: tuple[SinkSpec, ...]
    checkpoint: CheckpointSpec
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    batch_interval: float = 5.0
    restart: RestartSpec = field(default_factory=RestartSpec)
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
