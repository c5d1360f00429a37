"""The StreamingPipeline as frozen dataclasses: what the user says (spec), what we say (status), in one vocabulary."""

from __future__ import annotations

from fencepost_operator.api.connections import CassandraConnection, KafkaConnection
from fencepost_operator.api.parsing import parse
from fencepost_operator.api.pipeline import Pipeline, read_pipeline, read_status, write_status
from fencepost_operator.api.reconcile_config import ReconcileConfig
from fencepost_operator.api.spec import (
    CheckpointSpec,
    ClusterSpec,
    DeletionPolicy,
    JobSpec,
    KafkaSpec,
    MasterSpec,
    RestartSpec,
    SinkSpec,
    Spec,
    Violation,
    WorkerSpec,
)
from fencepost_operator.api.status import (
    ClusterStatus,
    CommittedStatus,
    DataRisk,
    FailureStatus,
    OpenTransaction,
    RunStatus,
    Status,
)
from fencepost_operator.api.vocabulary import (
    ADOPT_ANNOTATION,
    FINALIZER,
    GROUP,
    KIND,
    PLURAL,
    RETRY_ANNOTATION,
    VERSION,
    Condition,
    Event,
    EventType,
    ObjectKey,
    Reason,
    State,
)

__all__ = [
    "ADOPT_ANNOTATION",
    "FINALIZER",
    "GROUP",
    "KIND",
    "PLURAL",
    "RETRY_ANNOTATION",
    "VERSION",
    "CassandraConnection",
    "CheckpointSpec",
    "ClusterSpec",
    "ClusterStatus",
    "CommittedStatus",
    "Condition",
    "DataRisk",
    "DeletionPolicy",
    "Event",
    "EventType",
    "FailureStatus",
    "JobSpec",
    "KafkaConnection",
    "KafkaSpec",
    "MasterSpec",
    "ObjectKey",
    "OpenTransaction",
    "Pipeline",
    "Reason",
    "ReconcileConfig",
    "RestartSpec",
    "RunStatus",
    "SinkSpec",
    "Spec",
    "State",
    "Status",
    "Violation",
    "WorkerSpec",
    "parse",
    "read_pipeline",
    "read_status",
    "write_status",
]
