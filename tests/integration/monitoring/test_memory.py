"""Memory that runs out is seen before its alert fires, while everything still works, on a real Spark and Prometheus.

`make pictures` draws the same program to its end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from harness.processes import tail
from harness.waiting import eventually
from integration.monitoring.leaking import ALERT, first, leaking, quick_rules, scraped

pytestmark = [pytest.mark.integration, pytest.mark.long]

GROWN: Final = 130 << 20
"""Bytes of Python workers: they begin with less than 100 MiB."""
FULL_HEAP: Final = 'jvm_memory_used_bytes{area="heap"} > 0.8 * jvm_memory_max_bytes{area="heap"}'
SIGNS: Final = {
    "a full heap": FULL_HEAP,
    "a spiral of collections": f"sum(rate(jvm_gc_collection_seconds_sum[30s])) > 0.1 and on () ({FULL_HEAP})",
    "a growing Python worker": f'fencepost_worker_resident_memory_bytes{{process="python"}} > {GROWN}',
}


def test_a_gc_spiral_and_a_growing_python_worker_are_seen_before_the_alert_fires(
    tmp_path: Path, record_property: Any
) -> None:
    with leaking(tmp_path) as leak, scraped(tmp_path, leak, groups=quick_rules()) as found:

        def fires() -> bool:
            if leak.driver.poll() is not None:
                raise RuntimeError(f"it ended before the alert: {tail(leak.log)}")
            return bool(found.query(ALERT))

        eventually("the alert fires", fires, seconds=400, pause=1.0)
        alerted = first(found, ALERT)
        seen = {sign: first(found, query) for sign, query in SIGNS.items()}
    before = {sign: round(alerted - moment) for sign, moment in seen.items()}
    record_property("seconds before the alert", before)
    print(f"seconds before the alert: {before}")
    assert min(before.values()) > 0, before
