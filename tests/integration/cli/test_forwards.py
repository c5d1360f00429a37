"""`fencepost` outside of the cluster, of a pipeline whose spec has names of the cluster alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.cli.scene import RECORDS, Scene, played
from testbed.environment import load

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def inside() -> Iterator[Scene]:
    """A pipeline with a short name of Cassandra's Service and the full one of Kafka's."""
    environment = load()
    service = environment.cassandra_cluster.removesuffix(".svc.cluster.local")
    with played(environment, contact_point=service, servers=environment.kafka_cluster) as scene:
        yield scene


def test_cassandra_of_the_cluster_is_read_through_the_api_server(inside: Scene) -> None:
    ended = inside.fencepost("fence", "history", str(inside.key), "-o", "json", addresses=False)
    assert ended.returncode == 0, ended.stderr
    assert '"commit"' in ended.stdout
    name = inside.environment.cassandra_cluster.removesuffix(".svc.cluster.local")
    assert f"note: {name}:9042 is reached through the API server, in pod " in ended.stderr
    ended = inside.fencepost("dead-letters", "list", str(inside.key), addresses=False)
    assert ended.returncode == 0, ended.stderr


def test_the_brokers_that_kafka_names_are_reached_too(inside: Scene) -> None:
    """Kafka advertises its name in the cluster."""
    ended = inside.fencepost("offsets", str(inside.key), "-o", "json", addresses=False)
    assert ended.returncode == 0, ended.stderr
    assert [part["end"] for part in json.loads(ended.stdout)["partitions"]] == [RECORDS // 2] * 2
    assert f"note: {inside.environment.kafka_cluster} is reached through the API server" in ended.stderr


def test_records_are_read_through_the_api_server(inside: Scene, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    ended = inside.fencepost("sample", str(inside.key), "--records", "4", "--into", str(path), addresses=False)
    assert ended.returncode == 0, ended.stderr
    assert len(path.read_text().splitlines()) == 4


def test_a_name_that_is_none_of_the_cluster_is_explained(scene: Scene) -> None:
    ended = scene.fencepost("offsets", str(scene.key), addresses=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    error, remedy = ended.stderr.splitlines()
    assert "spec.checkpoint.cassandra.contactPoints: absent.fencepost.test has no address on this machine" in error
    assert "Service test/fencepost does not exist" in error
    assert "--cassandra localhost:PORT" in remedy
