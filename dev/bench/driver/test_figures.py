"""The driver's figures on the job image: start to first commit, a batch of 1,000, a backlog. Nothing is asserted."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bench.driver.cluster import Containers, lines, percentile, spark_cluster, start_driver
from integration.driver.conftest import environment, pipeline, session
from integration.driver.support import Pipeline
from testbed.environment import Environment

__all__ = ["environment", "pipeline", "session"]
pytestmark = pytest.mark.bench

SMALL = 40
"""Batches of 1,000; the first eight are warm-up."""
BACKLOG = 600_000


def test_figures(
    environment: Environment,
    pipeline: Callable[..., Pipeline],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with spark_cluster(environment, tmp_path, cores=2) as containers:
        figures = {
            "starts, s": [starting(containers, pipeline(max_records_per_batch=1000), number) for number in range(5)],
            "batch of 1,000, ms": small_batches(containers, pipeline(max_records_per_batch=1000)),
            "backlog": backlog(containers, pipeline(max_records_per_batch=100_000)),
        }
    with capsys.disabled():
        print("\n" + json.dumps(figures, indent=1))


def starting(containers: Containers, one: Pipeline, number: int) -> dict[str, float]:
    """Seconds from the driver's process to each mark of its start, and to its first commit."""
    one.kafka.produce(one.topic, 1000)
    name = start_driver(containers, one, 100 + number)
    wait(containers, one, name, 1000)
    log = list(lines(containers.logs(name)))
    marks = {line["message"].removeprefix("ready: "): line["seconds"] for line in log if "seconds" in line}
    warm = next(line for line in log if line["message"] == "ready: warm")
    first = next(line for line in log if line["message"] == "committed")
    marks["first commit"] = round(warm["seconds"] + at(first) - at(warm), 2)
    stop(containers, name)
    return marks


def small_batches(containers: Containers, one: Pipeline) -> dict[str, Any]:
    """Milliseconds of a batch of 1,000, from its plan to its commit, and of its phases."""
    one.kafka.produce(one.topic, 1000 * SMALL)
    name = start_driver(containers, one, 200)
    wait(containers, one, name, 1000 * SMALL)
    batches = [line["ms"] for line in lines(containers.logs(name)) if line["message"] == "committed"][8:]
    stop(containers, name)
    return {
        phase: {
            "n": len(batches),
            "p50": percentile([batch[phase] for batch in batches], 0.5),
            "p99": percentile([batch[phase] for batch in batches], 0.99),
        }
        for phase in ("total", "transform", "job", "commit")
    }


def backlog(containers: Containers, one: Pipeline) -> dict[str, float]:
    """Rows/s from the first batch's commit to the last one's."""
    one.kafka.produce(one.topic, BACKLOG)
    one.config = with_buckets(one, 5000)
    name = start_driver(containers, one, 300)
    wait(containers, one, name, BACKLOG)
    done = [line for line in lines(containers.logs(name)) if line["message"] == "committed"]
    stop(containers, name)
    seconds = at(done[-1]) - at(done[0])
    return {"rows/s": round(sum(line["records"] for line in done[1:]) / seconds), "batches": len(done)}


def with_buckets(one: Pipeline, size: int) -> Any:
    from dataclasses import replace  # noqa: PLC0415

    return replace(one.config, args=(str(size),))


def at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["time"]).timestamp()


def wait(containers: Containers, one: Pipeline, name: str, records: int) -> None:
    import time  # noqa: PLC0415

    for _ in range(3000):
        if one.committed_records() >= records:
            return
        time.sleep(0.1)
    raise TimeoutError(containers.logs(name)[-3000:])


def stop(containers: Containers, name: str) -> None:
    import subprocess  # noqa: PLC0415

    subprocess.run([containers.docker, "stop", name], check=True, capture_output=True)
