"""Memory that runs out is seen, and alerts, while everything still works, on a real Spark and a real Prometheus.

The picture in docs/metrics is of the same program, `slow` and to its end, by the console template beside this file.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.alerts import rules
from harness.processes import tail
from harness.waiting import eventually
from integration.monitoring.leaking import leaking, scraped

pytestmark = [pytest.mark.integration, pytest.mark.long]

GROWN = 130 << 20
"""Bytes of Python workers: they begin with less than 100 MiB."""
SHARE = 0.05
"""Of the time in garbage collection: this heap is full within a minute, and the alert waits for a spiral of five."""
QUERIES = {
    "a spiral of collections": f"sum(rate(jvm_gc_collection_seconds_sum[10s])) > {SHARE}",
    "a full heap": 'jvm_memory_used_bytes{area="heap"} > 0.8 * jvm_memory_max_bytes{area="heap"}',
    "a growing Python worker": f'fencepost_worker_resident_memory_bytes{{process="python"}} > {GROWN}',
    "the alert": 'ALERTS{alertname="FencepostGarbageCollection", alertstate="firing"}',
}


def test_a_gc_spiral_and_a_growing_python_worker_are_seen_before_the_driver_ends(tmp_path: Path) -> None:
    seen: set[str] = set()
    values = {"lookback.memory": "10s", "collectionShare": SHARE, "for": {"FencepostGarbageCollection": "1s"}}
    groups = rules({f"metrics.prometheusRule.{name}": value for name, value in values.items()})
    with leaking(tmp_path) as leak, scraped(tmp_path, leak, groups=groups) as found:

        def all_seen() -> bool:
            if leak.driver.poll() is not None:
                raise RuntimeError(f"it ended before {seen} were more: {tail(leak.log)}")
            seen.update(name for name, query in QUERIES.items() if found.query(query))
            return seen == QUERIES.keys()

        eventually("memory that runs out is seen", all_seen, seconds=180, pause=1.0)
