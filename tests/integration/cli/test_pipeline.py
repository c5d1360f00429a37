"""`fencepost` as a person starts it: a kubeconfig, a pipeline in the API server, the testbed's Kafka and Cassandra."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from cassandra.cluster import Session

from contract.cassandra import open_session
from fencepost.contract import CassandraEndpoint, CassandraSink, DriverConfig, KafkaSource
from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.cassandra import CassandraFenceTable, create_schema
from fencepost.fence.cassandra_snapshots import SnapshotTable
from fencepost.fence.snapshots import Trigger, snapshot_id, snapshot_of
from fencepost_operator.adapters.api_server import CONFIG_MAPS, NAMESPACES, SECRETS, ApiServer
from fencepost_operator.api import SNAPSHOT_ANNOTATION, ObjectKey
from fencepost_operator.desired import labels, names, run_config
from fencepost_operator.errors import FencepostError
from integration.driver.support import Kafka
from integration.operator.cluster import PIPELINES, pipeline_manifest
from testbed.environment import Environment, load

pytestmark = pytest.mark.integration

KEYSPACE = "fencepost_cli"
WRITE = 'INSERT INTO fencepost_cli.orders (topic, partition, "offset", n) VALUES (%s, %s, %s, 1)'
DELETE = 'DELETE FROM fencepost_cli.orders WHERE topic = %s AND partition = %s AND "offset" = %s'
UPDATE_FENCE = "UPDATE fencepost_cli.fence SET version = %s, offsets = %s WHERE pipeline = %s IF EXISTS"
SCOPE = "cli-test"
"""Not the scope of an operator that runs: nobody else changes the row."""
RECORDS = 40

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scene:
    environment: Environment
    key: ObjectKey
    topic: str
    session: Session
    row: FenceRow

    def fencepost(self, *words: str, addresses: bool = True) -> subprocess.CompletedProcess[str]:
        here = ["--cassandra", f"{self.environment.cassandra_host}:{self.environment.cassandra_port}"]
        if addresses and words[:2] in {("fence", "show"), ("offsets", str(self.key))}:
            here += ["--kafka", self.environment.kafka_host]
        command = [sys.executable, "-m", "fencepost_cli", *words, *(here if addresses else [])]
        variables = {**os.environ, "KUBECONFIG": str(self.environment.kubeconfig)}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    def json(self, *words: str, code: int = 0) -> Any:
        ended = self.fencepost(*words, "-o", "json")
        assert ended.returncode == code, ended.stderr
        return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """A pipeline that committed two batches of four partitions, with a row in its table for each record."""
    environment = load()
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
    row = committed(session, f"{SCOPE}/{key}", topic)
    fill(session, topic)
    on_the_api_server(environment, lambda api: created(api, key, topic, environment))
    yield Scene(environment, key, topic, session, row)
    on_the_api_server(environment, lambda api: removed(api, key))
    kafka.delete(topic)
    for partition in (0, 1):
        session.execute("DELETE FROM fencepost_cli.orders WHERE topic = %s AND partition = %s", (topic, partition))
    session.cluster.shutdown()


def committed(session: Session, pipeline: str, topic: str) -> FenceRow:
    """Commit two batches of 8 records for each partition; 4 more of each wait."""
    table = CassandraFenceTable.over(session, KEYSPACE)
    fence = Fence(table, pipeline)

    def at(offset: int) -> dict[str, int]:
        return {f"{topic}/{partition}": offset for partition in (0, 1)}

    taken = fence.take_over(fence.create("cluster/uid"), owner="cluster/uid")
    start = Starting(offsets=at(0), planned=at(8), topic_ids={topic: "id"})
    row = fence.claim(epoch=taken.epoch, driver="pod", code="image job:transform", start=lambda _: start)
    row = fence.commit(row, offsets=at(8), planned=at(16), records=16, duration_ms=5)
    row = fence.commit(row, offsets=at(16), planned=at(16), records=16, duration_ms=5)
    table.finish_history()
    return row


def fill(session: Session, topic: str) -> None:
    for partition in (0, 1):
        for offset in range(16):
            session.execute(WRITE, (topic, partition, offset))


async def created(api: ApiServer, key: ObjectKey, topic: str, environment: Environment) -> None:
    """Make the namespace, the Secret, a run's configuration and the pipeline, which is suspended."""
    await api._call("POST", "create", NAMESPACES, body={"metadata": {"name": key.namespace}})
    account = {"username": environment.cassandra_username, "password": environment.cassandra_password}
    await api.create(SECRETS, namespace=key.namespace, body={"metadata": {"name": "account"}, "stringData": account})
    config = DriverConfig(
        pipeline=f"{SCOPE}/{key}",
        epoch=1,
        entrypoint="job:transform",
        args=(),
        code="image",
        source=KafkaSource(bootstrap_servers="absent:9092", topics=(topic,)),
        sinks=(CassandraSink(name="orders", keyspace=KEYSPACE, table="orders"),),
        cassandra=CassandraEndpoint(contact_points=("absent",)),
        fence_keyspace=KEYSPACE,
        consistency="ONE",
        batch_interval=1,
        spark_master="local",
        spark_conf={},
        executors=1,
        termination_grace=1,
    )
    metadata = {"name": names.job_name(key.name, 1), "labels": labels.run_labels(key, 1)}
    data = {run_config.KEY: config.to_json()}
    await api.create(CONFIG_MAPS, namespace=key.namespace, body={"metadata": metadata, "data": data})
    manifest = pipeline_manifest(key)
    manifest["spec"]["source"]["kafka"]["topics"] = [topic]
    manifest["spec"]["sinks"] = [{"name": "orders", "cassandra": {"keyspace": KEYSPACE, "table": "orders"}}]
    manifest["spec"]["checkpoint"]["cassandra"] |= {
        "keyspace": KEYSPACE,
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


def test_the_row_the_history_the_offsets_and_the_proof(scene: Scene) -> None:
    shown = scene.json("fence", "show", str(scene.key))
    assert (shown["pipeline"], shown["version"], shown["driver"]) == (f"{SCOPE}/{scene.key}", scene.row.version, "pod")
    assert (shown["lag"], shown["endsFrom"]) == (8, "kafka")
    offsets = scene.json("offsets", str(scene.key))
    assert [(part["begin"], part["committed"], part["end"], part["lag"]) for part in offsets["partitions"]] == [
        (0, 16, 20, 4), (0, 16, 20, 4),
    ]  # fmt: skip
    changes = scene.json("fence", "history", str(scene.key))["changes"]
    assert [change["kind"] for change in changes] == ["commit", "commit", "claim", "takeover", "created"]
    assert all(change["contiguous"] for change in changes[:-1])
    proof = scene.json("fence", "verify", str(scene.key), "--exact")
    assert (proof["ok"], proof["history"]["complete"], proof["history"]["gaps"]) == (True, True, 0)
    assert [(part["until"], part["offsets"], part["missing"]) for part in proof["sinks"][0]["partitions"]] == [
        (16, 16, 0), (16, 16, 0),
    ]  # fmt: skip


def test_a_snapshot_is_listed_shown_and_asked_for(scene: Scene) -> None:
    one = snapshot_id(datetime.now(UTC), scene.row.pipeline)
    made = snapshot_of(scene.row, id=one, trigger=Trigger.ON_DEMAND, name="v1")
    SnapshotTable(scene.session, KEYSPACE).insert(scene.row.pipeline, made)
    (listed,) = scene.json("snapshots", "list", str(scene.key))["snapshots"]
    assert (listed["name"], listed["trigger"], listed["image"]) == ("v1", "OnDemand", "image")
    shown = scene.json("snapshots", "show", str(scene.key), "v1")
    assert shown["offsets"] == listed["offsets"] == dict(scene.row.offsets)
    asked = scene.fencepost("snapshots", "create", str(scene.key), "v2", "--timeout", "0", addresses=False)
    assert asked.returncode == 0, asked.stderr
    place = {"namespace": scene.key.namespace, "name": scene.key.name}
    body = on_the_api_server(scene.environment, lambda api: api.get(PIPELINES, **place))
    assert body is not None
    assert body["metadata"]["annotations"][SNAPSHOT_ANNOTATION] == "v2"


def test_rows_that_are_missing_or_beyond_are_found(scene: Scene) -> None:
    """Injected: one row deleted by hand, one written of an offset that nobody planned."""
    scene.session.execute(DELETE, (scene.topic, 0, 7))
    scene.session.execute(WRITE, (scene.topic, 1, 19))
    try:
        proof = scene.json("fence", "verify", str(scene.key), "--exact", code=1)
    finally:
        scene.session.execute(WRITE, (scene.topic, 0, 7))
        scene.session.execute(DELETE, (scene.topic, 1, 19))
    assert proof["findings"] == [
        f"sink orders, {scene.topic}/0: 1 committed offsets have no row",
        f"sink orders, {scene.topic}/1: 1 offsets have rows and were never planned",
    ]


def test_a_change_by_hand_is_found_beside_the_history(scene: Scene) -> None:
    """Injected: somebody sets an offset with cqlsh."""
    back = {**scene.row.offsets, f"{scene.topic}/0": 3}
    scene.session.execute(UPDATE_FENCE, (scene.row.version + 1, back, scene.row.pipeline))
    try:
        proof = scene.json("fence", "verify", str(scene.key), "--no-sinks", code=1)
    finally:
        scene.session.execute(UPDATE_FENCE, (scene.row.version, dict(scene.row.offsets), scene.row.pipeline))
    assert any(f"{scene.topic}/0 went back from 16 to 3" in finding for finding in proof["findings"])


def test_names_of_the_cluster_are_explained(scene: Scene) -> None:
    ended = scene.fencepost("offsets", str(scene.key), addresses=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    error, remedy = ended.stderr.splitlines()
    assert "absent.fencepost.test has no address on this machine" in error
    assert "--cassandra localhost:9042" in remedy


def test_a_wrong_password_is_not_repeated(scene: Scene) -> None:
    wrong = {"stringData": {"password": "correct-horse-battery"}}
    right = {"stringData": {"password": scene.environment.cassandra_password}}

    def password(body: dict[str, Any]) -> None:
        place = scene.key.namespace
        on_the_api_server(scene.environment, lambda api: api.merge(SECRETS, namespace=place, name="account", body=body))

    password(wrong)
    try:
        ended = scene.fencepost("fence", "show", str(scene.key))
    finally:
        password(right)
    assert ended.returncode == 2
    assert "credentialsFrom" in ended.stderr
    assert "correct-horse" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_pipeline_and_a_context_that_do_not_exist(scene: Scene) -> None:
    ended = scene.fencepost("offsets", f"{scene.key.namespace}/nothing")
    assert ended.returncode == 2
    assert f"there is no pipeline {scene.key.namespace}/nothing" in ended.stderr
    ended = scene.fencepost("offsets", str(scene.key), "--context", "nowhere")
    assert ended.returncode == 2
    assert "no context 'nowhere'" in ended.stderr


def test_the_namespace_is_that_of_the_context_unless_it_is_given(scene: Scene) -> None:
    ended = scene.fencepost("fence", "history", scene.key.name, "-n", scene.key.namespace, "--limit", "1")
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 3
    ended = scene.fencepost("offsets", scene.key.name)
    assert f"there is no pipeline default/{scene.key.name}" in ended.stderr
