"""Runs that say that Kafka or Cassandra does not answer, while the operator knows better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from crash.test_blindness import Cut
from fakes.manifests import body
from fakes.stage import Stage
from fakes.world import World
from fencepost.contract import ExitCode, Reason
from fencepost_operator.api import RETRY_ANNOTATION
from fencepost_operator.errors import Unreachable
from present import present

ATTEMPTS: Final = 4


async def running() -> tuple[Stage, Cut]:
    gate = Cut()
    stage = Stage(World(), gate)
    stage.world.apply(body(restart={"maxAttempts": ATTEMPTS}))
    await stage.running()
    await stage.run(10)
    return stage, gate


def is_stalled(stage: Stage) -> bool:
    return stage.ready() == Reason.RESTART_BUDGET_EXHAUSTED


async def fail(
    stage: Stage,
    runs: int,
    *,
    reason: Reason = Reason.KAFKA_UNREACHABLE,
    meanwhile: Callable[[bool], None] = lambda _runs: None,
) -> None:
    """End that many runs in a row that claim, and commit nothing; fewer where no further one is started.

    `meanwhile` is called when a run has claimed, and a moment before it ends.
    """
    for _ in range(runs):
        driver = stage.world.newest_pod().driver
        driver.hangs = True
        await stage.run(2)
        meanwhile(True)
        await stage.run(3)
        meanwhile(False)
        await stage.run(3)
        driver.end(stage.world.now, ExitCode.DEPENDENCY_DOWN, "no answer for 60 s", reason=reason)
        epoch = stage.epoch
        await stage.until(lambda epoch=epoch: is_stalled(stage) or _has_claimed(stage, after=epoch), seconds=400)  # type: ignore[misc]
        if is_stalled(stage):
            return


def _has_claimed(stage: Stage, *, after: int) -> bool:
    row = stage.row
    if row.epoch > after and row.driver is not None:
        stage.world.newest_pod().driver.hangs = True  # before its first commit
        return True
    return False


@pytest.mark.parametrize("reason", [Reason.KAFKA_UNREACHABLE, Reason.CASSANDRA_UNREACHABLE])
async def test_runs_without_answers_that_the_operator_gets_end_at_the_limit(reason: Reason) -> None:
    stage, _ = await running()
    await fail(stage, ATTEMPTS + 2, reason=reason)
    failure = present(stage.pipeline.status.failure)
    assert (is_stalled(stage), failure.count, failure.reason) == (True, ATTEMPTS, Reason.DRIVER_CUT_OFF)
    message = stage.pipeline.status.message
    assert all(word in message for word in (reason, "no answer for 60 s", "NetworkPolicies", "listeners", "leader"))
    stage.annotate(RETRY_ANNOTATION, "1")
    await stage.running()


async def test_an_outage_that_the_operator_sees_as_well_has_no_limit() -> None:
    stage, gate = await running()
    gate.error = Unreachable("no answer", remedy="x")

    def meanwhile(runs: bool) -> None:
        gate.unseen = frozenset({"source"} if runs else ())

    await fail(stage, ATTEMPTS + 2, meanwhile=meanwhile)
    failure = present(stage.pipeline.status.failure)
    assert (is_stalled(stage), failure.count, failure.reason) == (False, ATTEMPTS + 2, Reason.DEPENDENCY_DOWN)


async def test_a_partition_without_a_leader_is_an_outage() -> None:
    stage, _ = await running()
    stage.world.leaderless.add("orders/1")
    await fail(stage, ATTEMPTS + 2)
    assert not is_stalled(stage)


async def test_an_operator_that_may_not_ask_kafka_says_nothing_against_the_driver() -> None:
    stage, _ = await running()
    stage.world.driver_only = True
    await fail(stage, ATTEMPTS + 2)
    assert not is_stalled(stage)


@pytest.mark.parametrize("reason", [Reason.SINK_UNREACHABLE, Reason.CLOCK_SKEW, Reason.CASSANDRA_CREDENTIALS_REJECTED])
async def test_what_the_operator_does_not_look_at_has_no_limit(reason: Reason) -> None:
    stage, _ = await running()
    await fail(stage, ATTEMPTS + 2, reason=reason)
    assert not is_stalled(stage)


async def test_a_commit_in_between_starts_the_count_again() -> None:
    stage, _ = await running()
    for _ in range(3):
        await fail(stage, ATTEMPTS - 1)
        stage.world.newest_pod().driver.hangs = False
        await stage.running()
    assert not is_stalled(stage)
