"""The image's script that starts a worker: what is beside the worker comes back after its end. Real processes."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fencepost.contract import DATA_SERVICE_FILE, CassandraEndpoint, DataServiceConfig
from harness.processes import free_port
from harness.spark_cluster import SECRET, SparkCluster
from harness.waiting import eventually

APPLICATION = "app-20260101120000-0000"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """A cluster whose worker's JVM is a process that only waits: nothing here depends on Spark."""
    with tempfile.TemporaryDirectory(prefix="fencepost-") as scratch:
        made = SparkCluster.prepare(tmp_path, Path(scratch))
        (made.root / "bin" / "spark-java").write_text("#!/bin/sh\nexec sleep 600\n")
        made.work.mkdir()
        yield made


def beside(cluster: SparkCluster) -> int | None:
    """Return the id of the process beside the worker while it serves metrics."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{cluster.metrics_port}/metrics", timeout=5) as answer:
            assert b"fencepost_worker_scratch_bytes" in answer.read()
    except OSError:
        return None
    wanted = ["-Im", "fencepost.worker", str(cluster.work)]
    return next((found for found, words in command_lines().items() if words[1:4] == wanted), None)


def command_lines() -> dict[int, list[str]]:
    """Return the words of each process of this machine, by its id."""
    found = dict[int, list[str]]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                found[int(entry.name)] = (entry / "cmdline").read_text().split("\0")
    return found


def said(cluster: SparkCluster) -> list[dict[str, str]]:
    """Return the entries of the container's log."""
    return [json.loads(line) for line in cluster.log.read_text().splitlines() if line.startswith("{")]


def test_the_process_beside_the_worker_restarts_and_its_end_is_logged(cluster: SparkCluster) -> None:
    log = cluster.work / APPLICATION / "1" / "stderr"
    log.parent.mkdir(parents=True)
    log.write_text("before\n")
    with cluster.worker() as worker:
        first = eventually("it serves metrics", lambda: beside(cluster), seconds=60)
        os.kill(first, signal.SIGKILL)
        with log.open("a") as file:
            file.write("meanwhile\n")
        second = eventually("it serves metrics again", lambda: beside(cluster), seconds=60)
        assert second != first
        assert worker.poll() is None
        eventually(
            "what was written meanwhile is logged",
            lambda: any(entry["message"] == "meanwhile" for entry in said(cluster)),
            seconds=30,
        )
    (ended,) = [entry for entry in said(cluster) if entry.get("logger") == "spark-worker"]
    assert ended["level"] == "error"
    assert ended["message"].startswith("the process beside the worker ended with code 137: ")


def test_beside_a_stateful_pipelines_worker_is_a_data_service(cluster: SparkCluster) -> None:
    config = DataServiceConfig(
        pipeline="default/shop/orders",
        cassandra=CassandraEndpoint(contact_points=("127.0.0.1",), port=free_port(), local_datacenter="datacenter1"),
        keyspace="fencepost",
        consistency="LOCAL_QUORUM",
        port=free_port(),
        cache_bytes=1 << 20,
    )
    (cluster.root / "spark" / DATA_SERVICE_FILE).write_text(config.to_json())
    with cluster.worker():
        eventually(
            "it looks for Cassandra",
            lambda: any("waits for Cassandra" in entry["message"] for entry in said(cluster)),
            seconds=60,
        )
        commands = [words for words in command_lines().values() if "fencepost.worker.data_service" in words]
    assert [words[1:5] for words in commands if str(cluster.scratch / "state") in words] == [
        ["-Im", "fencepost.worker.data_service", str(cluster.root / "spark" / DATA_SERVICE_FILE),
         str(cluster.scratch / "state")]
    ]  # fmt: skip
    assert SECRET not in cluster.log.read_text()


@pytest.mark.parametrize(("conf", "own"), [({}, True), ({"spark.shuffle.service.enabled": "true"}, False)])
def test_an_executors_blocks_are_its_own_unless_sparks_shuffle_service_keeps_them(
    conf: dict[str, str], own: bool, tmp_path: Path
) -> None:
    """The worker's JVM here prints the JAVA_HOME that executors get."""
    cluster = SparkCluster.prepare(tmp_path, tmp_path, conf=conf)
    (cluster.root / "bin" / "spark-java").write_text("#!/bin/sh\necho executors: $JAVA_HOME\n")
    with cluster.worker() as worker:
        worker.wait(30)
    java = cluster.root / "executor" if own else Path(cluster.environment()["JAVA_HOME"])
    assert f"executors: {java}\n" in cluster.log.read_text()
