"""A pipeline without workers: one pod, killed and scaled under load."""

from __future__ import annotations

from typing import Final

import pytest

from e2e.stream import Applied, Starts, Stream
from harness.faults.cluster_faults import Faults
from harness.pipelines import KIND, helm_revisions
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

OF_A_CLUSTER: Final = {"StatefulSet", "Service", "Secret", "PodDisruptionBudget"}


def test_one_pod_survives_its_driver_and_moves_to_a_cluster_and_back(applied: Applied, faults: Faults) -> None:
    """The fault is a SIGKILL of the driver under load; then `kubectl scale` to 1 worker and back to none."""
    stream = applied("small", cluster={"workers": 0}, restart={"maxBackoff": "2s"})
    pipeline = stream.pipeline
    with stream.load.flowing():
        pipeline.wait_ready()
        starts = Starts(pipeline)
        row = stream.commits_past(stream.fence())
        _is_alone(stream)
        faults.sigkill(pipeline.driver())
        stream.kills += 1
        while row.epoch == 1:
            row = stream.commits_past(row, seconds=180)
        pipeline.wait_ready(epoch=2)
        for epoch, workers in ((3, 1), (4, 0)):
            pipeline.kubectl.run("scale", f"{KIND}/{pipeline.name}", f"--replicas={workers}")
            while row.epoch < epoch:
                row = stream.commits_past(row, seconds=180)
            pipeline.wait_ready(epoch=epoch)
            assert bool(helm_revisions(pipeline.kubectl, pipeline.name)) == bool(workers)
    assert stream.check_every_row().epoch == 4, "a scale is one new run"
    eventually("nothing of the Spark cluster is left", lambda: _is_alone(stream), seconds=60)
    assert pipeline.restarts() == 1
    starts.check_one_per_epoch(range(2, 5))


def _is_alone(stream: Stream) -> bool:
    """Assert that the driver is all that runs of the pipeline."""
    kinds = {name.partition("/")[0] for name in stream.pipeline.owned()}
    assert not kinds & OF_A_CLUSTER
    return True
