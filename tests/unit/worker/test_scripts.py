"""The image's script that starts a worker: what is beside the worker comes back after its end. Real processes."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.spark_cluster import SparkCluster
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
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if words[1:4] == wanted:
                return int(entry.name)
    return None


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
