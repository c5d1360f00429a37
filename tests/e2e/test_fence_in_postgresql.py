"""The example without Cassandra on the cluster: its driver is killed under load, and each order is one row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
import pytest
import yaml
from confluent_kafka import Producer

from flights.topics import Topics
from harness.faults.cluster_faults import Faults
from harness.kubernetes.kubectl import Kubectl
from harness.pipelines import KIND, Pipeline, Place, code, example_file, merged
from harness.waiting import eventually
from postgresql_server import USER, Server, free_port, running
from testbed.cluster import WORKERS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

EXAMPLE: Final = "orders-postgresql"
PARTITIONS: Final = 3
NOON: Final = datetime(2026, 1, 2, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL of this machine, with the address by which pods reach it."""

    server: Server
    host: str

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with psycopg.connect(self.server.dsn) as connection:
            return connection.execute(query.encode(), values).fetchall()


@pytest.fixture
def database(place: Place, tmp_path: Any) -> Iterator[Database]:
    """Return one with the example's table; pods need no password."""
    route = [str(place.environment.docker), "exec", WORKERS[0], "ip", "route", "show", "default"]
    host = subprocess.run(route, check=True, capture_output=True, text=True).stdout.split()[2]
    with running(tmp_path / "log", port=free_port(), listen_addresses="*") as server:
        (server.folder / "data" / "pg_hba.conf").write_text("local all all trust\nhost all all all trust\n")
        server.control("reload")
        with psycopg.connect(server.dsn) as connection:
            connection.execute(example_file(EXAMPLE, "schema.sql").encode())
        yield Database(server, host)


def orders(start: int, until: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each order with its partition."""
    for number in range(start, until):
        placed = (NOON + timedelta(seconds=number)).isoformat().replace("+00:00", "Z")
        order = {"id": f"o-{number}", "customer": f"c-{number % 7}", "cents": number * 5, "placedAt": placed}
        yield number % PARTITIONS, order


def produce(servers: str, topic: str, start: int, until: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for partition, order in orders(start, until):
        producer.produce(topic, json.dumps(order).encode(), partition=partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def applied(place: Place, kubectl: Kubectl, database: Database, topic: str) -> Pipeline:
    """Apply the example, at this topic and this database."""
    manifest = yaml.safe_load(example_file(EXAMPLE, "pipeline.yaml"))
    port = database.server.port
    change = {
        "job": {"image": place.environment.job_image, "resources": {"requests": {"cpu": "20m"}}},
        "source": {"kafka": {"bootstrapServers": place.environment.kafka_cluster, "topics": [topic]}},
        "checkpoint": {"postgresql": {"hosts": [database.host], "port": port, "database": "postgres"}},
        "restart": {"maxBackoff": "2s"},
        "deletionPolicy": "Delete",
    }
    manifest["spec"] = merged(manifest["spec"], change)
    account = {"username": USER, "password": "unused"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"}, "stringData": account}
    kubectl.apply(secret, code(EXAMPLE), manifest)
    return Pipeline(kubectl, EXAMPLE)


@pytest.mark.long
def test_each_order_is_one_row_although_its_driver_is_killed(
    place: Place, kubectl: Kubectl, faults: Faults, database: Database
) -> None:
    topic, servers = f"{place.namespace}-orders", place.environment.kafka_host
    Topics(servers).create(topic, PARTITIONS)
    try:
        produce(servers, topic, 0, 3_000)
        pipeline = applied(place, kubectl, database, topic)
        pipeline.wait_ready()
        produce(servers, topic, 3_000, 6_000)
        faults.sigkill(pipeline.driver())
        produce(servers, topic, 6_000, 9_000)
        pipeline.wait_ready(epoch=2)
        select = 'SELECT partition, "offset", id, customer, cents, placed_at FROM orders ORDER BY partition, "offset"'
        eventually("every order is there", lambda: len(database.ask(select)) >= 9_000, seconds=120)
        wanted = [
            (partition, at, order["id"], order["customer"], order["cents"], datetime.fromisoformat(order["placedAt"]))
            for partition in range(PARTITIONS)
            for at, (_, order) in enumerate(one for one in orders(0, 9_000) if one[0] == partition)
        ]
        assert database.ask(select) == wanted
        eventually("everything is committed", lambda: pipeline.status().get("lag") == 0, seconds=60)
        _read_by_the_command(place, pipeline, database)
        pipeline.delete()
        for table in ("fence_changes", "snapshots", "dead_letters"):
            assert database.ask(f"SELECT count(*) FROM fencepost.{table}") == [(0,)]  # noqa: S608 - constants
        ((epoch, offsets, driver),) = database.ask("SELECT epoch, offsets, driver FROM fencepost.fence")
        assert (epoch >= 2, offsets, driver) == (True, {}, None)
    finally:
        kubectl.run("delete", KIND, EXAMPLE, "--ignore-not-found", "--timeout=90s", seconds=100)
        Topics(servers).delete(topic)


def _read_by_the_command(place: Place, pipeline: Pipeline, database: Database) -> None:
    """The fence and its history, by the command of a user whose machine reaches the database elsewhere."""
    name, at = f"{place.namespace}/{pipeline.name}", f"127.0.0.1:{database.server.port}"
    for words in (("history", name, "--limit", "5"), ("verify", name)):
        command = [sys.executable, "-m", "fencepost_cli", "fence", *words, "--postgresql", at, "--output", "json"]
        variables = {**os.environ, "KUBECONFIG": str(place.environment.kubeconfig)}
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, timeout=60)
        assert ended.returncode == 0, ended.stderr
        found = json.loads(ended.stdout)
        assert found["pipeline"].endswith(name), found
