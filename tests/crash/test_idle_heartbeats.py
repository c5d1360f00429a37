"""An idle driver gives few heartbeats, and is neither missed when records come nor found later when it is frozen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from crash.test_standby import WARM, is_standing
from fakes.drivers import Driver
from fakes.stage import Stage
from fencepost.fence import heartbeat_key
from fencepost_operator.api import Reason
from present import present

STANDBY: dict[str, Any] = {"restart": {**WARM, "stallTimeout": "60s"}}
SPECS = pytest.mark.parametrize("spec", [{}, STANDBY], ids=["alone", "beside a standby"])


async def idle(**spec: Any) -> tuple[Stage, Driver]:
    """A pipeline that has read all that there is."""
    stage = await Stage.streaming(**spec)
    stage.world.rate = 0.0
    if spec:
        await stage.until(lambda: is_standing(stage))
    await stage.run(20)
    assert stage.pipeline.status.lag == 0
    return stage, next(driver for driver in stage.world.drivers if driver.uid == stage.row.driver)


@pytest.mark.parametrize(("spec", "pause"), [({}, 8), (STANDBY, 3)])
async def test_an_idle_pipeline_writes_few_heartbeats(spec: dict[str, Any], pause: int) -> None:
    stage, _ = await idle(**spec)
    key, given = heartbeat_key(stage.row.pipeline), set()
    for _ in range(240):
        await stage.run(1)
        given.add(stage.world.table.progress[key].at)
    assert 240 / pause - 2 <= len(given) <= 240 / pause + 2


@SPECS
@pytest.mark.parametrize("phase", range(9))
async def test_no_driver_is_missed_when_records_begin_to_come(spec: dict[str, Any], phase: int) -> None:
    """Injected: records after any pause since the last heartbeat, for a batch that takes a minute."""
    stage, driver = await idle(**spec)
    driver.batch_takes = timedelta(minutes=1)
    await stage.run(phase)
    stage.world.rate = 10.0
    await stage.run(50)
    assert (stage.epoch, driver.alive, stage.pipeline.status.restarts) == (1, True, 0)


@SPECS
async def test_a_driver_that_finds_none_of_the_records_is_not_missed(spec: dict[str, Any]) -> None:
    """Injected: the driver's Kafka shows it an old end of the log."""
    stage, driver = await idle(**spec)
    ends = dict(present(driver.ends()))
    driver.ends = lambda: ends
    stage.world.rate = 10.0
    await stage.run(50)
    assert (stage.epoch, driver.alive, stage.pipeline.status.restarts) == (1, True, 0)
    await stage.replaced(seconds=60)
    assert present(stage.pipeline.status.failure).reason == Reason.UNRESPONSIVE


@SPECS
async def test_a_driver_that_is_frozen_while_it_is_idle_is_found_as_soon_as_records_wait(spec: dict[str, Any]) -> None:
    stage, driver = await idle(**spec)
    driver.frozen = True
    await stage.run(30)
    assert stage.epoch == 1, "nothing waits for it"
    stage.world.rate, began = 10.0, stage.world.now
    await stage.until(lambda: stage.epoch == 2, seconds=30)
    patience = timedelta(seconds=5 if spec else 10)
    assert stage.world.now - began <= patience + timedelta(seconds=10), "looks of this world: 5 s without a standby"
    assert present(stage.pipeline.status.failure).reason == Reason.HEARTBEAT_LOST
