"""What a user on call starts: `fencepost explain`, `suspend`, `bundle`, `advise` and `console`, on a real cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from integration.cli.scene import Scene, on_the_api_server
from integration.operator.cluster import PIPELINES
from present import present

pytestmark = pytest.mark.integration


def test_a_pipeline_is_explained_suspended_and_resumed(scene: Scene) -> None:
    name = str(scene.key)
    explained = scene.fencepost("explain", name, addresses=False)
    assert explained.returncode in {0, 1}, explained.stderr
    assert explained.stdout.startswith(f"{name}: ")
    for command, expected in ((("resume", name), False), (("suspend", name, "--yes"), True)):
        ended = scene.fencepost(*command, addresses=False)
        assert ended.returncode == 0, ended.stderr
        assert _is_suspended(scene) is expected
    refused = scene.fencepost("restart", name, "--yes", addresses=False)
    assert "is suspended" in refused.stderr
    assert "no driver's pod" in scene.fencepost("logs", name, addresses=False).stderr


def _is_suspended(scene: Scene) -> bool:
    place = {"namespace": scene.key.namespace, "name": scene.key.name}
    body = present(on_the_api_server(scene.environment, lambda api: api.get(PIPELINES, **place)))
    return bool(body["spec"]["suspend"])


def test_advice_is_withheld_where_the_history_is_short(scene: Scene) -> None:
    found = scene.json("advise", str(scene.key))
    assert (found["history"]["commits"], found["history"]["records"]) == (2, 32)
    assert {one["advice"] for one in found["advice"]} == {"not enough history"}


def test_an_archive_has_the_objects_and_not_the_password(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    ended = scene.fencepost("bundle", str(scene.key), "--to", str(path), addresses=False)
    assert ended.returncode == 0, ended.stderr
    with tarfile.open(path) as archive:
        texts = {
            name.partition("/")[2]: present(archive.extractfile(name)).read().decode() for name in archive.getnames()
        }
    assert {"pipeline.yaml", "rewinds.yaml", "jobs.yaml", "pods.yaml", "events.yaml", "operator.yaml"} <= set(texts)
    assert f"name: {scene.key.name}" in texts["pipeline.yaml"]
    assert "version:" in texts["operator.yaml"]
    assert f"password: {scene.environment.cassandra_password}" not in "".join(texts.values())


@contextmanager
def console(scene: Scene) -> Iterator[httpx2.Client]:
    """A browser of the console, which runs for the block."""
    address = f"{scene.environment.cassandra_host}:{scene.environment.cassandra_port}"
    command = [sys.executable, "-u", "-m", "fencepost_cli", "console", "--cassandra", address]
    variables = {**os.environ, "KUBECONFIG": str(scene.environment.kubeconfig)}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = present(process.stdout).readline().strip()
            with httpx2.Client(base_url=url.partition("/?")[0], timeout=60) as client:
                assert client.get(f"/?{url.partition('/?')[2]}").status_code == 200
                yield client
        finally:
            process.terminate()


def test_the_console_shows_what_the_api_server_and_cassandra_have(scene: Scene) -> None:
    path = f"/pipelines/{scene.key.namespace}/{scene.key.name}"
    with console(scene) as client:
        assert f'href="{path}"' in client.get("/").text
        assert client.get(path).status_code == 200
        record = client.get(f"{path}/record").text
        for text in ("Epoch 1", "pod, image job:transform", "No record was set aside"):
            assert text in record
        assert "rewind" in client.get(f"{path}/rewinds").text.lower()
        assert "have no batch" in client.get(f"{path}/batches").text
