"""Never two committers: killed, copied, brought back and frozen drivers."""

from __future__ import annotations

import pytest

from e2e.stream import Starts, Stream
from fencepost.contract import ExitCode
from harness.faults.cluster_faults import Faults
from harness.kubernetes.kubectl import Kubectl, Object
from harness.pipelines import Ending, Pipeline, copy_of, ending
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

KILLS = pytest.mark.parametrize("kills", [3, pytest.param(5, marks=pytest.mark.long)])


@KILLS
def test_a_driver_killed_several_times_under_load_loses_nothing_and_doubles_nothing(
    stream: Stream, faults: Faults, kills: int
) -> None:
    """SIGKILL of all the driver's processes, several times, each one after the successor of the last has committed."""
    first = stream.pipeline.epoch()
    starts = Starts(stream.pipeline)
    with stream.load.flowing():
        for number in range(1, kills + 1):
            row = stream.commits_past(stream.fence())
            faults.sigkill(stream.pipeline.driver())
            stream.kills += 1
            successor = stream.commits_past(row, seconds=180)
            while successor.epoch == row.epoch:  # the last commit of the one that was killed
                successor = stream.commits_past(successor, seconds=180)
            assert successor.epoch == first + number
    row = stream.check_every_row()
    assert row.epoch == first + kills
    starts.check_one_per_epoch(range(first + 1, first + kills + 1))


def test_a_twin_and_a_run_brought_back_are_fenced_out_within_a_batch(
    stream: Stream, faults: Faults, kubectl: Kubectl
) -> None:
    """A Job copied by hand from the run that streams, and the Job of the run before it recreated, both under load."""
    pipeline = stream.pipeline
    with stream.load.flowing():
        old = _job(kubectl, pipeline.run_name(pipeline.epoch()))
        row = stream.commits_past(stream.fence())
        faults.sigkill(pipeline.driver())
        stream.kills += 1
        pipeline.wait_ready(epoch=row.epoch + 1)
        now = _job(kubectl, pipeline.run_name(row.epoch + 1))
        kubectl.delete("job", old["metadata"]["name"])
        copies = [copy_of(now, name=f"{pipeline.name}-twin"), copy_of(old, name=old["metadata"]["name"])]
        try:
            names = [kubectl.create(copy)["metadata"]["name"] for copy in copies]
            for name in names:
                expect_fenced(_ending_of(pipeline, name), name)
        finally:
            kubectl.delete("job", *(copy["metadata"]["name"] for copy in copies))
        after = stream.commits_past(stream.fence())
    assert after.epoch == row.epoch + 1, "the twin changed the epoch"
    assert after.driver == pipeline.status()["run"]["podUid"], "the twin took the fence"
    assert stream.check_every_row().epoch == row.epoch + 1


def test_a_driver_frozen_for_a_minute_cannot_commit_after_its_successor(stream: Stream, faults: Faults) -> None:
    """SIGSTOP of all the driver's processes in mid-batch; a successor takes over; SIGCONT after its first commits."""
    pipeline = stream.pipeline
    zombie = pipeline.driver()
    stream.load.burst(24_000)  # so many full batches that one is always in progress
    with stream.load.flowing():
        before = stream.commits_past(stream.fence())
        stream.kills += 1
        with faults.kept(zombie):
            with faults.frozen(zombie):
                row = stream.commits_past(before, seconds=150)
                while row.epoch == before.epoch:
                    row = stream.commits_past(row, seconds=150)
                assert row.epoch == before.epoch + 1
                stream.commits_past(row)
            name = zombie["metadata"]["name"]
            found = eventually(f"{name} ends", lambda: _ending(pipeline.kubectl, name), seconds=60)
        expect_fenced(found, name)
        stream.commits_past(stream.fence())
    assert stream.check_every_row().epoch == before.epoch + 1


def _job(kubectl: Kubectl, name: str) -> Object:
    job = kubectl.get("job", name)
    assert job is not None, f"there is no Job {name}"
    return job


def _ending(kubectl: Kubectl, name: str) -> Ending | None:
    pod = kubectl.get("pod", name)
    assert pod is not None, f"{name} is gone, and its end was not seen"
    return ending(pod)


def _ending_of(pipeline: Pipeline, job: str) -> Ending:
    def ended() -> Ending | None:
        return next((found for pod in pipeline.pods_of(job) if (found := ending(pod))), None)

    return eventually(f"the pod of {job} ends", ended, seconds=180)


def expect_fenced(found: Ending, name: str) -> None:
    """Assert that a driver's container ended as fenced out, with a verdict that says so."""
    assert found.exit_code == ExitCode.FENCED, f"{name} ended with {found}"
    assert found.verdict is not None, f"{name} left no verdict: {found.text!r}"
    assert found.verdict.exit_code == ExitCode.FENCED
    assert found.verdict.reason
    assert found.verdict.remedy
