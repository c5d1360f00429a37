"""A second Job of the last run, which the API server creates after that run has ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from fencepost_operator.actions import StopRun
from fencepost_operator.api import Reason
from fencepost_operator.observation import DriverPod, Run
from present import present
from unit.operator.scenes import FAILED, JOB, NOW, POD, RUN, WELL, Scene

ENDED: Final = replace(RUN, ended_at=NOW - timedelta(seconds=30), dead=True, termination_grace=30)
LATE: Final = replace(JOB, created_at=NOW - timedelta(seconds=1), pod=None)
SECOND: Final = replace(POD, uid="pod-second", name="orders-run-2-second", node_ready=True)


def scene(job: Run) -> Scene:
    return WELL.said(run=ENDED).seen(runs=(job,))


@pytest.mark.parametrize("pod", [None, SECOND], ids=["before-its-pod", "with-its-pod"])
def test_it_is_stopped_before_the_next_run_starts(pod: DriverPod | None) -> None:
    decision = scene(replace(LATE, pod=pod)).decide()
    assert decision.action == StopRun(name=RUN.name)
    assert decision.status.run == ENDED

    waits = scene(replace(LATE, pod=pod, deleting=True)).decide()
    assert (waits.action, waits.reason) == (None, Reason.STOPPING)


def test_the_next_run_follows_once_its_driver_has_ended() -> None:
    ended = replace(SECOND, exit_code=143, phase="Failed", deleting_since=NOW)
    assert scene(replace(LATE, pod=ended, deleting=True)).decide().reason is not Reason.STOPPING


def test_the_runs_own_job_holds_nothing_up() -> None:
    """The controller takes a moment to finish a Job, and to remove one that is deleted."""
    for job in (replace(JOB, pod=None), replace(JOB, pod=None, deleting=True)):
        assert scene(job).decide().reason is not Reason.STOPPING


@pytest.mark.parametrize(
    "pod", [replace(SECOND, node_ready=False), replace(SECOND, deleting_since=NOW - timedelta(hours=1))]
)
def test_one_that_does_not_end_counts_as_a_driver_that_may_live(pod: DriverPod) -> None:
    decision = scene(replace(LATE, pod=pod, deleting=True)).decide()
    assert present(decision.status.run).dead is False


def test_it_does_not_take_a_failure_back() -> None:
    failed = WELL.said(run=ENDED, failure=replace(FAILED, count=1, reason=Reason.BAD_SPEC, next_attempt_at=None))
    decision = failed.seen(runs=(replace(LATE, pod=SECOND),)).decide()
    assert present(decision.status.failure).count == 1


def test_it_is_not_recorded_as_the_runs_own_while_that_ends() -> None:
    """An operator that was frozen created it as the first one's pod went away (seed 4069236)."""
    stopping = replace(RUN, stop_requested_at=NOW - timedelta(seconds=5))
    decision = WELL.said(run=stopping).seen(runs=(LATE,)).decide()
    assert present(decision.status.run).created_at == RUN.created_at
