"""A warm standby takes over from a driver that is killed under load, on the cluster."""

from __future__ import annotations

import pytest

from e2e.stream import Applied, Starts
from harness.faults.cluster_faults import Faults
from harness.kubernetes.kubectl import Object
from harness.pipelines import Pipeline
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "workers", [pytest.param(0, id="no worker"), pytest.param(1, id="worker", marks=pytest.mark.long)]
)
def test_the_standby_commits_next_after_a_kill_and_another_one_starts(
    applied: Applied, faults: Faults, workers: int
) -> None:
    """SIGKILL of all the driver's processes under load, once its standby is warm."""
    spec = {"cluster": {"workers": workers}, "restart": {"standby": "Warm"}}
    stream = applied(f"standby-{workers}", **spec)
    pipeline = stream.pipeline
    with stream.load.flowing():
        pipeline.wait_ready()
        standby = standing(pipeline)
        starts = Starts(pipeline)
        row = stream.commits_past(stream.fence())
        assert (row.epoch, row.driver) == (1, pipeline.driver()["metadata"]["uid"]), "the standby has changed nothing"
        assert standby["spec"]["nodeName"] != pipeline.driver()["spec"]["nodeName"]
        faults.sigkill(pipeline.driver())
        stream.kills += 1
        while row.epoch == 1:
            row = stream.commits_past(row, seconds=60)
        assert (row.epoch, row.driver) == (2, standby["metadata"]["uid"]), "the standby's run commits next"
        pipeline.wait_ready(epoch=2)
        assert standing(pipeline)["metadata"]["name"] != standby["metadata"]["name"]
        stream.commits_past(row)
    assert stream.check_every_row().epoch == 2
    assert pipeline.restarts() == 1
    starts.check_one_per_epoch(range(3, 4))  # the run of epoch 2 had started before
    said = pipeline.kubectl.run("get", "events", "--field-selector=reason=StandbyTookOver")
    assert pipeline.name in said


@pytest.mark.long
def test_the_standby_commits_next_after_a_freeze_and_the_driver_that_wakes_commits_nothing(
    applied: Applied, faults: Faults
) -> None:
    """SIGSTOP of all the driver's processes under load; SIGCONT once the standby has committed."""
    stream = applied("standby-frozen", restart={"standby": "Warm", "stallTimeout": "10m"})
    pipeline = stream.pipeline
    with stream.load.flowing():
        pipeline.wait_ready()
        standby, zombie = standing(pipeline), pipeline.driver()
        row = stream.commits_past(stream.fence())
        with faults.frozen(zombie):
            stream.kills += 1
            while row.epoch == 1:
                row = stream.commits_past(row, seconds=120)
            assert (row.epoch, row.driver) == (2, standby["metadata"]["uid"]), "the standby's run commits next"
        assert pipeline.status()["failure"]["reason"] == "HeartbeatLost"
        pipeline.wait_ready(epoch=2)
        stream.commits_past(row)
    assert stream.check_every_row().epoch == 2


def standing(pipeline: Pipeline) -> Object:
    """Wait until a standby is warm; return its pod."""

    def warm() -> Object | None:
        if pipeline.condition("StandbyReady").get("status") != "True":
            return None
        pods = pipeline.pods_of(pipeline.run_name(pipeline.epoch() + 1))
        return next(iter(pods), None)

    return eventually(f"{pipeline.name} has a warm standby", warm, seconds=240)
