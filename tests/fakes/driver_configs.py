"""The configuration of a run that tests begin from; they replace what matters to them."""

from __future__ import annotations

from typing import Final

from fencepost.contract import CassandraEndpoint, CassandraSink, DriverConfig, KafkaSource

USUAL: Final = DriverConfig(
    pipeline="s/ns/n", epoch=4, entrypoint="m:f", args=(), code="c",
    source=KafkaSource(bootstrap_servers="k:9092", topics=("t",)),
    sinks=(CassandraSink(name="rows", keyspace="k", table="t"),), cassandra=CassandraEndpoint(contact_points=("c",)),
    fence_keyspace="f", consistency="LOCAL_QUORUM", batch_interval=1.0, spark_master="local[2]", spark_conf={},
    executors=1, termination_grace=30.0,
)  # fmt: skip
