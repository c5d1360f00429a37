"""Executors and Python workers that run out of memory or crash, on real Spark: each is named as what it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost.worker.scratch import KEPT, used
from harness.spark_cluster import SparkCluster
from harness.waiting import eventually
from integration.driver.killed_executors import ROWS
from integration.driver.test_metrics import scrape
from present import present

pytestmark = pytest.mark.integration
PROGRAM = Path(__file__).with_name("executor_failures.py")
CRASHING = Path(__file__).with_name("crashing_executors.py")
KILLED = Path(__file__).with_name("killed_executors.py")


def play(case: str) -> dict[str, dict[str, str]]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        [sys.executable, PROGRAM, case], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, dict[str, str]] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.long
def test_each_process_that_runs_out_of_memory_is_named() -> None:
    found = play("memory")
    for name in ("kernel", "limit"):
        assert found[name]["kind"] == "OutOfMemory", found[name]
        assert found[name]["message"].startswith("a Python worker ran out of memory: ")
    for name in ("heap", "killed"):
        assert found[name]["kind"] == "OutOfMemory", found[name]
        assert found[name]["message"].startswith("an executor's JVM ran out of memory: ")
    assert found["crash"]["kind"] == "BatchFailed", found["crash"]
    assert found["crash"]["message"].startswith("a Python worker crashed: ")


def test_executors_that_java_refuses_end_the_run() -> None:
    found = play("loop")["loop"]
    assert (found["kind"], found["reason"]) == ("NoExecutors", "ExecutorCrashLoop"), found
    assert "exited with code 1" in found["message"]


@pytest.mark.long
@pytest.mark.parametrize("count", [150, pytest.param(500, marks=[pytest.mark.long, pytest.mark.timeout(1200)])])
def test_executors_that_crash_in_a_loop_leave_a_small_scratch_volume_and_each_ones_last_words(
    count: int, tmp_path: Path, unused_tcp_port: int
) -> None:
    """150 take 20 s. Without the sweep each one's folder stays."""
    work, log = tmp_path / "spark" / "work", tmp_path / "log"
    environment = {**os.environ, "FENCEPOST_METRICS_PORT": str(unused_tcp_port)}
    with log.open("wb") as output:
        beside = subprocess.Popen(
            [sys.executable, "-Im", "fencepost.worker", str(work)], env=environment, stdout=output
        )
        command = [sys.executable, str(CRASHING), str(work.parent), str(count)]
        spark = subprocess.Popen(
            command,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    try:
        assert spark.wait(2 * count + 100) == 0
        eventually("the newest folders alone are left", lambda: folders(work) <= KEPT, seconds=60, pause=0.5)
        found = eventually("the volume is small", lambda: with_small_scratch(unused_tcp_port), seconds=30, pause=0.5)
    finally:
        spark.kill()
        beside.kill()
        spark.wait()
        beside.wait()
    assert found["fencepost_worker_executors_started_total"] >= count
    assert found["fencepost_worker_executor_folders_removed_total"] >= count - KEPT
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    refused = {line["executor"] for line in lines if "Error occurred during initialization of VM" in line["message"]}
    assert len(refused) >= count


def with_small_scratch(port: int) -> dict[str, float] | None:
    """Return the metrics once the volume has less than 1 MiB; its size is measured only every ten seconds."""
    found = scrape(port)
    return found if found["fencepost_worker_scratch_bytes"] < 1 << 20 else None


def folders(work: Path) -> int:
    """How many executors have a folder."""
    return sum(1 for _ in work.glob("app-*/*"))


@pytest.mark.long
def test_shuffle_files_of_killed_executors_go_and_those_of_the_living_one_stay(tmp_path: Path) -> None:
    """A real master and worker. Spark alone keeps all of them until the application ends, which takes months."""
    with tempfile.TemporaryDirectory(prefix="fencepost-") as scratch:
        cluster = SparkCluster.prepare(tmp_path / "image", Path(scratch))
        with cluster.master(), cluster.worker(), application(cluster, "2") as said:
            assert said.readlines(3) == ["1", "2", f"done {ROWS}"], cluster.said()
            eventually("blocks of the living executor alone", lambda: blocks(cluster) == ["2"], seconds=30)
            living = used(cluster.work)
            assert living > 1 << 20, "its shuffle files"
            assert used(cluster.scratch) < 2 * living
            figures = scrape(cluster.metrics_port)
            assert figures["fencepost_worker_executors_started_total"] == 3
            said.ask_again()
            assert said.readlines(1) == [f"again {ROWS}"], "the living executor has lost nothing that it needs"


@dataclass(frozen=True, slots=True)
class Application:
    """A running application."""

    process: subprocess.Popen[str]

    def readlines(self, count: int) -> list[str]:
        """Return the next lines that it prints."""
        return [present(self.process.stdout).readline().strip() for _ in range(count)]

    def ask_again(self) -> None:
        """Let it read the shuffle files of its last job again."""
        assert self.process.stdin is not None
        self.process.stdin.write("again\n")
        self.process.stdin.flush()


@contextmanager
def application(cluster: SparkCluster, count: str) -> Iterator[Application]:
    """Run the application whose executors are killed."""
    environment = {**os.environ, **cluster.environment(), "SPARK_LOCAL_DIRS": str(cluster.root)}
    with (cluster.root / "application.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(KILLED), cluster.url, count],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        yield Application(process)
    finally:
        process.kill()
        process.communicate()


def blocks(cluster: SparkCluster) -> list[str]:
    """The executors that have blocks on the disk."""
    return sorted(path.parent.name for path in cluster.work.glob("app-*/*/local"))
