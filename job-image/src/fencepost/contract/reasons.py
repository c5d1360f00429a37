"""The one vocabulary of reasons, for the operator and the driver.

A reason is one CamelCase word that stays the same from release to release. It appears in conditions, Events, verdicts,
log lines and metric labels. The message beside it is for people and may change.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why something is as it is, for machines."""

    # Progress
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
    # Steady states
    STREAMING = "Streaming"
    CATCHING_UP = "CatchingUp"
    IDLE = "Idle"
    SUSPENDED = "Suspended"
    # A person must correct it
    INVALID_SPEC = "InvalidSpec"
    CONFIG_MAP_NOT_FOUND = "ConfigMapNotFound"
    SECRET_NOT_FOUND = "SecretNotFound"  # noqa: S105 - a reason, not a secret
    TOPIC_NOT_FOUND = "TopicNotFound"
    FENCE_OWNED_ELSEWHERE = "FenceOwnedElsewhere"
    FENCE_LOST = "FenceLost"
    FENCE_ROLLED_BACK = "FenceRolledBack"
    FENCE_SCHEMA_MISSING = "FenceSchemaMissing"
    FENCE_SCHEMA_INVALID = "FenceSchemaInvalid"
    RESTART_BUDGET_EXHAUSTED = "RestartBudgetExhausted"
    KAFKA_PROPERTIES_INVALID = "KafkaPropertiesInvalid"
    SPARK_CONF_INVALID = "SparkConfInvalid"
    STARTING_OFFSET_OUT_OF_RANGE = "StartingOffsetOutOfRange"
    ENTRYPOINT_INVALID = "EntrypointInvalid"
    ENTRYPOINT_NOT_FOUND = "EntrypointNotFound"
    ENTRYPOINT_FAILED = "EntrypointFailed"
    TRANSFORM_INVALID = "TransformInvalid"
    SINK_NOT_FOUND = "SinkNotFound"
    SINK_MISMATCH = "SinkMismatch"
    SINK_INVALID = "SinkInvalid"
    CONTRACT_MISMATCH = "ContractMismatch"
    # A dependency does not answer, or refuses
    KUBERNETES_UNREACHABLE = "KubernetesUnreachable"
    CASSANDRA_UNREACHABLE = "CassandraUnreachable"
    CASSANDRA_CREDENTIALS_REJECTED = "CassandraCredentialsRejected"
    CASSANDRA_REJECTED = "CassandraRejected"
    PROGRESS_UNREADABLE = "ProgressUnreadable"
    TRANSACTION_STALLED = "TransactionStalled"
    KAFKA_UNREACHABLE = "KafkaUnreachable"
    KAFKA_CREDENTIALS_REJECTED = "KafkaCredentialsRejected"
    KAFKA_REJECTED = "KafkaRejected"
    SPARK_UNREACHABLE = "SparkUnreachable"
    CLOCK_SKEW = "ClockSkew"
    # Kafka deletes records before they are read
    DATA_EXPIRES_SOON = "DataExpiresSoon"
    DATA_EXPIRED = "DataExpired"
    RETENTION_TOO_SHORT = "RetentionTooShort"
    # Pods that do not start
    IMAGE_PULL_FAILED = "ImagePullFailed"
    UNSCHEDULABLE = "Unschedulable"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    CRASH_LOOP = "CrashLoop"
    POD_REFUSED = "PodRefused"
    POD_ISSUE = "PodIssue"
    # How a run ends
    STOPPED = "Stopped"
    STOP_TIMED_OUT = "StopTimedOut"
    FAILED = "Failed"
    RUN_FAILED = "RunFailed"
    RUN_ENDED = "RunEnded"
    FENCED_OUT = "FencedOut"
    BAD_SPEC = "BadSpec"
    BATCH_FAILED = "BatchFailed"
    TRANSFORM_FAILED = "TransformFailed"
    DATA_LOSS = "DataLoss"
    OFFSET_OUT_OF_RANGE = "OffsetOutOfRange"
    LOG_TRUNCATED = "LogTruncated"
    TOPIC_DELETED = "TopicDeleted"
    TOPIC_RECREATED = "TopicRecreated"
    POISON_RECORD = "PoisonRecord"
    DEPENDENCY_DOWN = "DependencyDown"
    NO_EXECUTORS = "NoExecutors"
    JVM_FAILED = "JvmFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    KILLED = "Killed"
    POD_LOST = "PodLost"
    SUPERSEDED = "Superseded"
    UNRESPONSIVE = "Unresponsive"
    NEVER_CLAIMED = "NeverClaimed"
    # Actions of the operator that failed
    INSTALL_FAILED = "InstallFailed"
    UNINSTALL_FAILED = "UninstallFailed"
    START_FAILED = "StartFailed"
    STOP_FAILED = "StopFailed"
    UPDATE_FAILED = "UpdateFailed"
    NO_EFFECT = "NoEffect"
    # The operator itself
    BAD_SETTINGS = "BadSettings"
    NOT_SERVED = "NotServed"
    LIST_FAILED = "ListFailed"
    CRASHED = "Crashed"
    PASS_FAILED = "PassFailed"  # noqa: S105 - a reason, not a password
