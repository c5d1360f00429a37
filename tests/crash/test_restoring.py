"""Objects of the Spark cluster that a user deletes or changes are restored, whether or not a run is active."""

from __future__ import annotations

import pytest

from fakes.manifests import KEY, body
from fakes.stage import Died, Stage

DELETED = ("Service orders-g1-master was deleted",)


async def test_under_a_running_driver_it_is_restored_and_the_run_continues() -> None:
    stage = await Stage.streaming()
    stage.world.damage[KEY] = DELETED
    await stage.until(lambda: "restore" in stage.gate.writes, seconds=60)
    await stage.running()
    assert not stage.world.damage
    assert stage.world.created_jobs == ["orders-run-1"]
    assert [message for reason, message in stage.world.events if reason == "ClusterChanged" and DELETED[0] in message]


async def test_before_a_run_starts_it_is_restored_first() -> None:
    stage = Stage()
    stage.world.apply(body())
    await stage.until(lambda: KEY in stage.world.releases)
    stage.world.damage[KEY] = DELETED
    await stage.running()
    writes = stage.gate.writes
    assert writes.index("restore") < writes.index("start")


@pytest.mark.parametrize("side", ["before", "after"])
async def test_an_operator_that_dies_while_it_restores_does_so_afterwards(side: str) -> None:
    stage = await Stage.streaming()
    stage.world.damage[KEY] = DELETED

    def strike(_number: int, name: str) -> None:
        if name == "restore" and not stage.deaths:
            raise Died(name)

    setattr(stage.gate, side, strike)
    await stage.until(lambda: stage.deaths == 1)
    await stage.until(lambda: not stage.world.damage)
    await stage.running()
