"""Where a task writes to in the testbed's Cassandra."""

from __future__ import annotations

from fencepost.contract import CassandraEndpoint
from fencepost.sinks.cassandra.writer import Target
from testbed.environment import Environment


def target_of(
    environment: Environment,
    *,
    keyspace: str,
    table: str,
    primary_key: tuple[str, ...] = ("topic", "partition", "offset"),
    partition_key: tuple[str, ...] = ("topic", "partition"),
    patience: float = 30.0,
) -> Target:
    """Return a table; its rows are those of records, by their place in Kafka, unless it says otherwise."""
    return Target(
        cassandra=CassandraEndpoint(contact_points=(environment.cassandra_host,), port=environment.cassandra_port),
        credentials=(environment.cassandra_username, environment.cassandra_password),
        consistency="LOCAL_QUORUM",
        keyspace=keyspace,
        table=table,
        primary_key=primary_key,
        partition_key=partition_key,
        patience=patience,
    )
