"""A run that waits for its epoch changes nothing before that begins; a run that hands over lets it begin at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fencepost.driver.loop import Loop
from fencepost.driver.planning.awaiting import (
    EXERCISE,
    LOOK,
    MOST_EXERCISED_BYTES,
    STANDBY_LOOK,
    exercised_next,
)
from fencepost.errors import PoisonRecord
from fencepost.fence import Fenced, FenceMissing, FenceUnavailable
from unit.driver.loop_world import FakeEngine, FakeLog, World


def waiting(world: World, *, epoch: int, **changes: Any) -> tuple[Loop, FakeEngine]:
    return world.loop(epoch, driver="next", awaits_epoch=True, code="new", **changes)


def at_read(loop: Loop, number: int, then: Callable[[], object]) -> None:
    """Let something happen just before the loop looks at the fence row for the nth time."""
    count = iter(range(1, 1_000_000))

    def before(read: Callable[[], object]) -> Callable[[], object]:
        def look() -> object:
            if next(count) == number:
                then()
            return read()

        return look

    loop._fence.read = before(loop._fence.read)  # type: ignore[method-assign, assignment]
    loop._fence.read_epoch = before(loop._fence.read_epoch)  # type: ignore[method-assign, assignment]


def test_it_claims_once_its_epoch_has_begun(world: World) -> None:
    world.run()
    before = world.row()
    loop, engine = waiting(world, epoch=before.epoch + 1, idle=1000)
    seen: list[object] = []

    def begin() -> None:
        seen.append((world.row(), engine.batches[:]))
        world.take_over()

    at_read(loop, 4, begin)
    world.log.ends["t/0"] += 5
    loop.run()
    assert seen == [(before, [])], "until then it has changed nothing"
    assert world.row().driver == "next"
    world.assert_complete()


def test_it_ends_as_fenced_once_its_epoch_is_over(world: World) -> None:
    world.run()
    loop, engine = waiting(world, epoch=world.row().epoch + 1, idle=1000)
    at_read(loop, 3, lambda: [world.take_over() for _ in range(2)])
    with pytest.raises(Fenced, match="is over"):
        loop.run()
    assert engine.batches == []


def test_it_ends_where_the_row_is_gone() -> None:
    loop, _ = waiting(World(), epoch=1)
    with pytest.raises(FenceMissing):
        loop.run()


def test_a_stop_ends_it_before_it_has_claimed(world: World) -> None:
    world.run()
    before = world.row()
    loop, engine = waiting(world, epoch=before.epoch + 1)
    loop.run()
    assert (world.row(), engine.batches, loop.version) == (before, [], None)


def test_an_outage_of_the_database_does_not_end_it(world: World) -> None:
    world.run()
    loop, _ = waiting(world, epoch=world.row().epoch + 1, idle=1000)

    def fail() -> None:
        raise FenceUnavailable("no node answers")

    at_read(loop, 2, fail)
    at_read(loop, 5, world.take_over)
    loop.run()
    assert world.row().driver == "next"


def test_its_workers_are_exercised_meanwhile(world: World) -> None:
    world.run()
    loop, engine = waiting(world, epoch=world.row().epoch + 1, idle=int(3.5 * EXERCISE / 0.05))
    loop.run()
    assert [batch.spans() for batch in engine.rehearsed] == 3 * [{"t/0": (25, 30), "t/1": (15, 20)}], "committed ones"
    assert (engine.warmed, engine.batches) == (0, [])


@pytest.mark.parametrize(
    ("records", "seconds", "following"),
    [(10, 0.1, 20), (150, 0.1, 200), (20, 0.7, 20), (20, 2.0, 5), (2, 2.0, 1), (1, 2.0, 0), (0, 0.1, 0)],
)
def test_an_exercise_takes_about_a_second_at_most(records: int, seconds: float, following: int) -> None:
    """Injected: a function that takes long for each record, as one that makes a request."""
    assert exercised_next(records, seconds) == following


def test_more_small_records_are_exercised_each_time(world: World) -> None:
    world.run()
    loop, engine = waiting(world, epoch=world.row().epoch + 1)
    for _ in range(3):
        loop.exercise(replace(world.row(), records=10, figures={"bytes": 1000}))
    assert [batch.records for batch in engine.rehearsed] == [10, 20, 40]


def test_large_records_are_not_exercised(world: World) -> None:
    world.run()
    loop, engine = waiting(world, epoch=world.row().epoch + 1)
    loop.exercise(replace(world.row(), records=1, figures={"bytes": MOST_EXERCISED_BYTES + 1}))
    assert (engine.rehearsed, engine.warmed) == ([], 1)


def test_it_does_not_end_where_committed_records_cannot_be_read_again(world: World) -> None:
    """Injected: one of them fails, as the one that a run before has set aside."""

    def fail() -> None:
        raise PoisonRecord("t/0 offset 3: not a number")

    world.run()
    loop, engine = waiting(world, epoch=world.row().epoch + 1, idle=int(3.5 * EXERCISE / 0.05))
    engine.rehearses = fail
    loop.run()
    assert (len(engine.rehearsed), engine.warmed) == (1, 3), "it is tried once; empty batches keep the workers"


def test_a_pipeline_without_commits_is_exercised_with_empty_batches() -> None:
    world = World()
    loop, engine = waiting(world, epoch=world.take_over())
    loop.exercise()
    assert (engine.rehearsed, engine.warmed) == ([], 1)


@pytest.mark.parametrize(("stands_by", "seconds"), [(False, LOOK), (True, STANDBY_LOOK)])
def test_it_looks_at_the_epoch_alone_and_reads_the_row_twice_a_minute(
    stands_by: bool, seconds: float, world: World
) -> None:
    world.run()
    loop, _ = waiting(world, epoch=world.row().epoch + 1, idle=int(65 / seconds), stands_by=stands_by)
    calls: list[str] = []
    world.table.before = calls.append
    loop.run()
    assert calls.count("read_epoch") > 60 / seconds
    assert calls.count("read") <= 4


def test_a_row_that_a_cheap_read_misses_does_not_end_it(world: World) -> None:
    """Injected: a replica that has missed the row answers the cheap read."""
    world.run()
    loop, _ = waiting(world, epoch=world.row().epoch + 1, idle=1000)
    usual, answers = loop._fence.read_epoch, iter([None, None])
    loop._fence.read_epoch = lambda: next(answers, usual())  # type: ignore[method-assign]
    at_read(loop, 9, world.take_over)
    loop.run()
    assert world.row().driver == "next"


@pytest.mark.parametrize("code", ["old", "new"])
def test_it_leaves_a_batch_that_other_code_began(code: str, world: World) -> None:
    """Injected: the run that worked dies inside a batch; its own code finishes that in an epoch of its own."""
    world.crash(driver="old", code=code)
    loop, engine = waiting(world, epoch=world.take_over())
    if code == "new":
        loop.run()
        assert engine.batches
        return
    with pytest.raises(Fenced, match="other code began"):
        loop.run()
    assert (world.row().driver, engine.batches) == (None, [])


def test_a_run_that_hands_over_ends_its_epoch_after_its_last_commit(world: World) -> None:
    loop, engine = world.loop(world.take_over(), hands_over=True, code="old")
    epoch = world.row().epoch
    engine.midway = loop._stop.set
    loop.run()
    row = world.row()
    assert (row.epoch, row.driver, sum(row.offsets.values())) == (epoch + 1, None, 10)
    assert row.planned == row.offsets
    following, _ = waiting(world, epoch=epoch + 1, idle=1000)
    following.run()
    world.assert_complete()
    world.assert_each_batch_whole()


def test_a_run_that_does_not_hand_over_keeps_its_epoch(world: World) -> None:
    loop, engine = world.loop(world.take_over())
    engine.midway = loop._stop.set
    loop.run()
    assert (world.row().epoch, world.row().driver) == (1, "pod")


def test_a_run_that_was_replaced_hands_nothing_over(world: World) -> None:
    """Injected: a takeover while the last batch is committed; only the run of the newest epoch may begin the next."""
    loop, _ = world.loop(world.take_over(), hands_over=True)

    def replaced(_report: object) -> None:
        world.take_over()
        loop._stop.set()

    loop._report = replaced
    with pytest.raises(Fenced):
        loop.run()
    assert world.row().epoch == 2


def test_a_run_ends_where_its_last_word_is_not_heard() -> None:
    """Injected: the database does not answer any more; the operator begins the next epoch."""
    world = World(log=FakeLog(ends={"t/0": 0}))
    loop, _ = world.loop(world.take_over(), hands_over=True)

    def silence() -> None:
        if world.log.looks == 2:
            world.table.before = fail

    def fail(_call: str) -> None:
        raise FenceUnavailable("no node answers")

    world.log.fault = silence
    loop.run()
    world.table.before = lambda _call: None
    assert world.row().epoch == 1
