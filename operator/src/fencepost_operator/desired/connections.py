"""How the operator itself reaches what a spec names."""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.api import (
    CassandraConnection,
    CassandraSpec,
    CheckpointSpec,
    FenceConnection,
    KafkaConnection,
    ObjectKey,
    PostgresqlConnection,
    PostgresqlSpec,
    Spec,
)
from fencepost_operator.desired import names


def cassandra_connection(key: ObjectKey, checkpoint: CassandraSpec) -> CassandraConnection:
    """Return the way to the fence row."""
    return CassandraConnection(
        namespace=key.namespace,
        contact_points=checkpoint.contact_points,
        port=checkpoint.port,
        local_datacenter=checkpoint.local_datacenter,
        serial_consistency=checkpoint.serial_consistency,
        tls=checkpoint.tls.options if checkpoint.tls else None,
        tls_secret=checkpoint.tls.secret_name if checkpoint.tls else None,
        keyspace=checkpoint.keyspace,
        consistency=checkpoint.consistency,
        credentials_secret=checkpoint.credentials_secret,
        create_schema=checkpoint.create_schema,
        replication_class=checkpoint.replication.class_,
        replication_factor=checkpoint.replication.replication_factor,
    )


def fence_place(key: ObjectKey, checkpoint: CheckpointSpec, scope: str) -> tuple[FenceConnection, str]:
    """Return where the fence row is: the way to its database, and its key."""
    found = checkpoint.database
    connection: FenceConnection = (
        cassandra_connection(key, found) if isinstance(found, CassandraSpec) else _postgresql_connection(key, found)
    )
    return connection, names.fence_key(scope, key)


def _postgresql_connection(key: ObjectKey, checkpoint: PostgresqlSpec) -> PostgresqlConnection:
    return PostgresqlConnection(
        namespace=key.namespace,
        hosts=checkpoint.hosts,
        port=checkpoint.port,
        database=checkpoint.database,
        tls=checkpoint.tls.options if checkpoint.tls else None,
        tls_secret=checkpoint.tls.secret_name if checkpoint.tls else None,
        schema=checkpoint.schema,
        credentials_secret=checkpoint.credentials_secret,
        create_schema=checkpoint.create_schema,
    )


def sink_connections(key: ObjectKey, spec: Spec) -> dict[str, KafkaConnection]:
    """Return the way to each Kafka sink's topics, by the sink's name; without a cluster of its own the source's."""
    source, found = kafka_connection(key, spec), dict[str, KafkaConnection]()
    for sink in spec.sinks:
        if (kafka := sink.kafka) is None:
            continue
        found[sink.name] = (
            replace(source, topics=kafka.destinations)
            if kafka.bootstrap_servers is None
            else KafkaConnection(
                namespace=key.namespace,
                bootstrap_servers=kafka.bootstrap_servers,
                topics=kafka.destinations,
                properties=kafka.properties,
                properties_secret=sink.options_secret,
            )
        )
    return found


def kafka_connection(key: ObjectKey, spec: Spec) -> KafkaConnection:
    """Return the way to the topics."""
    source = spec.source.kafka
    return KafkaConnection(
        namespace=key.namespace,
        bootstrap_servers=source.bootstrap_servers,
        topics=source.topics,
        properties=source.properties,
        properties_secret=source.properties_secret,
    )
