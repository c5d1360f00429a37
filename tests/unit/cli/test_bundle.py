"""`fencepost bundle`: what is in the archive, and that no planted secret is."""

from __future__ import annotations

import base64
import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from fencepost_cli.commands.pipeline.bundle import TAIL
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Related
from fencepost_cli.support_bundle import Covers, archive_of
from fencepost_operator.api import ObjectKey
from unit.cli.test_logs import pod
from unit.cli.world import World

PLANTED = {
    "of-a-secret": "Tr0ub4dor&3",
    "of-the-environment": "an-env-value-of-the-author",
    "of-a-property": "kafka-password-in-the-spec",
    "of-a-url": "url-password",
    "of-a-log": "logged-password",
    "of-an-annotation": "applied-value",
    "of-an-event": "event-token-0123456789",
    "of-a-managed-field": "managed-value",
    "of-a-second-line": "second-line-of-a-key",
    "of-a-trial": "token-that-a-sample-quotes",
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    world = World.usual()
    world.secrets = {
        "account": {"username": "ann", "password": PLANTED["of-a-secret"], "key": f"ab\n{PLANTED['of-a-second-line']}"}
    }
    world.body["metadata"] |= {
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": f'{{"x": "{PLANTED["of-an-annotation"]}"}}'
        },
        "managedFields": [{"manager": PLANTED["of-a-managed-field"]}],
    }
    world.body["spec"]["job"]["env"] = [
        {"name": "MODE", "value": PLANTED["of-the-environment"]},
        {"name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": "account", "key": "password"}}},
    ]
    world.body["spec"]["source"]["kafka"]["properties"] = {"sasl.password": PLANTED["of-a-property"]}
    driver = pod(2, "orders-run-2-x")
    driver["spec"] = {
        "containers": [{"name": "driver", "env": [{"name": "X", "value": PLANTED["of-the-environment"]}]}]
    }
    world.related_objects = {
        Related.PODS: [
            driver,
            pod(0, "orders-trial-1-x", "trial"),
            pod(0, "orders-purge-x", "purge"),
            pod(0, "w", "worker"),
        ],
        Related.JOBS: [{"metadata": {"name": "orders-run-2"}, "spec": {"template": {"spec": driver["spec"]}}}],
        Related.EVENTS: [{"type": "Warning", "message": f"refused: token={PLANTED['of-an-event']}"}],
        Related.REWINDS: [],
        Related.TRIALS: [
            {
                "metadata": {"name": "orders-2"},
                "spec": {"job": {"args": [f"--token={PLANTED['of-a-trial']}"]}},
                "status": {"samples": [{"key": "id=7", "columns": f"text: api_key={PLANTED['of-a-trial']}"}]},
            }
        ],
    }
    coded = base64.b64encode(PLANTED["of-a-secret"].encode()).decode()
    world.log_text = "\n".join([
        f"connecting as ann with {PLANTED['of-a-secret']} or {coded}", f"https://ann:{PLANTED['of-a-url']}@kafka:9092",
        json.dumps({"message": f"password={PLANTED['of-a-log']}", "offset": 12}), PLANTED["of-a-second-line"],
    ])  # fmt: skip
    world.metrics_text = "fencepost_driver_commits_total 3\n"
    labels = {"app.kubernetes.io/version": "0.1.0"}
    container = {"image": "fencepost-operator:0.1.0", "env": [{"name": "Y", "value": PLANTED["of-the-environment"]}]}
    world.deployments = [{
        "metadata": {"name": "fencepost", "namespace": "fencepost-system", "labels": labels},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [container]}}},
    }]  # fmt: skip
    return world


def read(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        names = archive.getnames()
        assert all(not name.startswith(("/", "..")) and "/../" not in name for name in names)
        return {name.partition("/")[2]: present(archive, name) for name in names}


def present(archive: tarfile.TarFile, name: str) -> str:
    file = archive.extractfile(name)
    assert file is not None
    return file.read().decode()


def test_the_archive_has_what_the_cluster_has_and_no_planted_secret(world: World) -> None:
    ended = world.run("bundle", "shop/orders")
    assert ended.exit_code == 0, ended.output
    (path,) = Path().glob("shop-orders-*.tar.gz")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = read(path)
    assert sorted(found) == [
        "README.txt", "events.yaml", "explained.yaml", "jobs.yaml", "logs/orders-purge-x.log",
        "logs/orders-run-2-x.log", "logs/orders-trial-1-x.log",
        "metrics/orders-run-2-x.txt", "operator.yaml", "pipeline.yaml", "pods.yaml", "rewinds.yaml",
        "trials.yaml",
    ]  # fmt: skip
    for where, secret in PLANTED.items():
        assert not [name for name, text in found.items() if secret in text], where
    assert "fencepost-operator:0.1.0" in found["operator.yaml"]
    assert "name: MODE" in found["pipeline.yaml"]
    assert "name: account" in found["pipeline.yaml"]
    assert "sasl.password: '***'" in found["pipeline.yaml"]
    assert "registry.example/job:1" in found["pipeline.yaml"]
    assert "key: id=7" in found["trials.yaml"]
    assert (ObjectKey("shop", "orders-trial-1-x"), "trial", TAIL, False) in world.asked
    assert '"offset": 12' in found["logs/orders-run-2-x.log"]
    assert "fencepost_driver_commits_total 3" in found["metrics/orders-run-2-x.txt"]


def test_what_the_account_may_not_read_is_listed_and_the_rest_is_there(world: World) -> None:
    denied = CliError("pods is forbidden", remedy="ask for list pods")
    world.related_objects[Related.PODS] = denied
    world.deployments = CliError("deployments is forbidden", remedy="ask")
    printed = world.json("bundle", "shop/orders", "--to", "x.tar.gz")
    assert set(printed["missing"]) == {"pods.yaml", "operator.yaml"}
    found = read(Path("x.tar.gz"))
    assert "missing: pods.yaml: pods is forbidden" in found["README.txt"]
    assert "pipeline.yaml" in found


def test_no_file_is_overwritten(world: World) -> None:
    Path("x.tar.gz").write_text("mine")
    assert "--to" in world.refused("bundle", "shop/orders", "--to", "x.tar.gz")
    assert Path("x.tar.gz").read_text() == "mine"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "..", "", "a\x00b", "\u202e"])
def test_names_of_the_cluster_stay_in_the_archives_folder(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar.gz"
    path.write_bytes(archive_of({f"logs/{name}.log": "x", name: "y"}, name))
    with tarfile.open(path) as archive:
        for one in archive.getnames():
            parts = one.split("/")
            assert ".." not in parts
            assert "" not in parts
            assert one.isascii()


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("password", "x", "***"), ("ssl.key.pem", "x", "x"), ("sasl.jaas.config", "a b", "***"),
        ("secretName", "s", "s"),
        ("message", "uses token=abc now", "uses token=*** now"), ("secretRef", {"name": "s"}, {"name": "s"}),
        ("automountServiceAccountToken", False, False), ("apiKey", "k", "***"),
    ],
)  # fmt: skip
def test_fields_are_covered_by_their_names(field: str, value: Any, shown: Any) -> None:
    assert Covers().fields({field: value}) == {field: shown}


def test_a_short_value_of_a_secret_does_not_cover_the_text() -> None:
    assert Covers(["a", ""]).text("a banana") == "a banana"
