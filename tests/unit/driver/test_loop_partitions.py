"""Partitions that appear, have no leader, or come of a new topic: each record is read once and in order."""

from __future__ import annotations

from collections import Counter

import pytest

from fencepost.contract import StartingOffsets
from fencepost.driver.planning import plan
from fencepost.errors import BadSpec, DependencyDown
from unit.driver.loop_world import Crash, FakeLog, World, crash_at


def test_partitions_that_appear_are_read_from_zero(world: World) -> None:
    loop, engine = world.loop(world.take_over(), idle=3)

    def grow() -> None:
        world.log.ends["t/2"] = 7

    engine.after = grow
    loop.run()
    world.assert_complete()


def test_the_row_keeps_the_barrier_of_each_growth(world: World) -> None:
    """A rewind to before them reads the partitions in the order in which they came."""
    world.run()
    world.log.ends["t/2"] = 7
    world.run(driver="pod-2")
    first = {"t/0": 30, "t/1": 20, "t/2": 0}
    assert (world.row().growth_barrier, world.row().growths) == (first, (first,))
    world.log.ends |= {"t/0": 40, "t/3": 5}
    world.run(driver="pod-3")
    world.assert_complete()
    second = {"t/0": 40, "t/1": 20, "t/2": 7, "t/3": 0}
    assert (world.row().growth_barrier, world.row().growths) == (second, (first, second))
    world.log.ends["t/4"] = 3
    world.run(driver="pod-4")
    assert world.row().growths == (first, second, world.row().growth_barrier)


def _grow_at(world: World, look: int, *, records: int) -> None:
    """Let the topic have one more partition from the n-th look at the log on; the first is the claim's."""

    def grow() -> None:
        if world.log.looks == look:
            world.log.ends["t/2"] = records

    world.log.fault = grow


def test_an_empty_partition_that_appears_during_a_backlog_is_read_once_it_has_records(world: World) -> None:
    loop, engine = world.loop(world.take_over())
    _grow_at(world, 2, records=0)

    def fill() -> None:
        if len(engine.batches) == 3:
            world.log.ends["t/2"] = 4

    engine.after = fill
    loop.run()
    world.assert_complete()
    world.assert_each_batch_whole()


@pytest.mark.parametrize("records", [0, 2, 7])
@pytest.mark.parametrize("step", ["before", "midway", "after"])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_crash_after_partitions_grew_in_a_backlog_repeats_exactly_that_batch(
    step: str, batch: int, records: int, world: World
) -> None:
    loop, engine = world.loop(world.take_over())
    _grow_at(world, 2, records=records)
    crash_at(engine, step, batch)
    with pytest.raises(Crash):
        loop.run()
    world.log.ends["t/1"] += 5
    second = world.run(driver="pod-2", limit=11)
    assert second.batches[0].ranges == loop.hand.ranges
    world.assert_complete()
    world.assert_each_batch_whole()


def test_a_partition_without_a_leader_is_left_out_and_read_once_it_has_one(world: World) -> None:
    loop, engine = world.loop(world.take_over(), limit=100)
    world.log.leaderless = set()

    def lose() -> None:
        world.log.leaderless = {"t/1"} if 1 < world.log.looks < 5 else set()
        world.log.ends["t/0"] = 30 + world.log.looks

    world.log.fault = lose
    world.log.ends = {"t/0": 30, "t/1": 20}
    loop._wait = lambda _seconds: loop._stop.set() if world.log.looks > 8 else None
    loop.run()
    assert [report.unavailable for report in world.reports][:2] == [("t/1",), ("t/1",)]
    assert world.reports[-1].unavailable == ()
    assert world.row().offsets["t/1"] == 20
    assert engine.batches[1].spans().keys() == {"t/0"}


def test_partitions_without_a_leader_are_logged_once_and_so_is_their_return(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "fencepost.driver.planning.planner")

    def lose() -> None:
        world.log.leaderless = {"t/1"} if 1 < world.log.looks < 4 else set()

    world.log.fault = lose
    world.run()
    world.assert_complete()
    assert [record.levelname for record in caplog.records if "planner" in record.name] == ["WARNING", "INFO"]


def test_the_batch_after_idleness_names_what_it_leaves_out() -> None:
    world = World(log=FakeLog(ends={"t/0": 0, "t/1": 0}))
    loop, engine = world.loop(world.take_over())

    def lose() -> None:
        if world.log.looks == 2:
            world.log.leaderless, world.log.ends["t/0"] = {"t/1"}, 3

    world.log.fault = lose
    engine.after = loop._stop.set
    loop.run()
    assert [report.unavailable for report in world.reports] == [("t/1",)]


