"""`fencepost` as a user starts it: a kubeconfig, a pipeline in the API server, the testbed's Kafka and Cassandra."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from fencepost.fence.cassandra.snapshots import SnapshotTable
from fencepost.fence.snapshots import Trigger, snapshot_id, snapshot_of
from fencepost_operator.adapters.kubernetes.api_server import SECRETS, Resource
from fencepost_operator.api import GROUP, REWIND_PLURAL, SNAPSHOT_ANNOTATION, VERSION
from integration.cli.scene import DELETE, KEYSPACE, SCOPE, UPDATE_FENCE, WRITE, Scene, on_the_api_server
from integration.operator.cluster import PIPELINES
from present import present

pytestmark = pytest.mark.integration

REWINDS = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=REWIND_PLURAL)


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
    body = present(on_the_api_server(scene.environment, lambda api: api.get(PIPELINES, **place)))
    assert body["metadata"]["annotations"][SNAPSHOT_ANNOTATION] == "v2"


def test_a_rewind_is_an_object_that_the_api_server_takes(scene: Scene) -> None:
    words = ("--to-timestamp", "2026-01-31T12:00:00Z", "--dry-run", "--no-watch", "--name", "back")
    ended = scene.fencepost("rewind", str(scene.key), *words, addresses=False)
    assert ended.returncode == 0, ended.stderr
    place = {"namespace": scene.key.namespace, "name": "back"}
    body = present(on_the_api_server(scene.environment, lambda api: api.get(REWINDS, **place)))
    assert body["spec"] == {
        "pipeline": scene.key.name, "to": {"timestamp": "2026-01-31T12:00:00Z"},
        "deleteOutput": True, "emptyState": False, "dryRun": True,
    }  # fmt: skip
    ended = scene.fencepost("rewind", str(scene.key), *words, addresses=False)
    assert ended.returncode == 2
    assert "there is a rewind" in ended.stderr


def test_rows_that_are_missing_or_beyond_are_found(scene: Scene) -> None:
    """Injected: one row deleted by hand, one written of an offset that was never planned."""
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
    """Injected: a user sets an offset with cqlsh."""
    back = {**scene.row.offsets, f"{scene.topic}/0": 3}
    scene.session.execute(UPDATE_FENCE, (scene.row.version + 1, back, scene.row.pipeline))
    try:
        proof = scene.json("fence", "verify", str(scene.key), "--no-sinks", code=1)
    finally:
        scene.session.execute(UPDATE_FENCE, (scene.row.version, dict(scene.row.offsets), scene.row.pipeline))
    assert any(f"{scene.topic}/0 went back from 16 to 3" in finding for finding in proof["findings"])


@contextmanager
def account(scene: Scene, wrong: Mapping[str, str]) -> Iterator[None]:
    """Another account in the pipeline's Secret for the block."""
    environment = scene.environment
    right = {"username": environment.cassandra_username, "password": environment.cassandra_password}

    def set_to(data: dict[str, str]) -> None:
        place, body = scene.key.namespace, {"stringData": data}
        on_the_api_server(environment, lambda api: api.merge(SECRETS, namespace=place, name="account", body=body))

    set_to({**right, **wrong})
    try:
        yield
    finally:
        set_to(right)


def test_a_wrong_password_is_not_repeated(scene: Scene) -> None:
    with account(scene, {"password": "correct-horse-battery"}):
        ended = scene.fencepost("fence", "show", str(scene.key))
    assert ended.returncode == 2
    assert "credentialsFrom" in ended.stderr
    assert "correct-horse" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_grant_that_is_missing_is_named(scene: Scene) -> None:
    """Injected: an account that may read the fence row and nothing else."""
    name = f"reader_{uuid.uuid4().hex[:8]}"
    scene.session.execute(f"CREATE ROLE {name} WITH PASSWORD = 'secret' AND LOGIN = true", timeout=60)
    scene.session.execute(f"GRANT SELECT ON {KEYSPACE}.fence TO {name}", timeout=60)
    try:
        with account(scene, {"username": name, "password": "secret"}):
            snapshots = scene.fencepost("snapshots", "list", str(scene.key))
            letters = scene.fencepost("dead-letters", "list", str(scene.key))
    finally:
        scene.session.execute(f"DROP ROLE {name}", timeout=60)
    for ended, table in ((snapshots, "snapshots"), (letters, "dead_letters")):
        assert ended.returncode == 2
        assert f"GRANT SELECT ON TABLE {KEYSPACE}.{table} TO the role" in ended.stderr


def test_a_pipeline_and_a_context_that_do_not_exist(scene: Scene) -> None:
    ended = scene.fencepost("offsets", f"{scene.key.namespace}/nothing")
    assert ended.returncode == 2
    assert f"pipeline {scene.key.namespace}/nothing not found" in ended.stderr
    ended = scene.fencepost("offsets", str(scene.key), "--context", "nowhere")
    assert ended.returncode == 2
    assert "no context 'nowhere'" in ended.stderr


def test_the_namespace_is_that_of_the_context_unless_it_is_given(scene: Scene) -> None:
    ended = scene.fencepost("fence", "history", scene.key.name, "-n", scene.key.namespace, "--limit", "1")
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 3
    ended = scene.fencepost("offsets", scene.key.name)
    assert f"pipeline default/{scene.key.name} not found" in ended.stderr
