"""Snapshots: each one that is due is written once, whatever dies, and none stands in a run's way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fakes.gate import SIDES
from fakes.manifests import KEY
from fakes.stage import Died, Stage
from fencepost.fence.snapshots import Snapshot, Trigger
from fencepost_operator.api import SNAPSHOT_ANNOTATION, ObjectKey
from fencepost_operator.errors import Denied
from present import present

IMAGE_2 = {"image": "registry.example/job:2", "entrypoint": "orders.job:transform"}


async def running(**changes: Any) -> Stage:
    stage = await Stage.streaming(**changes)
    await stage.run(5)
    return stage


def taken(stage: Stage, trigger: Trigger) -> list[Snapshot]:
    return [one for one in stage.world.snapshots.values() if one.trigger == trigger]


async def upgrade(stage: Stage) -> Trigger:
    stage.world.change(KEY, job=IMAGE_2)
    await stage.replaced()
    return Trigger.SPEC_CHANGE


async def on_demand(stage: Stage) -> Trigger:
    stage.annotate(SNAPSHOT_ANNOTATION, "before-the-sale")
    await stage.until(lambda: bool(taken(stage, Trigger.ON_DEMAND)))
    return Trigger.ON_DEMAND


async def scheduled(stage: Stage) -> Trigger:
    stage.world.change(KEY, snapshots={"every": "1m"})
    await stage.run(75)
    return Trigger.SCHEDULE


SCENES = [upgrade, on_demand, scheduled]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("scene", SCENES)
async def test_an_operator_that_dies_at_any_write_leaves_one_snapshot(
    scene: Callable[[Stage], Awaitable[Trigger]], side: str
) -> None:
    """Injected: kill -9 at each write from the decision to the run's return."""
    calm = await running()
    first = len(calm.gate.writes)
    await scene(calm)
    snapshot = calm.gate.writes.index("take_snapshot")
    assert snapshot >= first
    for number in range(max(first, snapshot - 2), min(len(calm.gate.writes), snapshot + 3)):
        stage = await running()

        def die(place: int, _name: str, number: int = number) -> None:
            if place == number:
                raise Died

        setattr(stage.gate, side, die)
        trigger = await scene(stage)
        await stage.run(10)
        assert len(taken(stage, trigger)) == 1, number
        assert stage.deaths == 1


async def test_the_snapshot_of_an_upgrade_has_what_the_old_run_committed() -> None:
    stage = await running()
    await upgrade(stage)
    (snapshot,) = taken(stage, Trigger.SPEC_CHANGE)
    new_run = next(row for row in stage.world.table.history if row.epoch == 2 and row.driver is not None)
    assert snapshot.offsets == new_run.offsets
    assert present(snapshot.code).startswith("registry.example/job:1 "), "the old run's"
    await stage.run(3)
    status = present(stage.pipeline.status.snapshots)
    assert (status.count, status.pending) == (1, None)
    assert status.last is not None
    assert (status.last.id, status.last.trigger) == (str(snapshot.id), "SpecChange")


async def test_a_restart_of_the_same_spec_takes_none() -> None:
    stage = await running()
    stage.world.kill_driver()
    await stage.replaced()
    assert not stage.world.snapshots


async def test_an_upgrade_continues_where_no_snapshot_can_be_written() -> None:
    """Injected: the account may not write to the table."""
    stage = await running()

    def refuse(_number: int, call: str) -> None:
        if call == "take_snapshot":
            raise Denied("no MODIFY permission", remedy="grant it")

    stage.gate.before = refuse
    await upgrade(stage)
    await stage.run(5)
    status = stage.pipeline.status.snapshots
    assert stage.is_running()
    assert stage.gate.writes.count("take_snapshot") == 1, "what is copied later is not what the old run committed"
    assert not stage.world.snapshots
    assert present(status).pending is None


@pytest.mark.parametrize("refused", [{"stop"}, {"stop", "take_snapshot"}])
async def test_an_old_run_that_cannot_be_deleted_starves_no_snapshot(refused: set[str]) -> None:
    """Injected: an admission webhook refuses the deletion of Jobs; then Cassandra refuses the snapshot as well."""
    stage, refusing = await running(), set(refused)

    def refuse(_number: int, call: str) -> None:
        if call in refusing:
            raise Denied("refused", remedy="ask the administrator")

    stage.gate.before = refuse
    for number in range(2, 6):
        stage.world.kill_driver()
        await stage.replaced(number)
        await stage.run(5)
    stage.annotate(SNAPSHOT_ANNOTATION, "now")
    await stage.run(40)
    refusing -= {"take_snapshot"}
    await stage.until(lambda: bool(taken(stage, Trigger.ON_DEMAND)))
    assert stage.gate.writes.count("stop") > 1


