"""The words of the API: names, states, reasons, and the two things that every report is made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

GROUP: Final = "streaming.fencepost.dev"
VERSION: Final = "v1alpha1"
PLURAL: Final = "streamingpipelines"
KIND: Final = "StreamingPipeline"
FINALIZER: Final = f"{GROUP}/cleanup"
ADOPT_ANNOTATION: Final = f"{GROUP}/adopt-fence"
"""Whom to take a fence row over from: `<uid of that cluster>@<epoch>`, spent as soon as the epoch moves on."""
RETRY_ANNOTATION: Final = f"{GROUP}/retry"
"""Any new value starts the restart budget anew, e.g. the time of day."""


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


class Reason(StrEnum):
    """The one vocabulary of conditions, Events, log lines and metric labels; stable from release to release."""

    # On the way
    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    CLUSTER_READY = "ClusterReady"
    FENCED = "Fenced"
    RUN_STARTED = "RunStarted"
    RUN_CLAIMED = "RunClaimed"
    STARTING = "Starting"
    RESTARTING = "Restarting"
    BACKING_OFF = "BackingOff"
    UPGRADING = "Upgrading"
    SCALED = "Scaled"
    STOPPING = "Stopping"
    RESUMED = "Resumed"
    DELETING = "Deleting"
    RELEASED = "Released"
    FENCE_KEPT = "FenceKept"
    # There
    STREAMING = "Streaming"
    CATCHING_UP = "CatchingUp"
    IDLE = "Idle"
    SUSPENDED = "Suspended"
    # What a person must mend
    INVALID_SPEC = "InvalidSpec"
    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a word, not a secret
    TOPIC_NOT_FOUND = "TopicNotFound"
    FENCE_OWNED_ELSEWHERE = "FenceOwnedElsewhere"
    FENCE_LOST = "FenceLost"
    FENCE_ROLLED_BACK = "FenceRolledBack"
    RESTART_BUDGET_EXHAUSTED = "RestartBudgetExhausted"
    # What cannot be reached
    KUBERNETES_UNREACHABLE = "KubernetesUnreachable"
    CHECKPOINT_UNREACHABLE = "CheckpointUnreachable"
    CHECKPOINT_CREDENTIALS_REJECTED = "CheckpointCredentialsRejected"
    CHECKPOINT_REJECTED = "CheckpointRejected"
    KAFKA_UNREACHABLE = "KafkaUnreachable"
    KAFKA_CREDENTIALS_REJECTED = "KafkaCredentialsRejected"
    KAFKA_REJECTED = "KafkaRejected"
    # Pods that cannot get going
    IMAGE_PULL_FAILED = "ImagePullFailed"
    UNSCHEDULABLE = "Unschedulable"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    CRASH_LOOP = "CrashLoop"
    POD_REFUSED = "PodRefused"
    POD_TROUBLE = "PodIssue"
    # How runs end
    RUN_FAILED = "RunFailed"
    RUN_ENDED = "RunEnded"
    FENCED_OUT = "FencedOut"
    BAD_SPEC = "BadSpec"
    DATA_LOSS = "DataLoss"
    POISON_RECORD = "PoisonRecord"
    DEPENDENCY_DOWN = "DependencyDown"
    NO_EXECUTORS = "NoExecutors"
    OUT_OF_MEMORY = "OutOfMemory"
    KILLED = "Killed"
    POD_LOST = "PodLost"
    SUPERSEDED = "Superseded"
    UNRESPONSIVE = "Unresponsive"
    NEVER_CLAIMED = "NeverClaimed"
    # Actions that failed
    INSTALL_FAILED = "InstallFailed"
    UNINSTALL_FAILED = "UninstallFailed"
    START_FAILED = "StartFailed"
    STOP_FAILED = "StopFailed"
    UPDATE_FAILED = "UpdateFailed"
    NO_EFFECT = "NoEffect"


class EventType(StrEnum):
    """Kubernetes' two types of Events."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the status_events that `kubectl describe` tells."""

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
