"""A takeover at any moment of a collection: nothing of the successor's is deleted."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fencepost.fence import Fenced
from fencepost.fence.memory import no_fault
from fencepost.state.collector import Collector
from fencepost.state.errors import CheckpointDamaged
from fencepost.state.progress import Committed, unpack_committed
from present import present
from unit.state.world import GRACE, Driver, World


def working(world: World, batches: int = 3) -> Driver:
    """Return a new driver that has committed so many batches."""
    driver = world.take_over()
    for _ in driver.steps:
        if driver.committed == batches:
            break
    return driver


def impatient(world: World, driver: Driver) -> Collector:
    """Return a collector that deletes a file as soon as it sees it unreached."""
    return Collector(
        world.fence(),
        world.row,
        chunks=world.chunks,
        index=world.index,
        serving=lambda: driver.serving,
        snapshots=lambda: [each.checkpoint for each in world.snapshots.values() if each.checkpoint is not None],
        grace=0.0,
    )


@pytest.mark.parametrize("call", ["before ranges", "after ranges", "before read", "after read"])
def test_a_takeover_during_a_collection_costs_the_successor_nothing(call: str) -> None:
    world = World(random.Random(1))
    driver = working(world)
    collector = impatient(world, driver)

    def take_over(seen: str) -> None:
        if seen == call:
            world.fault = no_fault
            working(world)

    world.fault = take_over
    try:
        collector.collect()
    except Fenced:
        assert call != "after read"
    world.check()
    with pytest.raises(Fenced):
        collector.collect()
    world.check()


@pytest.mark.parametrize("call", ["before ranges", "after ranges", "before read", "after read"])
def test_a_rewind_during_a_collection_finds_its_snapshot_whole(call: str) -> None:
    """The snapshot is deleted right after the rewind: then only the row of a later epoch reaches its files."""
    world = World(random.Random(1))
    driver = working(world, 2)
    world.snapshots[0] = snapshot = world.row
    for _ in driver.steps:
        if driver.committed == 9:
            break
    collector = impatient(world, driver)

    def rewind(seen: str) -> None:
        if seen == call:
            world.fault = no_fault
            world.rewind(snapshot)
            world.snapshots.clear()

    world.fault = rewind
    try:
        collector.collect()
    except Fenced:
        assert call != "after read"
    world.check()


def test_a_rewind_to_before_the_first_commit_starts_over_with_empty_state() -> None:
    world = World(random.Random(1))
    first = world.take_over()
    next(first.steps)
    world.snapshots[0] = snapshot = world.row
    working(world, 2)
    assert snapshot.checkpoint is None
    again = world.rewind(snapshot)
    for _ in again.steps:
        if again.committed == 2:
            break
    assert impatient(world, again).collect() > 0
    world.check()


def with_a_snapshot(world: World) -> tuple[Driver, Committed]:
    """Return a driver that has committed since a snapshot was taken, and the checkpoint of that."""
    driver = working(world, 2)
    world.snapshots[0] = world.row
    for _ in driver.steps:
        if driver.committed == 9:
            break
    return driver, present(unpack_committed(world.snapshots[0].checkpoint))


def test_a_snapshot_whose_list_of_files_is_gone_keeps_no_others() -> None:
    """Its state cannot be set back; with an exception the files of all later batches would stay."""
    world = World(random.Random(1))
    driver, lost = with_a_snapshot(world)
    world.chunks.delete([lost.tree.id])
    assert impatient(world, driver).collect() > 0
    world.snapshots.clear()
    world.check()
    assert world.chunks.files <= world.reached() | driver.serving


def test_runs_that_end_within_the_grace_period_leave_no_more_files_than_long_ones() -> None:
    """What one run has seen unreached the next ones delete; each run ends a little after its only pass."""
    world, sizes, reached = World(random.Random(1)), [], []
    for _ in range(40):
        driver = working(world)
        driver.collect()
        world.clock.sleep(GRACE * 0.6)
        sizes.append(len(world.chunks.files))
        reached.append(len(world.reached()))
        world.check()
    assert max(sizes) <= 3 * max(reached)
    assert len(world.index.rows) <= 5


def test_the_files_of_a_few_dropped_snapshots_go_with_those_of_more() -> None:
    """To forget what one of many reached, the lists of all others would be read."""
    world = World(random.Random(1))
    driver = world.take_over()
    for _ in driver.steps:
        if len(world.snapshots) < driver.committed <= 20:
            world.snapshots[driver.committed] = world.row
        if driver.committed == 24:
            break
    collector = impatient(world, driver)
    collector.collect()
    seen: list[str] = []
    world.fault = seen.append
    del world.snapshots[1]
    collector.collect()
    assert "before read_chunks" not in seen
    for number in (2, 3):
        del world.snapshots[number]
    assert collector.collect() > 0
    assert seen.count("before read_chunks") == len(world.snapshots)
    world.fault = no_fault
    assert world.chunks.files <= world.reached() | driver.serving
    world.check()


def test_what_cannot_be_read_keeps_all_files() -> None:
    """A newer release may have written the snapshot."""
    world = World(random.Random(1))
    driver, _ = with_a_snapshot(world)
    world.snapshots[0] = replace(world.snapshots[0], checkpoint=b"of a newer release")
    files = set(world.chunks.files)
    with pytest.raises(CheckpointDamaged):
        impatient(world, driver).collect()
    assert world.chunks.files == files


def test_only_what_is_unreached_is_deleted() -> None:
    world = World(random.Random(1))
    driver = working(world, 9)
    kept = world.reached() | driver.serving
    assert not world.chunks.files <= kept
    assert impatient(world, driver).collect() > 0
    assert world.chunks.files <= kept
    world.check()
