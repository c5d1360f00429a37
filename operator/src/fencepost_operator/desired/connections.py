"""How the operator itself reaches what a spec names."""

from __future__ import annotations

from fencepost_operator.api import CassandraConnection, CheckpointSpec, KafkaConnection, ObjectKey, Spec


def cassandra_connection(key: ObjectKey, checkpoint: CheckpointSpec) -> CassandraConnection:
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
        replication_class=checkpoint.replication_class,
        replication_factor=checkpoint.replication_factor,
    )


def kafka_connection(key: ObjectKey, spec: Spec) -> KafkaConnection:
    """Return the way to the topics."""
    source = spec.source
    return KafkaConnection(
        namespace=key.namespace,
        bootstrap_servers=source.bootstrap_servers,
        topics=source.topics,
        properties=source.properties,
        properties_secret=source.properties_secret,
    )
