"""The operator's wall clock steps while everything else keeps its pace: nothing is early, and nothing waits for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

import pytest

from fakes.gate import Gate
from fakes.manifests import KEY, body
from fakes.ports import ports_of
from fakes.stage import POLICY, ROW, Stage
from fakes.stepping_clock import SteppingClock
from fakes.world import World
from fencepost_operator.api import Reason
from fencepost_operator.decision.reporting.conditions import OFFLINE_AFTER
from fencepost_operator.desired import labels
from fencepost_operator.errors import Conflict, Unreachable
from fencepost_operator.runtime.passes.reconciler import Reconciler
from present import present

CONFIG: Final = replace(POLICY, page_not_ready_after=60.0, page_resolve_after=60.0)


def begin(stage: Stage, clock: SteppingClock) -> None:
    """Start an operator on the clock, in place of one that may have been there."""
    stage._operator = Reconciler(ports=replace(ports_of(stage.world, stage.gate), clock=clock), config=CONFIG)


async def running(**changes: Any) -> tuple[Stage, SteppingClock]:
    stage = Stage(World(), Gate())
    clock = SteppingClock(stage.world)
    stage.world.apply(body(**changes))
    begin(stage, clock)
    await stage.running()
    await stage.run(20)
    return stage, clock


@pytest.mark.parametrize("restarts", [False, True], ids=["same operator", "another operator"])
@pytest.mark.parametrize("minutes", [10, -10])
async def test_a_step_of_the_clock_fences_no_healthy_run(minutes: int, restarts: bool) -> None:
    stage, clock = await running()
    for driver in stage.world.drivers:
        driver.batch_takes = timedelta(seconds=20)
    await stage.run(30)
    clock.ahead = timedelta(minutes=minutes)
    if restarts:
        begin(stage, clock)
    await stage.run(60)
    assert stage.world.table.rows[ROW].epoch == 1


@pytest.mark.parametrize("minutes", [10, -120])
async def test_a_driver_that_hangs_is_found_after_a_step_of_the_clock(minutes: int) -> None:
    stage, clock = await running()
    for driver in stage.world.drivers:
        driver.frozen = True
    await stage.run(10)
    clock.ahead = timedelta(minutes=minutes)
    await stage.until(lambda: stage.world.table.rows[ROW].epoch > 1, seconds=120)
    failure = stage.pipeline.status.failure
    assert failure is not None
    assert failure.reason in {Reason.UNRESPONSIVE, Reason.HEARTBEAT_LOST}


async def test_a_clock_that_is_set_back_delays_no_retry() -> None:
    stage, clock = await running()
    clock.ahead = timedelta(hours=2)
    await stage.run(10)
    for driver in stage.world.drivers:
        driver.frozen = True  # so that nothing resets the count
    for _ in range(5):
        await stage.until(lambda: any(driver.alive for driver in stage.world.drivers), seconds=120)
        stage.world.kill_driver(1)
        await stage.run(2)
    failure = stage.pipeline.status.failure
    assert failure is not None
    assert failure.next_attempt_at is not None
    assert failure.next_attempt_at > stage.world.now + timedelta(hours=1)
    clock.ahead = timedelta()
    await stage.until(stage.is_running, seconds=180)


async def test_a_step_of_the_clock_is_not_a_grace_period() -> None:
    """Injected: the clock is put right after the stop, and the pod vanishes by force while its process ends."""
    stage, clock = await running()
    clock.ahead = timedelta(hours=-2)
    stage.world.change(KEY, batchInterval="2s")
    (job,) = stage.world.jobs
    await stage.until(lambda: job.deleting)
    clock.ahead = timedelta()
    stage.world._bury(job)
    stage.world.jobs.remove(job)
    (stopping,) = stage.world.buried
    stopping.frozen = True
    await stage.until(lambda: bool(stage.world.jobs))
    assert stopping.alive
    assert stage.world.jobs[0].manifest["metadata"]["annotations"][labels.GENERATION] == "2"


@pytest.mark.parametrize(("is_back", "generation"), [(True, "2"), (False, "1")])
async def test_a_step_of_the_clock_makes_no_node_ready_for_longer(is_back: bool, generation: str) -> None:
    """Injected: a node that was away is back, and has not ended the process of a pod that was deleted meanwhile."""
    stage, clock = await running()
    (job,), (stopping,) = stage.world.jobs, stage.world.drivers
    stopping.frozen, stage.world.kubelet_kills = True, False
    stage.world.change(KEY, batchInterval="2s")
    await stage.until(lambda: job.deleting)
    await stage.run(job.termination_grace + 2)
    assert stage.pipeline.status.epoch == 1
    stage.world._bury(job)
    stage.world.jobs.remove(job)
    if is_back:
        stage.world.nodes["node-1"].changed_at = stage.world.now
    else:
        stopping.end(stage.world.now, 137)
    clock.ahead = timedelta(hours=2)
    await stage.until(lambda: bool(stage.world.jobs))
    assert stopping.alive is is_back
    assert stage.world.jobs[0].manifest["metadata"]["annotations"][labels.GENERATION] == generation


async def test_a_step_of_the_clock_is_no_part_of_the_stop_timeout() -> None:
    stage, clock = await running(restart={"stopTimeout": "20s"})
    (job,), (stopping,) = stage.world.jobs, stage.world.drivers
    stopping.frozen = True
    stage.world.change(KEY, batchInterval="2s")
    await stage.until(lambda: job.deleting)
    clock.ahead = timedelta(hours=2)
    await stage.run(15)
    assert stage.world.table.rows[ROW].epoch == 1
    await stage.until(lambda: stage.world.table.rows[ROW].epoch == 2, seconds=10)


async def test_a_pod_that_kubernetes_deletes_has_its_grace_period_by_no_other_clock() -> None:
    stage, clock = await running()
    clock.ahead = timedelta(hours=2)
    stage.world.drivers[0].batch_takes = timedelta(seconds=20)
    await stage.run(10)
    stage.world.delete_pod(stage.world.newest_pod())
    await stage.replaced()
    assert stage.generation == 1
    assert stage.world.drivers[0].exit_code == 0


async def test_two_operators_whose_clocks_differ_replace_no_healthy_run() -> None:
    """Each records moments by its own clock, by which the other one must measure nothing."""
    stage, clock = await running()
    for driver in stage.world.drivers:
        driver.batch_takes = timedelta(seconds=20)
    first = stage._operator
    begin(stage, SteppingClock(stage.world, ahead=timedelta(minutes=10)))
    second = stage._operator
    for _ in range(60):
        for stage._operator in (first, second):
            await stage.turn()
        stage.world.advance(1)
    assert clock.ahead == timedelta()
    assert stage.world.table.rows[ROW].epoch == 1


@pytest.mark.parametrize("failure", [Unreachable("no answer"), Conflict("changed by another client")])
async def test_a_step_of_the_clock_counts_until_a_pass_is_recorded(failure: Exception) -> None:
    """Injected: the first pass after the step cannot write the status, and the driver stands still for seconds."""
    stage, clock = await running()
    for driver in stage.world.drivers:
        driver.frozen = True
    stage.world.table.progress.clear()  # so that it is not judged by its heartbeats
    await stage.run(5)
    failures = [failure]

    def refuse(_number: int, name: str) -> None:
        if name == "write_status" and failures:
            raise failures.pop()

    stage.gate.before = refuse
    clock.ahead = timedelta(minutes=10)
    await stage.run(10)
    assert not failures
    assert stage.world.table.rows[ROW].epoch == 1


@pytest.mark.parametrize("minutes", [10, -10])
async def test_a_step_of_the_clock_holds_up_no_figures(minutes: int) -> None:
    """The window in progress began at a moment of the clock before."""
    stage, clock = await running()
    await stage.run(60)
    usual = present(stage.pipeline.status.throughput).records_per_second
    assert usual
    clock.ahead = timedelta(minutes=minutes)
    await stage.run(90)
    figures = present(stage.pipeline.status.throughput)
    assert timedelta() <= clock.now() - present(figures.since) <= timedelta(seconds=70)
    assert figures.records_per_second == pytest.approx(usual, rel=0.2)


@dataclass(frozen=True, slots=True)
class Paged:
    """A state that pages once it has lasted for `after`."""

    begin: Callable[[World], object]
    end: Callable[[World], object]
    after: timedelta


def _hold(world: World) -> None:
    world.rate = 0.0  # so that it is the same transaction
    world.held["orders/0"] = 5


def _blind(world: World) -> None:
    world.kafka_down = True


def _see(world: World) -> None:
    world.kafka_down = False


def _strand(world: World) -> None:
    world.cassandra_down = True
    world.kill_driver(1)


def _rescue(world: World) -> None:
    world.cassandra_down = False


NOT_READY: Final = timedelta(seconds=CONFIG.page_not_ready_after)
PAGED: Final = {
    Reason.PARTITIONS_OFFLINE: Paged(
        lambda world: world.leaderless.add("orders/1"), lambda world: world.leaderless.clear(), OFFLINE_AFTER
    ),
    Reason.TRANSACTION_STALLED: Paged(
        _hold, lambda world: world.held.clear(), timedelta(seconds=CONFIG.transaction_timeout)
    ),
    Reason.UNOBSERVED: Paged(_blind, _see, NOT_READY),
    Reason.NOT_READY: Paged(_strand, _rescue, NOT_READY),
}


def _is_open(stage: Stage, reason: Reason) -> bool:
    return any(page.reason == reason and page.resolved_at is None for page in stage.pipeline.status.pages)


async def _lasts(stage: Stage, reached: Callable[[], bool], expected: timedelta) -> None:
    """Run until something holds: neither clearly before that time nor clearly after it."""
    began = stage.world.now
    await stage.until(reached, seconds=expected.total_seconds() + 60)
    assert stage.world.now - began > expected - timedelta(seconds=20)


@pytest.mark.parametrize("hours", [2, -2])
@pytest.mark.parametrize("reason", PAGED)
async def test_a_step_of_the_clock_neither_hastens_nor_delays_a_page(reason: Reason, hours: int) -> None:
    stage, clock = await running()
    paged = PAGED[reason]
    paged.begin(stage.world)
    await stage.run(10)
    clock.ahead = timedelta(hours=hours)
    await _lasts(stage, lambda: _is_open(stage, reason), paged.after)
    paged.end(stage.world)
    await stage.run(10)
    clock.ahead = timedelta()
    await _lasts(stage, lambda: not _is_open(stage, reason), timedelta(seconds=CONFIG.page_resolve_after))
