"""A pipeline for `fencepost` as a user starts it: in the API server, with the testbed's Kafka and Cassandra."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cassandra.cluster import Session

from contract.cassandra import open_session
from fakes.driver_configs import USUAL
from fencepost.contract import CassandraEndpoint, CassandraSink, DriverConfig, KafkaSource
from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema
from fencepost.kafka.log import KafkaLog
from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, NAMESPACES, SECRETS, ApiServer
from fencepost_operator.api import JobMode, ObjectKey
from fencepost_operator.desired import labels, names
from fencepost_operator.desired.jobs import run_config
from fencepost_operator.errors import FencepostError
from integration.driver.support import Kafka
from integration.operator.cluster import PIPELINES, pipeline_manifest
from testbed.environment import Environment

KEYSPACE = "fencepost_cli"
WRITE = 'INSERT INTO fencepost_cli.orders (topic, partition, "offset", n) VALUES (%s, %s, %s, 1)'
DELETE = 'DELETE FROM fencepost_cli.orders WHERE topic = %s AND partition = %s AND "offset" = %s'
UPDATE_FENCE = "UPDATE fencepost_cli.fence SET version = %s, offsets = %s WHERE pipeline = %s IF EXISTS"
SCOPE = "cli-test"
"""Not the scope of an operator that runs: no other process changes the row."""
RECORDS = 40
ABSENT = "absent.fencepost.test"
"""A name without an address."""
ASK_KAFKA = {("fence", "show"), ("dead-letters", "retry")}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scene:
    environment: Environment
    key: ObjectKey
    topic: str
    session: Session
    row: FenceRow

    def fencepost(self, *words: str, addresses: bool = True) -> subprocess.CompletedProcess[str]:
        here: list[str] = []
        if words[0] != "retention":
            here += ["--cassandra", f"{self.environment.cassandra_host}:{self.environment.cassandra_port}"]
        if words[0] in {"offsets", "replay", "retention", "sample"} or words[:2] in ASK_KAFKA:
            here += ["--kafka", self.environment.kafka_host]
        command = [sys.executable, "-m", "fencepost_cli", *words, *(here if addresses else [])]
        variables = {**os.environ, "KUBECONFIG": str(self.environment.kubeconfig)}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    def json(self, *words: str, code: int = 0) -> Any:
        ended = self.fencepost(*words, "-o", "json")
        assert ended.returncode == code, ended.stderr
        return json.loads(ended.stdout)


@contextmanager
def played(
    environment: Environment, *, contact_point: str = ABSENT, servers: str = f"{ABSENT}:9092"
) -> Iterator[Scene]:
    """A pipeline that committed two batches of two partitions, with a row in its table for each record.

    Its spec has the given contact point and bootstrap servers, wherever the rows and records are.
    """
    mark = uuid.uuid4().hex[:8]
    key, topic = ObjectKey(f"test-cli-{mark}", "orders"), f"cli-{mark}"
    kafka, session = Kafka(environment.kafka_host), open_session()
    create_schema(session, KEYSPACE, {"class": "SimpleStrategy", "replication_factor": 1})
    session.execute(
        'CREATE TABLE IF NOT EXISTS fencepost_cli.orders (topic text, partition int, "offset" bigint, n int,'
        ' PRIMARY KEY ((topic, partition), "offset"))',
        timeout=60,
    )
    kafka.create(topic, 2)
    kafka.produce(topic, RECORDS, partitions=2)
    ids = KafkaLog({"bootstrap.servers": environment.kafka_host}, [topic], patience=60).state().topic_ids
    row = committed(session, f"{SCOPE}/{key}", topic, ids)
    fill(session, topic)
    config = config_of(key, topic)
    source, endpoint = (
        replace(config.source, bootstrap_servers=servers),
        CassandraEndpoint(contact_points=(contact_point,)),
    )
    with described(environment, key, replace(config, source=source, cassandra=endpoint)):
        yield Scene(environment, key, topic, session, row)
    kafka.delete(topic)
    for partition in (0, 1):
        session.execute("DELETE FROM fencepost_cli.orders WHERE topic = %s AND partition = %s", (topic, partition))
    session.cluster.shutdown()


def committed(session: Session, pipeline: str, topic: str, topic_ids: Mapping[str, str]) -> FenceRow:
    """Commit two batches of 8 records for each partition; 4 more of each wait."""
    table = CassandraFenceTable.over(session, KEYSPACE)
    fence = Fence(table, pipeline)

    def at(offset: int) -> dict[str, int]:
        return {f"{topic}/{partition}": offset for partition in (0, 1)}

    taken = fence.take_over(fence.create("cluster/uid"), owner="cluster/uid")
    start = Starting(offsets=at(0), planned=at(8), topic_ids=topic_ids)
    row = fence.claim(epoch=taken.epoch, driver="pod", code="image job:transform", start=lambda _: start)
    row = fence.commit(row, offsets=at(8), planned=at(16), records=16, duration_ms=5)
    row = fence.commit(row, offsets=at(16), planned=at(16), records=16, duration_ms=5)
    table.finish_history()
    return row


def fill(session: Session, topic: str) -> None:
    for partition in (0, 1):
        for offset in range(16):
            session.execute(WRITE, (topic, partition, offset))


def config_of(key: ObjectKey, topic: str) -> DriverConfig:
    """Return the configuration of the run that committed these batches."""
    return replace(
        USUAL,
        pipeline=f"{SCOPE}/{key}",
        epoch=1,
        source=KafkaSource(bootstrap_servers=f"{ABSENT}:9092", topics=(topic,)),
        sinks=(CassandraSink(name="orders", keyspace=KEYSPACE, table="orders"),),
        cassandra=CassandraEndpoint(contact_points=(ABSENT,)),
        fence_keyspace=KEYSPACE,
    )


@contextmanager
def described(environment: Environment, key: ObjectKey, config: DriverConfig) -> Iterator[None]:
    """Show a pipeline with this run to those who ask the API server; it is suspended there."""
    on_the_api_server(environment, lambda api: created(api, key, config, environment))
    try:
        yield
    finally:
        on_the_api_server(environment, lambda api: removed(api, key))


async def created(api: ApiServer, key: ObjectKey, config: DriverConfig, environment: Environment) -> None:
    """Make the namespace, the Secret, a run's configuration and the pipeline, which is suspended."""
    await api._call("POST", "create", NAMESPACES, body={"metadata": {"name": key.namespace}})
    account = {"username": environment.cassandra_username, "password": environment.cassandra_password}
    await api.create(SECRETS, namespace=key.namespace, body={"metadata": {"name": "account"}, "stringData": account})
    metadata = {"name": names.job_name(key.name, config.epoch), "labels": labels.run_labels(key, config.epoch)}
    data = {run_config.KEY: config.to_json()}
    await api.create(CONFIG_MAPS, namespace=key.namespace, body={"metadata": metadata, "data": data})
    manifest = pipeline_manifest(key)
    if config.state is not None:
        manifest["spec"]["job"]["mode"] = JobMode.STATEFUL
    source = {"bootstrapServers": config.source.bootstrap_servers, "topics": list(config.source.topics)}
    manifest["spec"]["source"]["kafka"] |= source
    manifest["spec"]["sinks"] = [
        {"name": sink.name, "cassandra": {"keyspace": sink.keyspace, "table": sink.table}}
        for sink in config.sinks
        if isinstance(sink, CassandraSink)
    ]
    manifest["spec"]["checkpoint"]["cassandra"] |= {
        "contactPoints": list(config.cluster.contact_points),
        "keyspace": config.fence_keyspace,
        "consistency": "LOCAL_ONE",
        "credentialsFrom": {"secretName": "account"},
    }
    await api.create(PIPELINES, namespace=key.namespace, body=manifest)


async def removed(api: ApiServer, key: ObjectKey) -> None:
    with suppress(FencepostError):
        freed: dict[str, Any] = {"metadata": {"finalizers": []}}
        await api.merge(PIPELINES, namespace=key.namespace, name=key.name, body=freed)
    await api._call("DELETE", "delete", NAMESPACES, name=key.namespace, body={"propagationPolicy": "Background"})


def on_the_api_server(environment: Environment, work: Callable[[ApiServer], Awaitable[T]]) -> T:
    async def run() -> T:
        api = await ApiServer.connect(environment.kubeconfig)
        try:
            return await work(api)
        finally:
            await api.close()

    return asyncio.run(run())
