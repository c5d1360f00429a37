"""`fencepost init` writes a project that passes its own checks, and overwrites nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fencepost_cli.checking.cql_schema import tables
from fencepost_cli.checking.manifest import read_manifests
from unit.cli.world import World

OPTIONS = {
    "stateless": ("--topic", "orders.v1", "--keyspace", "shop", "--table", "order_rows", "--ci", "gitlab"),
    "stateful": (
        "--stateful",
        "--image",
        "registry.example:5000/team/late-orders:7",
        "--kafka",
        "k:1",
        "--cassandra",
        "c",
    ),
}


@pytest.fixture(params=sorted(OPTIONS))
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "late-orders"
    ended = World.usual().run("init", "late-orders", *OPTIONS[request.param], "--folder", str(folder))
    assert ended.exit_code == 0, ended.output
    return folder


def test_the_manifest_is_valid_and_names_the_code_and_the_table(project: Path) -> None:
    (manifest,) = read_manifests(project / "pipeline.yaml")
    assert (manifest.name, manifest.findings) == ("late-orders", ())
    assert manifest.spec is not None
    module, _, function = manifest.spec.job.entrypoint.partition(":")
    assert f"def {function}(" in (project / f"{module}.py").read_text()
    assert f"from {module} import {function}" in (project / f"test_{module}.py").read_text()
    assert f"COPY {module}.py" in (project / "Dockerfile").read_text()
    (sink,) = manifest.spec.sinks
    assert sink.cassandra is not None
    assert set(tables((project / "schema.cql").read_text())) == {f"{sink.cassandra.keyspace}.{sink.cassandra.table}"}


def test_its_check_passes(project: Path) -> None:
    world = World.usual()
    ended = world.run("check", str(project / "pipeline.yaml"))
    assert ended.exit_code == 0, ended.output
    ((request, image),) = world.asked
    assert (image, request.code_dir) == (None, str(project))
    assert len(request.tables) == 1


def test_its_records_are_those_of_the_topic_for_a_local_run(project: Path) -> None:
    (manifest,) = read_manifests(project / "pipeline.yaml")
    assert manifest.spec is not None
    (topic,) = manifest.spec.source.kafka.topics
    records = [json.loads(line) for line in (project / f"{topic}.jsonl").read_text().splitlines()]
    assert {"id", "amount", "at"} == {name for record in records for name in record}


def test_the_code_is_formatted_and_linted(project: Path) -> None:
    for command in (
        ("format", "--check"),
        ("check", "--select", "ALL", "--ignore", "S101,INP001,D203,D213,COM812,CPY,PT"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", project], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_ci_builds_and_tests_the_image(tmp_path: Path) -> None:
    for kind, path in (("github", ".github/workflows/ci.yaml"), ("gitlab", ".gitlab-ci.yml"), ("none", None)):
        World.usual().run("init", "orders", "--ci", kind, "--folder", str(tmp_path / kind))
        assert (path is None) == (not list((tmp_path / kind).glob(".git[hl]*")))
        if path:
            text = (tmp_path / kind / path).read_text()
            assert yaml.safe_load(text)
            assert "docker build --target test ." in text
            assert "docker build -t registry.example/orders:$" in text


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "schema.cql").write_text("-- mine")
    said = World.usual().refused("init", "orders", "--folder", str(tmp_path))
    assert "has schema.cql already" in said
    assert [path.name for path in tmp_path.iterdir()] == ["schema.cql"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("Orders",), "cannot name a pipeline"),
        (("class",), "cannot name a pipeline"),
        (("pyspark",), "cannot name a pipeline"),
        (("orders", "--keyspace", "Shop"), "spec.sinks[0].cassandra.keyspace"),
        (("orders", "--topic", "a b"), "spec.source.kafka.topics[0]"),
        (("orders", "--kafka", "kafka"), "spec.source.kafka.bootstrapServers"),
    ],
)
def test_names_that_cannot_work_are_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in World.usual().refused("init", *words, "--folder", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
