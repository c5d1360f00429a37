"""Fault: a partition has no leader while the others are read."""

from __future__ import annotations

from fakes.gate import Gate
from fakes.manifests import body
from fakes.paging import Paging
from fakes.stage import POLICY, Stage
from fakes.world import World
from fencepost_operator.api import Reason
from fencepost_operator.decision.reporting.conditions import OFFLINE_AFTER, PARTITIONS_OFFLINE
from present import present


async def leaderless() -> Stage:
    world, gate = World(), Gate()
    stage = Stage(world, gate, config=POLICY)
    stage.paging = Paging(world, gate)
    world.apply(body())
    await stage.running()
    world.leaderless.add("orders/1")
    return stage


async def test_a_partition_without_a_leader_is_paged_while_the_others_are_read() -> None:
    stage = await leaderless()
    await stage.run(OFFLINE_AFTER.total_seconds() - 20)
    assert stage.condition(PARTITIONS_OFFLINE) is None
    before = stage.row.offsets
    await stage.run(40)
    after = stage.row.offsets
    assert (after["orders/0"] > before["orders/0"], after["orders/1"]) == (True, before["orders/1"])
    condition = present(stage.condition(PARTITIONS_OFFLINE))
    assert "orders/1 since" in condition.message
    assert [page.reason for page in stage.pipeline.status.pages] == [Reason.PARTITIONS_OFFLINE]


async def test_ready_says_at_once_that_the_lag_of_a_partition_without_a_leader_is_unknown() -> None:
    stage = await leaderless()
    await stage.run(20)
    ready = present(stage.condition("Ready"))
    assert (ready.status, "orders/1, whose lag is unknown" in ready.message) == ("True", True)
    assert [each.partition for each in stage.pipeline.status.offline_partitions] == ["orders/1"]


async def test_an_election_is_not_reported_and_a_leader_ends_the_condition() -> None:
    stage = await leaderless()
    await stage.run(60)
    stage.world.leaderless.clear()
    await stage.run(10)
    assert not stage.pipeline.status.offline_partitions
    stage.world.leaderless.add("orders/1")
    await stage.run(OFFLINE_AFTER.total_seconds() + 10)
    assert stage.condition(PARTITIONS_OFFLINE) is not None
    stage.world.leaderless.clear()
    await stage.run(10)
    assert (stage.condition(PARTITIONS_OFFLINE), stage.epoch) == (None, 1)
