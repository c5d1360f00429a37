"""What the operator and the driver agree on; both import it, so neither can drift.

The operator writes a `DriverConfig` and the driver reads it; the driver ends with an `ExitCode` and a `Verdict`, which
the operator reads. `Reason` is the vocabulary of both. The rules for Kafka's properties are in `kafka_properties`,
those for Spark's settings in `spark_conf`.
"""

from __future__ import annotations

from fencepost.contract.codec import ContractError, NotJsonError
from fencepost.contract.config import (
    CONTRACT_VERSION,
    LONGEST_REQUEST,
    TASK_ATTEMPTS,
    TASK_ATTEMPTS_SETTING,
    DataServiceConfig,
    DriverConfig,
    KafkaSource,
    StartingOffsets,
    StateConfig,
)
from fencepost.contract.endpoints import LOCAL_SERIAL, SERIAL, CassandraEndpoint, CassandraTls, KafkaEndpoint
from fencepost.contract.losses import (
    ABANDON,
    EARLIEST,
    LONGEST_CHOICE,
    LOSSES,
    REPLACED,
    Acceptance,
    Loss,
    ReportedLoss,
    TopicChange,
    choice_problem,
    commit_ms,
    starts_of,
)
from fencepost.contract.offsets import offset_key, split_offset_key
from fencepost.contract.pod import (
    BLOCK_MANAGER_PORT,
    CASSANDRA_CREDENTIALS_DIR,
    CASSANDRA_TLS_DIR,
    CODE_DIR,
    DATA_SERVICE_FILE,
    DATA_SERVICE_PORT,
    DRIVER_PORT,
    KAFKA_PROPERTIES_DIR,
    METRICS_PORT,
    NAME_SERVICE_PORT,
    SESSION_LIMIT,
    SINK_OPTIONS_DIR,
    TERMINATION_LOG,
    Variable,
)
from fencepost.contract.reasons import Reason
from fencepost.contract.sinks import (
    CassandraSink,
    ClusteringColumn,
    CreateTable,
    DeclaredSink,
    FunctionSink,
    KafkaSink,
    PluginSink,
)
from fencepost.contract.verdict import LOG_LINES, ExitCode, Verdict, last_lines

__all__ = [
    "ABANDON",
    "BLOCK_MANAGER_PORT",
    "CASSANDRA_CREDENTIALS_DIR",
    "CASSANDRA_TLS_DIR",
    "CODE_DIR",
    "CONTRACT_VERSION",
    "DATA_SERVICE_FILE",
    "DATA_SERVICE_PORT",
    "DRIVER_PORT",
    "EARLIEST",
    "KAFKA_PROPERTIES_DIR",
    "LOCAL_SERIAL",
    "LOG_LINES",
    "LONGEST_CHOICE",
    "LONGEST_REQUEST",
    "LOSSES",
    "METRICS_PORT",
    "NAME_SERVICE_PORT",
    "REPLACED",
    "SERIAL",
    "SESSION_LIMIT",
    "SINK_OPTIONS_DIR",
    "TASK_ATTEMPTS",
    "TASK_ATTEMPTS_SETTING",
    "TERMINATION_LOG",
    "Acceptance",
    "CassandraEndpoint",
    "CassandraSink",
    "CassandraTls",
    "ClusteringColumn",
    "ContractError",
    "CreateTable",
    "DataServiceConfig",
    "DeclaredSink",
    "DriverConfig",
    "ExitCode",
    "FunctionSink",
    "KafkaEndpoint",
    "KafkaSink",
    "KafkaSource",
    "Loss",
    "NotJsonError",
    "PluginSink",
    "Reason",
    "ReportedLoss",
    "StartingOffsets",
    "StateConfig",
    "TopicChange",
    "Variable",
    "Verdict",
    "choice_problem",
    "commit_ms",
    "last_lines",
    "offset_key",
    "split_offset_key",
    "starts_of",
]
