"""The driver's pod: file names, ports and environment variables that the operator sets and the driver reads."""

from __future__ import annotations

from typing import Final

TERMINATION_LOG: Final = "/dev/termination-log"
"""Where Kubernetes reads the termination message (its default terminationMessagePath; 4096 bytes at most)."""

DRIVER_PORT: Final = 7078
"""Fixed port of the driver's RPC, so that a NetworkPolicy can name it."""

BLOCK_MANAGER_PORT: Final = 7079
"""Fixed port of the driver's block manager."""

NAME_SERVICE_PORT: Final = 7080
"""Fixed port at which a stateful pipeline's driver serves the names of the checkpoint directory."""

DATA_SERVICE_PORT: Final = 7081
"""Fixed port of a stateful pipeline's data services, in the driver's pod and in the workers'."""

DATA_SERVICE_FILE: Final = "data-service.json"
"""File of SPARK_CONF_DIR in a stateful pipeline's workers, with the JSON of `DataServiceConfig`."""

METRICS_PORT: Final = 9404
"""Fixed port of /metrics, in the driver's pod and in the workers'; `Variable.METRICS_PORT` names another one."""

SESSION_LIMIT: Final = 90.0
"""Seconds until a session that does not come up ends the run: a wrong secret or an absent master lets Spark hang."""

WARM_FILE: Final = "/tmp/fencepost-warm"  # noqa: S108 - the pod's own volume
"""Written by a run that awaits its epoch, once it is warm: the startup probe of its pod looks for it."""

KAFKA_PROPERTIES_DIR: Final = "/etc/fencepost/kafka"
"""Mount path of `source.kafka.propertiesFrom`: one file per property, named as librdkafka names the property."""

REGISTRY_CREDENTIALS_DIR: Final = "/etc/fencepost/schema-registry"
"""Mount path of `source.kafka.schemaRegistry.credentialsFrom`."""

TELEMETRY_CREDENTIALS_DIR: Final = "/etc/fencepost/observability"
"""Under it, in the driver, each receiver's `credentialsFrom` is mounted at the receiver's name."""

SINK_OPTIONS_DIR: Final = "/etc/fencepost/sinks"
"""Under it, in the driver, each sink's `optionsFrom` is mounted at the sink's name: one file per option."""

CASSANDRA_CREDENTIALS_DIR: Final = "/etc/fencepost/cassandra"
"""Mount path of `checkpoint.cassandra.credentialsFrom` in a stateful pipeline's workers: username and password."""

CASSANDRA_TLS_DIR: Final = "/etc/fencepost/cassandra-tls"
"""Mount path of `checkpoint.cassandra.tls`: ca.crt, and tls.crt and tls.key for a client certificate."""

POSTGRESQL_TLS_DIR: Final = "/etc/fencepost/postgresql-tls"
"""Mount path of `checkpoint.postgresql.tls`, with the same keys."""

CODE_DIR: Final = "/opt/fencepost/code"
"""Mount path of `job.codeFrom`, in the driver and in every worker; it is on PYTHONPATH."""


class Variable:
    """Names of the driver's environment variables."""

    CONFIG: Final = "FENCEPOST_CONFIG"
    """JSON of `DriverConfig`, where CONFIG_FILE is not set: without a pod."""
    CONFIG_FILE: Final = "FENCEPOST_CONFIG_FILE"
    """Path of a file with the JSON of `DriverConfig`. A variable of more than 128 KiB cannot be passed to a process."""
    POD_UID: Final = "FENCEPOST_POD_UID"
    """The pod's uid, from the downward API: the driver's identity at the fence."""
    METRICS_PORT: Final = "FENCEPOST_METRICS_PORT"
    """Another port for /metrics than METRICS_PORT; 0 serves none."""
    POD_IP: Final = "FENCEPOST_POD_IP"
    """The address at which executors reach the driver, from the downward API."""
    SPARK_AUTH_SECRET: Final = "FENCEPOST_SPARK_AUTH_SECRET"  # noqa: S105 - a variable's name
    """The cluster generation's shared secret."""
    CASSANDRA_USERNAME: Final = "FENCEPOST_CASSANDRA_USERNAME"
    CASSANDRA_PASSWORD: Final = "FENCEPOST_CASSANDRA_PASSWORD"  # noqa: S105 - a variable's name
    POSTGRESQL_USERNAME: Final = "FENCEPOST_POSTGRESQL_USERNAME"
    POSTGRESQL_PASSWORD: Final = "FENCEPOST_POSTGRESQL_PASSWORD"  # noqa: S105 - a variable's name
