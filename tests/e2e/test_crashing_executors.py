"""Executors that are killed in a loop, each with shuffle files on the disk: no worker is evicted, and no row is lost.

The testbed's kubelets measure no volumes, so the test does what they would do: it sums up the files from the node.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from e2e.stream import Applied
from e2e.test_monitoring import pods, scrape
from harness.kubernetes.kubectl import Kubectl, Object
from harness.kubernetes.nodes import Nodes
from harness.pipelines import code
from harness.waiting import eventually

CRASHES: Final = int(os.environ.get("FENCEPOST_EXECUTOR_CRASHES", "30"))
"""500 take two hours and a half: more than ten within two minutes end the run, see fencepost.driver.crash_loop."""
INTERVAL: Final = 16
"""Seconds from one batch, and one crash, to the next."""
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600 + 3 * INTERVAL * CRASHES)]

SCRATCH: Final = 64 << 20
"""Bytes that the volume may hold; with 8 MB for each crash the ninth one would fill it."""
SIZE: Final = "du --summarize --block-size=1 /var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/tmp | cut -f1"
CRASHING: Final = Path(__file__).with_name("crashing.py")
CODE: Final = "crashing-code"


def test_executors_that_crash_in_a_loop_evict_no_worker(applied: Applied, kubectl: Kubectl, nodes: Nodes) -> None:
    made = code()
    kubectl.apply({**made, "metadata": {"name": CODE}, "data": {**made["data"], CRASHING.name: CRASHING.read_text()}})
    stream = applied(
        "crashing",
        job={"codeFrom": {"configMapName": CODE}, "entrypoint": f"{CRASHING.stem}:transform"},
        cluster={"worker": {"scratchSize": f"{SCRATCH >> 20}Mi"}},
        source={"kafka": {"maxRecordsPerBatch": 200}},
        batchInterval=f"{INTERVAL}s",
    )
    try:
        stream.pipeline.wait_ready()
        (worker,) = pods(stream, "worker")
        size = SIZE.format(uid=worker["metadata"]["uid"])
        measured: list[int] = []
        reported: list[float] = []

        def crashed() -> bool:
            found = scrape(kubectl, worker, "metrics", "/metrics")
            reported.append(found.get("fencepost_worker_scratch_bytes", 0.0))
            measured.append(int(nodes.run(worker["spec"]["nodeName"], "sh", "-c", size, check=False) or 0))
            started = found.get("fencepost_worker_executors_started_total", 0.0)
            assert started > CRASHES, f"{started} executors"
            return True

        with stream.load.flowing(rate=12):
            eventually(f"{CRASHES} executors crashed", crashed, seconds=3 * INTERVAL * CRASHES, pause=2)
        stream.check_every_row()
        for sizes in (measured, reported):
            assert 4 << 20 < max(sizes) < SCRATCH, "it holds the shuffle files of the living executor, and not of all"
        (same,) = pods(stream, "worker")
        assert identity(same) == identity(worker)
        events = kubectl.items("events", "--field-selector=reason=Evicted")
        assert worker["metadata"]["name"] not in {event["involvedObject"]["name"] for event in events}
    finally:
        stream.pipeline.delete()


def identity(pod: Object) -> tuple[str, list[int]]:
    """Return what a replaced pod, or a restarted container, has another one of."""
    return pod["metadata"]["uid"], [status["restartCount"] for status in pod["status"]["containerStatuses"]]
