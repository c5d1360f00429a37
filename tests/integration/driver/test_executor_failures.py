"""Executors and Python workers that run out of memory or crash, on real Spark: each is named as what it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.worker.scratch import KEPT
from harness.waiting import eventually
from integration.driver.test_metrics import scrape

pytestmark = pytest.mark.integration
PROGRAM = Path(__file__).with_name("executor_failures.py")
CRASHING = Path(__file__).with_name("crashing_executors.py")


def play(case: str) -> dict[str, dict[str, str]]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(
        [sys.executable, PROGRAM, case], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found: dict[str, dict[str, str]] = json.loads(ended.stdout.splitlines()[-1])
    return found


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
        found = scrape(unused_tcp_port)
    finally:
        spark.kill()
        beside.kill()
        spark.wait()
        beside.wait()
    assert found["fencepost_worker_executors_started_total"] >= count
    assert found["fencepost_worker_executor_folders_removed_total"] >= count - KEPT
    assert found["fencepost_worker_scratch_bytes"] < 1 << 20
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    refused = {line["executor"] for line in lines if "Error occurred during initialization of VM" in line["message"]}
    assert len(refused) >= count


def folders(work: Path) -> int:
    """How many executors have a folder."""
    return sum(1 for _ in work.glob("app-*/*"))
