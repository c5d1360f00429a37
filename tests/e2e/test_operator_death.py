"""The operator is killed with SIGKILL while it works; there is still one Job per epoch."""

from __future__ import annotations

import pytest

from e2e.stream import Starts, Stream
from harness.faults.cluster_faults import Faults
from harness.kubernetes.kubectl import Kubectl
from harness.pipelines import KIND, helm_revisions
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.mark.long
def test_an_operator_killed_while_it_provisions_provisions_once(
    shared: Stream, faults: Faults, kubectl: Kubectl
) -> None:
    """SIGKILL of the operator when Helm's release is there and no driver is, on a pipeline that begins from nothing."""
    if shared.exists():
        kubectl.patch(KIND, shared.pipeline.name, {"spec": {"deletionPolicy": "Delete"}})
        shared.pipeline.delete()
    assert shared.fence() is None
    starts = Starts(shared.pipeline)
    shared.apply()

    def installed() -> bool:
        return bool(helm_revisions(kubectl, shared.pipeline.name))

    eventually("Helm's release is there", installed, seconds=60, pause=0.05)
    with faults.operator_killed():
        pass
    shared.pipeline.wait_ready()
    row = shared.check_every_row()
    starts.check_one_per_epoch(range(row.epoch, row.epoch + 1))


def test_an_operator_killed_during_a_restart_starts_one_job_of_the_next_epoch(stream: Stream, faults: Faults) -> None:
    """SIGKILL of the driver, and SIGKILL of the operator as soon as it noticed."""
    pipeline = stream.pipeline
    epoch, starts = pipeline.epoch(), Starts(pipeline)
    with stream.load.flowing():
        row = stream.commits_past(stream.fence())
        faults.sigkill(pipeline.driver())
        stream.kills += 1

        def noticed() -> bool:
            return pipeline.status().get("state") in {"Restarting", "Starting"}

        eventually("the operator noticed", noticed, seconds=30, pause=0.05)
        with faults.operator_killed():
            pass
        while row.epoch == epoch:
            row = stream.commits_past(row, seconds=180)
    assert stream.check_every_row().epoch == epoch + 1
    starts.check_one_per_epoch(range(epoch + 1, epoch + 2))
