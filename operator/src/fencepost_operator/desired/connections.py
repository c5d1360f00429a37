"""How the operator itself reaches what a spec names."""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.api import CassandraConnection, CassandraSpec, KafkaConnection, ObjectKey, Spec
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


def fence_place(key: ObjectKey, checkpoint: CassandraSpec, scope: str) -> tuple[CassandraConnection, str]:
    """Return where the fence row is: the way to its Cassandra, and its key."""
    return cassandra_connection(key, checkpoint), names.fence_key(scope, key)


def sink_connections(key: ObjectKey, spec: Spec) -> dict[str, KafkaConnection]:
    """Return the way to the topic of each Kafka sink, by the sink's name; without a cluster of its own the source's."""
    source, found = kafka_connection(key, spec), dict[str, KafkaConnection]()
    for sink in spec.sinks:
        if (kafka := sink.kafka) is None:
            continue
        found[sink.name] = (
            replace(source, topics=(kafka.topic,))
            if kafka.bootstrap_servers is None
            else KafkaConnection(
                namespace=key.namespace,
                bootstrap_servers=kafka.bootstrap_servers,
                topics=(kafka.topic,),
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
