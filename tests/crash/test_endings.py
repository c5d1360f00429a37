"""How a pipeline ends or moves: without its Cassandra, without its finalizer, and in another Kubernetes cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes.manifests import KEY, body
from fakes.paging import Paging
from fakes.stage import POLICY, ROW, Stage
from fakes.world import World
from fencepost.contract import ExitCode
from fencepost_operator.api import ABANDON_ANNOTATION, ADOPT_ANNOTATION, ReconcileConfig
from present import present

QUICK = replace(POLICY, abandon_timeout=120.0)


async def running(**spec: Any) -> Stage:
    stage = await Stage.streaming(Stage(config=QUICK), **spec)
    await stage.run(10)
    return stage


@pytest.mark.parametrize("why", ["deletionPolicy is Delete", "the driver is not proven dead"])
async def test_a_deletion_waits_for_its_cassandra_until_a_user_gives_up_the_checkpoint(why: str) -> None:
    is_dead = why == "deletionPolicy is Delete"
    stage = await running(deletionPolicy="Delete" if is_dead else "Retain")
    if not is_dead:
        stage.world.newest_pod().driver.frozen = True
        stage.world.delete_job(KEY, "orders-run-1", cascade="orphan")
    stage.world.cassandra_down = True
    stage.world.delete(KEY)
    await stage.run(QUICK.abandon_timeout + 60)
    assert not stage.is_gone(), "no user said that Cassandra is gone for good"
    message = stage.pipeline.status.message
    assert why in message
    assert (
        f"kubectl annotate streamingpipeline orders --namespace shop --overwrite {ABANDON_ANNOTATION}=true" in message
    )
    before = stage.row
    stage.annotate(ABANDON_ANNOTATION, "true")
    await stage.until(stage.is_gone, seconds=30)
    assert "given up" in stage.world.events[-1][1]
    assert stage.row == before
    assert not stage.world.releases


async def test_a_namespace_that_is_deleted_with_its_cassandra_is_not_waited_for_without_an_end() -> None:
    stage = await running(deletionPolicy="Delete")
    stage.world.cassandra_down = True
    stage.world.ending_namespaces.add(KEY.namespace)
    stage.world.delete(KEY)
    await stage.run(QUICK.abandon_timeout - 20)
    assert not stage.is_gone(), "Cassandra may only end a little later than its clients would like"
    assert "the operator does so after 120 s" in stage.pipeline.status.message
    await stage.until(stage.is_gone, seconds=120)


async def test_a_namespace_whose_cassandra_answers_is_cleaned_up_whole() -> None:
    stage = await running(deletionPolicy="Delete")
    stage.world.ending_namespaces.add(KEY.namespace)
    await stage.deleted(seconds=120)
    assert stage.row.is_released


BAD_PROPERTY = {"bootstrapServers": "kafka:9092", "topics": ["orders"], "properties": {"bogus.setting": "1"}}


async def with_an_invalid_spec(**changes: Any) -> Stage:
    stage = await running(deletionPolicy="Delete")
    stage.world.change(KEY, **(changes or {"source": {"kafka": BAD_PROPERTY}}))
    await stage.until(lambda: stage.ready() == "InvalidSpec")
    return stage


def heard(stage: Stage) -> list[bool]:
    """Whether each message about the deletion said that it was over."""
    return [heard.is_over for heard in present(stage.paging).heard if "/NotReady/" in heard.key]


def is_released(stage: Stage) -> bool:
    row = stage.row
    return not row.offsets and row.driver is None


@pytest.mark.parametrize("kept", [True, False], ids=["with its revision", "after a foreground deletion took that"])
async def test_a_deletion_with_an_invalid_spec_releases_the_row_as_the_policy_says(kept: bool) -> None:
    stage = await with_an_invalid_spec()
    if not kept:
        stage.world.revisions.clear()
    await stage.deleted(seconds=60)
    assert is_released(stage), "deletionPolicy is Delete"
    assert "Retain" not in stage.world.events[-1][1]


@pytest.mark.parametrize("kept", [True, False], ids=["with its revision", "after a foreground deletion took that"])
async def test_a_deletion_with_an_invalid_spec_fences_a_driver_that_may_live(kept: bool) -> None:
    stage = await with_an_invalid_spec()
    if not kept:
        stage.world.revisions.clear()
    epoch = stage.epoch
    stage.world.nodes["node-1"].reachable = False
    await stage.deleted(seconds=600)
    row = stage.row
    assert row.epoch > epoch
    stage.world.nodes["node-1"].reachable = True
    stage.world.advance(30)
    assert stage.row == row, "the driver commits nothing any more"


async def test_a_deletion_whose_checkpoint_is_not_known_waits_and_pages_until_the_spec_says_where_it_is() -> None:
    checkpoint = {"cassandra": {"contactPoints": [], "keyspace": "fencepost"}}
    stage = await with_an_invalid_spec(checkpoint=checkpoint)
    stage.paging, stage._operator = Paging(stage.world, stage.gate), None
    stage.world.revisions.clear()
    stage.world.delete(KEY)
    await stage.run(QUICK.page_not_ready_after + 60)
    assert not stage.is_gone()
    assert stage.ready() == "InvalidSpec"
    assert f"{ABANDON_ANNOTATION}=true" in stage.pipeline.status.message
    assert heard(stage) == [False]
    stage.world.change(KEY, checkpoint=body()["spec"]["checkpoint"])
    await stage.until(stage.is_gone, seconds=60)
    assert is_released(stage)
    assert heard(stage) == [False, True]


async def test_a_row_that_is_not_where_an_invalid_spec_says_is_waited_for() -> None:
    stage = await with_an_invalid_spec()
    stage.world.revisions.clear()
    stage.world.newest_pod().driver.frozen = True
    stage.world.delete_job(KEY, "orders-run-1", cascade="orphan")
    row = stage.world.table.rows.pop(ROW)
    stage.world.delete(KEY)
    await stage.run(60)
    assert not stage.is_gone(), "the driver may commit in another Cassandra"
    stage.world.table.rows[ROW] = row
    await stage.until(stage.is_gone, seconds=60)
    assert is_released(stage)


async def test_a_deletion_that_does_not_finish_pages_once_and_says_when_it_is_over() -> None:
    stage = await running(deletionPolicy="Delete")
    stage.paging, stage._operator = Paging(stage.world, stage.gate), None
    stage.world.cassandra_down = True
    stage.world.delete(KEY)
    await stage.run(QUICK.page_not_ready_after - 30)
    assert not heard(stage)
    await stage.run(120)
    assert heard(stage) == [False]
    stage.world.cassandra_down = False
    await stage.until(stage.is_gone, seconds=60)
    assert heard(stage) == [False, True]


async def test_a_checkpoint_that_was_given_up_is_adopted_by_the_next_pipeline_of_that_name() -> None:
    """The driver lives on, and commits for a while: its successor fences it and continues from its last commit."""
    stage = await running()
    zombie = stage.world.newest_pod().driver
    zombie.frozen = True
    stage.world.delete_job(KEY, "orders-run-1", cascade="orphan")
    stage.world.cassandra_down = True
    stage.world.delete(KEY)
    stage.annotate(ABANDON_ANNOTATION, "true")
    await stage.until(stage.is_gone, seconds=180)
    stage.world.cassandra_down = zombie.frozen = False
    stage.world.apply(body(uid="uid-2"))
    await stage.running()
    await stage.run(20)
    assert zombie.exit_code == ExitCode.FENCED
    assert stage.epoch == 2


async def test_a_finalizer_removed_by_hand_leaves_nothing_once_the_operator_looks() -> None:
    stage = await running()
    stage.world.forget(KEY)
    assert stage.world.releases, "Kubernetes collects what the pipeline owned; Helm's release has no owner"
    assert await stage.turn() is None
    assert not stage.world.releases
    assert not stage.world.jobs


async def test_after_a_forced_deletion_the_next_pipeline_continues_at_the_last_commit() -> None:
    """No operator looked in between: the new object finds the release of the old one, and the row that it left."""
    stage = await running()
    committed = stage.row
    stage.world.forget(KEY)
    stage.world.apply(body(uid="uid-2"))
    await stage.running()
    await stage.run(20)
    row = stage.row
    assert (row.epoch, row.owner) == (2, "cluster-1/uid-2")
    assert set(stage.world.sets[KEY]) == {2}, "seed 597 of the simulation: a driver may still live on the first cluster"
    assert sum(row.offsets.values()) > sum(committed.offsets.values())


def another_cluster(first: Stage) -> Stage:
    """Return a second Kubernetes cluster with an operator of the same scope, and the same Cassandra and Kafka."""
    world = World(table=first.world.table, ends=first.world.ends, rate=0.0)
    world.now, world.uids = first.world.now, first.world.uids
    stage = Stage(world=world, config=ReconcileConfig(cluster_uid="cluster-2"))
    world.apply(body(uid="uid-of-the-second"))
    return stage


async def test_a_pipeline_moves_to_another_cluster_and_the_first_one_does_not_take_it_back() -> None:
    first = await running()
    await first.suspended()
    left = first.row
    second = another_cluster(first)
    await second.until(lambda: second.ready() == "FenceOwnedElsewhere")
    assert second.row == left, "the second cluster only looks"
    needed = f"{ADOPT_ANNOTATION}=cluster-1@{left.epoch}"
    assert needed in second.pipeline.status.message
    second.annotate(ADOPT_ANNOTATION, f"cluster-1@{left.epoch}")
    await second.running()
    await second.run(20)
    moved = second.row
    assert moved.owner == "cluster-2/uid-of-the-second"
    assert moved.epoch == left.epoch + 1
    assert all(moved.offsets[key] >= offset for key, offset in left.offsets.items())
    first.world.now = second.world.now
    first.world.change(KEY, suspend=False)
    await first.until(lambda: first.ready() == "FenceOwnedElsewhere")
    assert not first.world.jobs or all(job.finished for job in first.world.jobs)
    for policy in ("Delete", "Retain"):
        first.world.change(KEY, deletionPolicy=policy)
    await first.deleted()
    assert second.row.owner == moved.owner, "its deletion touches no other row"


async def test_a_pipeline_that_still_runs_in_the_first_cluster_is_fenced_by_the_move() -> None:
    """Not the documented order: the first one was not suspended."""
    first = await running()
    driver = first.world.newest_pod().driver
    second = another_cluster(first)
    second.annotate(ADOPT_ANNOTATION, f"cluster-1@{first.epoch}")
    await second.running()
    first.world.now = second.world.now
    await first.until(lambda: driver.exit_code is not None, seconds=60)
    assert driver.exit_code == ExitCode.FENCED
    await first.until(lambda: first.ready() == "FenceOwnedElsewhere", seconds=120)
    await first.run(30)
    assert second.row.owner == "cluster-2/uid-of-the-second"
