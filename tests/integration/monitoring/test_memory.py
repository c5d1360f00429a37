"""Memory that runs out is seen, and alerts, while everything still works, on a real Spark and a real Prometheus.

The picture in docs/metrics is of the same program, `slow` and to its end, by the console template beside this file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml

from gitops.alerts import rules
from harness.processes import free_port, tail
from harness.prometheus import Prometheus
from harness.waiting import eventually
from integration.monitoring.local import at

pytestmark = [pytest.mark.integration, pytest.mark.long]

REPOSITORY = Path(__file__).parents[3]
GROWN = 130 << 20
"""Bytes of Python workers: they begin with less than 100 MiB."""
PLACE = {"namespace": "shop", "name": "orders"}
SHARE = 0.05
"""Of the time in garbage collection: this heap is full within a minute, and the alert waits for a spiral of five."""
QUERIES = {
    "a spiral of collections": f"sum(rate(jvm_gc_collection_seconds_sum[10s])) > {SHARE}",
    "a full heap": 'jvm_memory_used_bytes{area="heap"} > 0.8 * jvm_memory_max_bytes{area="heap"}',
    "a growing Python worker": f'fencepost_worker_resident_memory_bytes{{process="python"}} > {GROWN}',
    "the alert": 'ALERTS{alertname="FencepostGarbageCollection", alertstate="firing"}',
}


def test_a_gc_spiral_and_a_growing_python_worker_are_seen_before_the_driver_ends(tmp_path: Path) -> None:
    spark, of_driver, of_worker = tmp_path / "spark", free_port(), free_port()
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{REPOSITORY / 'dev'}:{REPOSITORY / 'tests'}",  # Python workers work in another folder
    }
    command = [sys.executable, "-m", "integration.monitoring.leaks", str(spark), str(of_driver)]
    seen: set[str] = set()
    with (tmp_path / "leaks.log").open("wb") as output:
        driver = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    beside = subprocess.Popen(
        [sys.executable, "-Im", "fencepost.worker", str(spark / "work")],
        env={**os.environ, "FENCEPOST_METRICS_PORT": str(of_worker)},
        stdout=subprocess.DEVNULL,
    )
    try:
        with scraped(tmp_path, of_driver, of_worker) as found:

            def all_seen() -> bool:
                if driver.poll() is not None:
                    raise RuntimeError(f"it ended before {seen} were more: {tail(tmp_path / 'leaks.log')}")
                seen.update(name for name, query in QUERIES.items() if found.query(query))
                return seen == QUERIES.keys()

            eventually("memory that runs out is seen", all_seen, seconds=180, pause=1.0)
    finally:
        for process in (driver, beside):
            process.kill()
            process.wait()


def scraped(folder: Path, *ports: int) -> AbstractContextManager[Prometheus]:
    """Run a Prometheus that scrapes both."""
    jobs = [
        {"job_name": pod, "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": {**PLACE, "pod": pod}}]}
        for pod, port in zip(("driver", "worker"), ports, strict=True)
    ]
    values = {"lookback.memory": "10s", "collectionShare": SHARE, "for": {"FencepostGarbageCollection": "1s"}}
    groups = rules({f"metrics.prometheusRule.{name}": value for name, value in values.items()})
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return at(folder, {"global": every, "rule_files": ["rules.yaml"], "scrape_configs": jobs})
