"""The moments of a status after a step of the wall clock, and beside an operator with another clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from fakes.manifests import body
from fencepost_operator.api import (
    PAUSED_ANNOTATION,
    FailureStatus,
    OfflinePartition,
    Pipeline,
    Reason,
    Rewind,
    RewindStatus,
    Status,
    StepState,
    StepStatus,
    read_pipeline,
)
from fencepost_operator.observation import Known, Observation
from fencepost_operator.runtime.clock_steps import ClockSteps
from present import present
from unit.operator.scenes import JOB, POD, WELL

NOW: Final = datetime(2026, 1, 1, 12, 0, 0, 250000, tzinfo=UTC)
PIPELINE: Final = read_pipeline(body())
STEPS: Final = [timedelta(hours=2), timedelta(hours=-2), timedelta(seconds=-3)]


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def said(
    seconds: float = 0.0, *, retry: float = 60.0, step: timedelta = timedelta(), is_paused: bool = False
) -> Pipeline:
    """Return a pipeline of which each kind of moment was recorded at that second, and moved by a step since."""
    since = at(seconds) + step
    failure = FailureStatus(
        count=1, epoch=1, at=since, reason=Reason.RUN_FAILED, message="m", remedy="r", next_attempt_at=at(retry) + step
    )
    status = Status(
        failure=failure,
        unobserved_since=since,
        not_ready_since=since.replace(microsecond=0),
        offline_partitions=(OfflinePartition(partition="orders/0", since=since),),
        restarted_at=(since - timedelta(seconds=5), since),
    )
    return replace(PIPELINE, status=status, annotations={PAUSED_ANNOTATION: "true"} if is_paused else {})


def recorded(pipeline: Pipeline) -> ClockSteps:
    """Return what a process knows that has recorded the pipeline at NOW."""
    steps = ClockSteps()
    steps.recorded(pipeline.key, pipeline.status, (), NOW, 100.0)
    return steps


@pytest.mark.parametrize("step", STEPS)
def test_all_moments_move_with_the_clock(step: timedelta) -> None:
    assert recorded(said()).by_this_clock(said(), at(30) + step, 130.0) == said(step=step)


@pytest.mark.parametrize("step", STEPS)
def test_both_ends_of_a_rewinds_step_move(step: timedelta) -> None:
    """The history is read from its end on."""
    began, ended = at(-20), at(-10)
    done = StepStatus(name="Stop", state=StepState.DONE, message="", started_at=began, finished_at=ended)
    rewind = Rewind(
        key=PIPELINE.key, pipeline="orders", uid="u", resource_version="1", generation=1, created_at=began,
        spec=(), status=RewindStatus(steps=(done,)),
    )  # fmt: skip
    steps = ClockSteps()
    steps.recorded(PIPELINE.key, PIPELINE.status, (rewind.status,), NOW, 100.0)
    later = replace(WELL.observation, now=at(30) + step, rewinds=Known((rewind,)))
    found = steps.measured(PIPELINE, PIPELINE, later, 130.0).rewinds
    assert isinstance(found, Known)
    (moved,) = found.value[0].status.steps
    assert (moved.started_at, moved.finished_at) == (began + step, ended + step)


@pytest.mark.parametrize("step", STEPS)
def test_they_move_once_whether_or_not_the_write_took_effect(step: timedelta) -> None:
    steps = recorded(said())
    steps.by_this_clock(said(), at(30) + step, 130.0)
    assert steps.by_this_clock(said(), at(31) + step, 131.0) == said(step=step)
    assert steps.by_this_clock(said(step=step), at(32) + step, 132.0) == said(step=step)
    assert steps.by_this_clock(said(step=step), at(33), 133.0) == said()


def test_a_slow_clock_moves_nothing_until_it_is_seconds_behind() -> None:
    steps = recorded(said())
    assert steps.by_this_clock(said(), at(28.5), 130.0) == said()
    assert steps.by_this_clock(said(), at(27.5), 130.0) == said(-2.5, retry=57.5)


def test_the_status_of_a_paused_pipeline_stays_and_counts_afterwards() -> None:
    steps, step = recorded(said()), timedelta(hours=2)
    assert steps.by_this_clock(said(is_paused=True), at(30) + step, 130.0) == said(is_paused=True)
    assert steps.by_this_clock(said(), at(40) + step, 140.0) == said(step=step)


def test_what_an_operator_finds_has_lasted_as_long_as_its_clock_says() -> None:
    steps = ClockSteps()
    assert steps.by_this_clock(said(), at(30), 500.0) == said()
    assert steps.by_this_clock(said(), at(7260), 530.0) == said(step=timedelta(hours=2))


def test_what_another_operator_records_ahead_has_lasted_since_now() -> None:
    steps = ClockSteps()
    found = steps.by_this_clock(said(10), NOW, 500.0)
    assert found.status.unobserved_since == NOW
    assert found.status.offline_partitions[0].since == NOW
    assert steps.by_this_clock(found, at(5), 505.0) == found


def test_a_deletion_has_lasted_since_this_process_saw_it() -> None:
    """The API server, whose clock is hours behind, has known of both for a minute."""
    long_ago = at(-7200)
    deleted = replace(PIPELINE, deleting_since=long_ago)
    job = replace(JOB, deleting=True, pod=replace(POD, deleting_since=long_ago))
    steps = ClockSteps()

    def seen(wall: datetime, monotonic: float) -> tuple[datetime | None, datetime | None]:
        observation: Observation = replace(WELL.observation, now=wall, runs=Known((job,)))
        found = steps.measured(deleted, deleted, observation, monotonic)
        assert isinstance(found.runs, Known)
        return found.deletion_measured_since, present(found.runs.value[0].pod).deleting_since

    assert seen(NOW, 100.0) == (NOW, NOW)
    assert seen(at(30), 130.0) == (NOW, NOW)
    assert seen(at(7240), 140.0) == (at(7200), at(7200))
    alone = steps.measured(PIPELINE, PIPELINE, WELL.observation, 150.0)
    assert (alone.deletion_measured_since, alone.runs) == (None, WELL.observation.runs)


def test_any_number_of_pods_leaves_what_else_was_seen() -> None:
    deleted, steps = replace(PIPELINE, deleting_since=NOW), ClockSteps()
    pods = (replace(POD, uid=f"uid-{number}", deleting_since=NOW) for number in range(200))
    runs = Known(tuple(replace(JOB, deleting=True, pod=pod) for pod in pods))
    for seconds in (0, 30, 60):
        observation: Observation = replace(WELL.observation, now=at(seconds), runs=runs)
        found = steps.measured(deleted, deleted, observation, 100.0 + seconds)
        assert found.deletion_measured_since == NOW
