"""Executors and Python workers that run out of memory or crash, on real Spark: each is named as what it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
PROGRAM = Path(__file__).with_name("executor_failures.py")


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
