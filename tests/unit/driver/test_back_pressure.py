"""The loop under load: batches follow their bounds, and the mirror follows the fence."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from fencepost.driver.sizing.batch_size import LARGEST_RECORD
from unit.driver.loop_world import Crash, FakeEngine, FakeLog, World, crash_at

BOUNDS = {"target_batch_duration": 10.0, "max_bytes_per_batch": 4 * LARGEST_RECORD, "min_records_per_batch": 2}


def timed(world: World, rate: float, *, record_size: int = 0, **changes: Any) -> tuple[Any, FakeEngine]:
    """A loop whose batches take their records divided by `rate`, in seconds."""
    clock = {"now": 0.0}
    settings = {"limit": 1000, "source": BOUNDS, **changes}
    loop, engine = world.loop(world.take_over(), **settings, now=lambda: clock["now"])
    engine.record_size = record_size

    def write() -> None:
        clock["now"] += engine.batches[-1].records / rate

    engine.after = write
    return loop, engine


def backlog(records: int) -> World:
    return World(log=FakeLog(ends={"t/0": records, "t/1": records}))


def sizes(engine: FakeEngine) -> list[int]:
    return [batch.records for batch in engine.batches]


def died_in_its_first_batch(world: World) -> World:
    """Return the world after a run without bounds of a first batch."""
    dying, engine = timed(world, rate=1000, source={})
    crash_at(engine, "midway", 1)
    with pytest.raises(Crash):
        dying.run()
    return world


def test_a_backlog_of_small_records_grows_from_a_careful_first_batch_to_the_full_size() -> None:
    world = backlog(2000)
    loop, engine = timed(world, rate=1000, record_size=10)
    loop.run()
    assert sizes(engine) == [4, 16, 64, 256, 1000, 1000, 1000, 660]
    world.assert_complete()


def test_a_backlog_of_large_records_is_read_within_the_bytes() -> None:
    world = backlog(10)
    loop, engine = timed(world, rate=1000, record_size=LARGEST_RECORD)
    loop.run()
    assert sizes(engine) == [4, 4, 4, 4, 4]
    assert {report.size for report in world.reports} == {4 * LARGEST_RECORD}
    world.assert_complete()


def test_a_slow_sink_shrinks_the_batch_that_follows_though_kafka_was_asked_before() -> None:
    """The plan is made of what Kafka said while the batch was written, with the size that follows from the batch."""
    world = backlog(3000)
    loop, engine = timed(world, rate=100, source={**BOUNDS, "max_bytes_per_batch": None}, limit=4000)
    loop.run()
    assert sizes(engine) == [4000, 1000, 1000]
    planned = [sum(row.planned.values()) for row in world.table.history if row.driver is not None]
    assert planned == [4000, 5000, 6000, 6000]
    world.assert_complete()


def test_the_batch_of_a_predecessor_is_repeated_as_planned_whatever_the_size_would_be_now() -> None:
    world = died_in_its_first_batch(backlog(100))
    again, engine = timed(world, rate=1000, record_size=10)
    again.run()
    assert sizes(engine)[0] == 200
    world.assert_complete()
    world.assert_each_batch_whole()


def test_after_a_batch_that_did_not_fit_the_next_one_is_as_careful_as_a_first_one() -> None:
    """Half of 1000 records of 1 MiB does not fit either: one restart is enough, not nine."""
    world = died_in_its_first_batch(backlog(500))
    limited, engine = timed(world, rate=1000, record_size=LARGEST_RECORD, first_batch_limit=500)
    limited.run()
    assert set(sizes(engine)) == {4}
    world.assert_complete()


def test_the_mirror_receives_the_claim_and_each_commit() -> None:
    world = World()
    world.run(limit=20)
    rows = [row for row in world.table.history if row.driver is not None]
    committed = [dict(row.offsets) for before, row in pairwise(rows) if row.offsets != before.offsets]
    assert world.mirrored == [dict(rows[0].offsets), *committed]
    assert world.mirrored[-1] == world.row().offsets


def test_topics_that_left_the_spec_are_not_mirrored() -> None:
    """Their lag would grow forever in Kafka's tools, and a deleted one would make each write fail."""
    world = World()
    world.run()
    row = world.row()
    fence = world.fence()
    left = fence.plan(row, offsets={**row.offsets, "left/0": 7}, planned={**row.offsets, "left/0": 7})
    world.mirrored.clear()
    world.log.ends["t/0"] += 5
    second, _ = world.loop(fence.take_over(left, owner="owner").epoch)
    second.run()
    assert world.row().offsets == {**world.log.ends, "left/0": 7}
    assert world.mirrored[-1] == world.log.ends
