"""The StreamingPipeline as frozen dataclasses: what the user says (spec), what we say (status)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

GROUP: Final = "streaming.fencepost.dev"
VERSION: Final = "v1alpha1"
PLURAL: Final = "streamingpipelines"
KIND: Final = "StreamingPipeline"
FINALIZER: Final = f"{GROUP}/cleanup"
ADOPT_ANNOTATION: Final = f"{GROUP}/adopt-fence"
"""Set to "true" to take over a fence row that another cluster's pipeline owns."""


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """A pipeline's place: namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class State(StrEnum):
    """The phase shown by `kubectl get spl`; computed each time, never an input of a decision."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    STARTING = "Starting"
    RUNNING = "Running"
    CATCHING_UP = "CatchingUp"
    RESTARTING = "Restarting"
    UPGRADING = "Upgrading"
    SUSPENDED = "Suspended"
    STALLED = "Stalled"
    DELETING = "Deleting"


class EventType(StrEnum):
    """Kubernetes' two types of Events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the story that `kubectl describe` tells."""

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A standard condition. `status` is 'True', 'False' or 'Unknown'."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: datetime
    observed_generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """The run that the operator last recorded; written before its Job exists."""

    name: str
    epoch: int
    spec_hash: str
    recorded_at: datetime
    pod_name: str | None = None
    pod_uid: str | None = None
    node_name: str | None = None
    node_uid: str | None = None
    started_at: datetime | None = None
    stop_requested_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The Spark cluster that the operator last asked for; written before Helm is called."""

    release: str
    generation: int
    config_hash: str
    requested_at: datetime
    workers: int = 0
    ready_workers: int = 0
    selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedStatus:
    """The newest commit that was seen in the fence row, and since when the offsets have stood there."""

    version: int
    at: datetime | None
    since: datetime
    records: int | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureStatus:
    """The newest failed run, and how many failed in a row without a commit between them."""

    count: int
    epoch: int
    at: datetime
    reason: str
    message: str
    remedy: str
    exit_code: int | None = None
    next_attempt_at: datetime | None = None
    spec_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What we say. `lag` counts records, None while unknown; `observed_generation` -1 before the first look."""

    observed_generation: int = -1
    state: State = State.PENDING
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    epoch: int | None = None
    restarts: int = 0
    lag: int | None = None
    run: RunStatus | None = None
    cluster: ClusterStatus | None = None
    committed: CommittedStatus | None = None
    failure: FailureStatus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CassandraConnection:
    """Where the fence row lives and how it may be reached from the pipeline's namespace."""

    namespace: str
    contact_points: tuple[str, ...]
    port: int
    local_datacenter: str
    keyspace: str
    consistency: str
    credentials_secret: str | None
    create_schema: bool
    replication_class: str
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """Which topics to look at, and how Kafka may be reached from the pipeline's namespace."""

    namespace: str
    bootstrap_servers: str
    topics: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    properties_secret: str | None = None