async def test_a_name_is_honoured_once_and_a_wrong_one_is_refused() -> None:
    stage = await running()
    await on_demand(stage)
    await stage.run(20)
    assert [one.name for one in taken(stage, Trigger.ON_DEMAND)] == ["before-the-sale"]
    stage.annotate(SNAPSHOT_ANNOTATION, "Not A Name")
    await stage.run(5)
    assert len(stage.world.snapshots) == 1
    status = present(stage.pipeline.status.snapshots)
    assert "annotation streaming.fencepost.dev/snapshot" in status.message
    stage.annotate(SNAPSHOT_ANNOTATION, "before-the-sale")
    await stage.run(5)
    status = present(stage.pipeline.status.snapshots)
    assert not status.message, "the wrong name is gone"
    stage.annotate(SNAPSHOT_ANNOTATION, "another")
    await stage.until(lambda: len(stage.world.snapshots) == 2)


async def test_retention_goes_by_count_and_age_and_keeps_the_newest() -> None:
    stage = await running(snapshots={"every": "1m", "keep": {"count": 3, "age": "5m"}})
    await stage.run(60 * 6)
    status = present(stage.pipeline.status.snapshots)
    assert len(stage.world.snapshots) == status.count == 3
    stage.world.change(KEY, snapshots={"every": "0s", "keep": {"count": 3, "age": "5m"}})
    await stage.run(60 * 8)
    (newest,) = stage.world.snapshots.values()
    assert stage.world.now - newest.at > timedelta(minutes=5)


async def test_a_pinned_snapshot_stays_until_no_pipeline_pins_it() -> None:
    stage = await running(snapshots={"every": "1m", "keep": {"count": 2, "age": "5m"}})
    await stage.until(lambda: bool(stage.world.snapshots))
    (_, first) = next(iter(stage.world.snapshots))
    pins = [{"name": "state", "pipeline": KEY.name, "snapshot": first}]
    another = ObjectKey(KEY.namespace, "another")
    stage.world.objects[another] = {"spec": {"source": {"pinnedStates": pins}}}
    await stage.run(60 * 8)
    assert [one for _, one in stage.world.snapshots].count(first) == 1
    assert len(stage.world.snapshots) == 3
    assert present(stage.pipeline.status.snapshots).pinned == 1
    del stage.world.objects[another]
    await stage.run(60 * 2)
    assert len(stage.world.snapshots) == 2
    assert not present(stage.pipeline.status.snapshots).pinned


async def test_a_snapshot_that_a_kept_spec_pins_stays_as_long_as_that_may_run() -> None:
    """The stable spec pins it, the object's spec does not; with a rollback the stable one would run again."""
    stage = await running(snapshots={"every": "1m", "keep": {"count": 2, "age": "5m"}})
    await stage.until(lambda: bool(stage.world.snapshots))
    (_, first) = next(iter(stage.world.snapshots))
    pins = [{"name": "state", "pipeline": KEY.name, "snapshot": first}]
    another = ObjectKey(KEY.namespace, "another")
    stage.world.objects[another] = {
        "metadata": {"name": another.name},
        "spec": {},
        "status": {"stable": {"revision": "another-1"}},
    }
    kept = replace(another, name="another-1")
    stage.world.revisions[kept] = {
        "metadata": {"name": kept.name, "ownerReferences": []},
        "data": {"spec": {"source": {"pinnedStates": pins}}},
    }
    await stage.run(60 * 8)
    assert [one for _, one in stage.world.snapshots].count(first) == 1
    stage.world.objects[another]["status"] = {"stable": {"revision": "another-2"}}
    await stage.run(60 * 2)
    assert [one for _, one in stage.world.snapshots].count(first) == 0


async def test_nothing_is_copied_while_nothing_is_committed() -> None:
    stage = await running(snapshots={"every": "1m"})
    stage.world.rate = 0
    await stage.run(60 * 5)
    assert len(stage.world.snapshots) <= 1


async def test_a_suspended_pipeline_takes_a_snapshot_on_demand() -> None:
    stage = await running()
    await stage.suspended()
    stage.annotate(SNAPSHOT_ANNOTATION, "while-it-sleeps")
    await stage.until(lambda: bool(taken(stage, Trigger.ON_DEMAND)))


async def test_the_status_lists_ten_and_stays_small() -> None:
    stage = await running(snapshots={"every": "1m"})
    await stage.run(60 * 14)
    status = present(stage.pipeline.status.snapshots)
    assert status.count > 10
    assert len(status.recent) == 10
    assert status.recent[0] == status.last