def test_each_batch_of_a_backlog_names_the_leaders_that_its_plan_saw(world: World) -> None:
    """Before it is written, each partition that has another leader than its row is compared."""
    loop, engine = world.loop(world.take_over())

    def elect() -> None:
        world.log.epoch = world.log.looks

    world.log.fault = elect
    loop.run()
    assert [set(batch.leader_epochs.values()) for batch in engine.batches] == [{1}, {2}, {3}, {4}, {5}]


def test_a_claim_waits_for_a_new_topic_until_kafka_agrees_that_it_does_not_exist(world: World) -> None:
    def agree() -> None:
        world.log.missing = float(10 * world.log.looks)

    world.log.fault = agree
    loop, _ = world.loop(world.take_over(), idle=100)
    with pytest.raises(BadSpec, match="does not exist"):
        loop.run()
    assert world.log.looks == 3
    assert world.row().driver is None


def test_a_claim_waits_for_the_leader_of_each_new_partition_for_a_limited_time() -> None:
    world = World(log=FakeLog(leaderless={"t/1"}))
    loop, _ = world.loop(world.take_over(), idle=1000)
    with pytest.raises(DependencyDown, match="t/1 has no leader"):
        loop.run()
    assert world.row().driver is None


def test_a_batch_carries_the_leader_epochs_of_what_was_committed(world: World) -> None:
    """The reader asks Kafka with them whether the log diverged before the batch."""
    loop, engine = world.loop(world.take_over())
    count = Counter[str]()

    def elect() -> None:
        count["n"] += 1
        world.log.epoch = 4 + count["n"]

    engine.before = elect
    loop.run()
    epochs = [{part.leader_epoch for part in batch.ranges} for batch in engine.batches]
    # The claim saw epoch 4; a batch that was planned beside the n-th write carries what the row has then.
    assert epochs[0] == {4}
    rows = [row for row in world.table.history if row.driver is not None]
    for batch, row in zip(engine.batches, rows, strict=False):
        assert {part.key: part.leader_epoch for part in batch.ranges} == {
            part.key: row.leader_epochs.get(part.key) for part in batch.ranges
        }
    assert all(set(row.leader_epochs) == {"t/0", "t/1"} for row in rows)
    assert rows[-1].leader_epochs.values() != rows[0].leader_epochs.values()


def test_a_new_partition_is_read_after_the_old_ones_as_they_were_and_a_restart_keeps_to_that() -> None:
    world = World(log=FakeLog(ends={"t/0": 30}))
    loop, engine = world.loop(world.take_over())
    crash_at(engine, "after", 2)
    _grow_at(world, 2, records=5)
    with pytest.raises(Crash):
        loop.run()
    assert world.row().growth_barrier == {"t/0": 30, "t/2": 0}
    world.log.ends["t/0"] = 45
    second = world.run(driver="pod-2")
    spans = [batch.spans() for batch in (*engine.batches, *second.batches)]
    first = next(number for number, span in enumerate(spans) if "t/2" in span)
    assert max(span["t/0"][1] for span in spans[:first]) >= 30
    world.assert_complete()
    assert world.row().growth_barrier == {"t/0": 30, "t/2": 0}  # passed, and kept for a rewind


def test_the_ends_of_the_log_are_in_the_row_for_who_cannot_ask_kafka(world: World) -> None:
    world.run()
    assert world.row().log_ends == world.log.ends


def test_a_claim_without_a_leader_keeps_what_was_begun(world: World) -> None:
    """Found: the operator saw nothing open, so new code began beside the old rows of the partition."""
    world.crash("after", 1, driver="d1", limit=10)
    assert world.row().planned == {"t/0": 5, "t/1": 5}
    world.log.leaderless = {"t/1"}
    world.crash("before", 2, driver="d2", limit=10)
    assert world.row().offsets == {"t/0": 5, "t/1": 0}
    assert world.row().written_until["t/1"] == 5
    world.log.leaderless = set()
    world.run(driver="d3", limit=10)
    world.assert_complete()
    assert world.row().begun == {}


def test_a_claim_forgets_what_was_begun_of_a_topic_that_left_the_spec(world: World) -> None:
    """No run would ever finish it: the operator has recorded it as mixed output."""
    world.crash("after", 1, driver="d1", limit=10)
    left = plan.starting(world.row(), world.log.state(), (), StartingOffsets(), 10)
    assert (left.planned, left.begun) == ({"t/0": 0, "t/1": 0}, {})
