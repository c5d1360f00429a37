"""Many drivers lose their heartbeats at once: few of them are replaced at a time, and most are there when it is over.

Injected: the database stalls for the drivers, and answers the operator.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import pytest

from crash.test_planned_restarts import Fleet
from fakes.drivers import Driver
from fencepost_operator.api import ObjectKey, Reason
from fencepost_operator.runtime.permits.replacement import FEW, PERIOD
from present import present

PATIENCE = 10
LONG = timedelta(minutes=10)
"""Of batches: meanwhile a driver depends on its heartbeats."""


def working(fleet: Fleet, keys: Collection[ObjectKey]) -> list[Driver]:
    """The drivers of the pipelines' runs."""
    names = {(key, present(fleet.pipeline(key).status.run).name) for key in keys}
    return [job.pod.driver for job in fleet.world.jobs if (job.key, job.name) in names and job.pod is not None]


def replaced(fleet: Fleet) -> list[ObjectKey]:
    return [key for key in fleet.keys if fleet.pipeline(key).status.restarts]


async def in_batches(*keys: ObjectKey) -> Fleet:
    """Pipelines inside long batches, whose operator has seen all of them alive."""
    found = Fleet(keys)
    for key in keys:
        found.world.change(key, restart={"stallTimeout": "5m"})
    await found.until(found.running)
    for driver in working(found, keys):
        driver.batch_takes = LONG
    await passes(found, 10)
    return found


async def passes(fleet: Fleet, seconds: float) -> None:
    end = fleet.world.now + timedelta(seconds=seconds)
    await fleet.until(lambda: fleet.world.now >= end)


def keys_of(namespace: str, count: int) -> list[ObjectKey]:
    return [ObjectKey(namespace, f"orders-{number}") for number in range(count)]


async def test_a_stall_of_the_database_costs_few_epochs() -> None:
    fleet = await in_batches(*keys_of("shop", 12))
    drivers = working(fleet, fleet.keys)
    for driver in drivers:
        driver.frozen = True
    await passes(fleet, PATIENCE + 8)
    assert len(replaced(fleet)) == FEW
    held = [key for key in fleet.keys if key not in replaced(fleet)]
    assert {fleet.ready(key) for key in held} == {("True", "HeartbeatLost")}
    assert fleet.metrics.silent == (12, 12 - FEW)
    assert [reason for reason, _ in fleet.world.events].count("HeartbeatLost") == len(held)
    for driver in drivers:
        driver.frozen = False
    await passes(fleet, 2)
    assert {fleet.ready(key) for key in held} == {("True", "Streaming")}
    await fleet.until(fleet.running)
    await passes(fleet, 2 * PERIOD)
    assert len(replaced(fleet)) == FEW
    assert fleet.metrics.silent == (0, 0)


async def test_it_is_a_rate_and_the_stall_timeout_counts_as_before() -> None:
    fleet = await in_batches(*keys_of("shop", 10))
    for driver in working(fleet, fleet.keys):
        driver.frozen = True
    await passes(fleet, PATIENCE + PERIOD + 8)
    assert len(replaced(fleet)) == 2 * FEW
    left = next(key for key in fleet.keys if key not in replaced(fleet))
    fleet.world.change(left, restart={"stallTimeout": "20s"})
    await passes(fleet, 3)
    assert present(fleet.pipeline(left).status.failure).reason == Reason.UNRESPONSIVE
    await passes(fleet, 2 * PERIOD)
    assert len(replaced(fleet)) == 10


async def test_few_of_many_are_replaced_at_once() -> None:
    fleet = await in_batches(*keys_of("shop", 13))
    lost = list(fleet.keys[:3])
    for driver in working(fleet, lost):
        driver.frozen = True
    await passes(fleet, PATIENCE + 8)
    assert replaced(fleet) == lost


async def test_a_tenant_without_heartbeats_holds_up_no_other_one() -> None:
    """Injected: an image that gives no heartbeats, in a namespace with most of the pipelines."""
    hostile, others = keys_of("hostile", 12), keys_of("shop", 3)
    fleet = await in_batches(*hostile, *others)
    for driver in working(fleet, hostile):
        driver.is_mute = True
    await passes(fleet, PATIENCE + 8)
    assert len(replaced(fleet)) == FEW
    for driver in working(fleet, others):
        driver.frozen = True
    await passes(fleet, PATIENCE + 8)
    assert set(others) <= set(replaced(fleet))


@pytest.mark.parametrize("hours", [-2, 2])
async def test_neither_a_restart_of_the_operator_nor_a_step_of_its_clock_replaces_more(hours: int) -> None:
    """Injected: an operator that begins while all drivers are silent."""
    fleet = await in_batches(*keys_of("shop", 12))
    for driver in working(fleet, fleet.keys):
        driver.frozen = True
    await passes(fleet, PATIENCE - 4)
    fleet.start_operator()
    fleet.clock.ahead = timedelta(hours=hours)
    await passes(fleet, PATIENCE + 8)
    assert len(replaced(fleet)) == FEW
