"""The batch loop with everything in memory: when it reads, how much, and what it leaves when it stops."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import pytest

from fencepost.batch import Batch
from fencepost.driver.planning.awaiting import EXERCISE
from fencepost.errors import DependencyDown
from fencepost.fence import Fenced, FenceRow
from fencepost.fence.memory import MemoryFenceTable
from present import present
from unit.driver.loop_world import Crash, FakeLog, World, crash_at


def test_a_backlog_is_read_in_bounded_batches_without_a_pause(world: World) -> None:
    engine = world.run()
    assert [batch.records for batch in engine.batches] == [10] * 5
    world.assert_complete()
    assert [report.lag for report in world.reports] == [40, 30, 20, 10, 0]


def test_one_change_of_the_row_a_batch_in_a_backlog(world: World) -> None:
    world.run()
    offsets = [dict(row.offsets) for row in world.table.history if row.driver is not None]
    assert len(offsets) == 1 + 5  # the claim, then a commit a batch
    assert [sum(one.values()) for one in offsets] == [0, 10, 20, 30, 40, 50]


def test_idle_commits_nothing_and_waits() -> None:
    world = World(log=FakeLog(ends={"t/0": 0}))
    engine = world.run(idle=4)
    assert engine.batches == []
    assert len([row for row in world.table.history if row.driver is not None]) == 1


def test_a_batch_after_idleness_is_recorded_before_it_is_written() -> None:
    world = World(log=FakeLog(ends={"t/0": 0}))
    loop, engine = world.loop(world.take_over(), idle=2)
    seen: list[Mapping[str, int]] = []

    def arrive() -> None:
        if world.log.looks == 2:
            world.log.ends["t/0"] = 3

    world.log.fault = arrive
    engine.before = lambda: seen.append(dict(world.row().planned))
    loop.run()
    assert seen == [{"t/0": 3}]
    assert world.row().offsets == {"t/0": 3}


def test_an_idle_loop_lives_by_each_look_and_not_while_kafka_is_silent() -> None:
    world = World(log=FakeLog(ends={"t/0": 0}))
    loop, _ = world.loop(world.take_over(), idle=4)
    seen: list[int | None] = []

    def look() -> None:
        seen.append(loop.life[1] if loop.life is not None else None)
        if len(seen) == 4:
            raise DependencyDown("no broker answers")

    before = loop.life
    world.log.fault = look
    with pytest.raises(DependencyDown):
        loop.run()
    assert seen == [None, 0, 1, 2]  # the first look is the claim's
    after = present(loop.life)
    assert (before, after[0].version, after[1]) == (None, world.row().version, 2)


def test_an_idle_loop_keeps_the_workers_warm() -> None:
    world = World(log=FakeLog(ends={"t/0": 0}))
    engine = world.run(idle=int(3 * EXERCISE) + 1)  # looks, one each second
    assert engine.warmed == 3


def test_batches_keep_the_workers_warm() -> None:
    world = World(log=FakeLog(ends={"t/0": 0}))
    loop, engine = world.loop(world.take_over(), idle=100)

    def arrive() -> None:
        world.log.ends["t/0"] = world.log.looks // 10

    world.log.fault = arrive
    loop.run()
    assert engine.batches
    assert engine.warmed == 0


@pytest.mark.parametrize(
    ("records", "takes", "waits"), [(10, 2.0, []), (4, 2.0, [3.0]), (4, 4.5, [0.5]), (4, 5.0, []), (4, 6.0, [])]
)
def test_a_batch_that_is_not_full_is_followed_after_the_interval(
    records: int, takes: float, waits: list[float]
) -> None:
    world, clock, waited = World(log=FakeLog(ends={"t/0": records})), Counter[str](), list[float]()
    loop, engine = world.loop(world.take_over(), batch_interval=5.0, now=lambda: clock["ms"] / 1000)
    engine.after = lambda: clock.update(ms=round(takes * 1000))

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if present(loop.life)[1]:
            loop._stop.set()

    loop._wait = wait
    loop.run()
    assert waited == [*waits, 1.0]  # the last one is that of an idle log


@pytest.mark.parametrize(("interval", "wait"), [(0.0, 0.05), (0.5, 0.5), (1.0, 1.0), (60.0, 1.0)])
def test_an_idle_log_is_looked_at_after_the_interval_but_neither_at_once_nor_late(interval: float, wait: float) -> None:
    world, waited = World(log=FakeLog(ends={"t/0": 0})), list[float]()
    loop, _ = world.loop(world.take_over(), batch_interval=interval)

    def wait_once(seconds: float) -> None:
        waited.append(seconds)
        loop._stop.set()

    loop._wait = wait_once
    loop.run()
    assert waited == [wait]


def test_a_commit_plans_no_batch_that_is_not_full() -> None:
    """Until it begins, records may join it, or a stop may come."""
    world = World(log=FakeLog(ends={"t/0": 23}))
    world.run()
    rows = [row for row in world.table.history if row.driver is not None]
    assert [(row.offsets["t/0"], row.planned["t/0"]) for row in rows] == [
        (0, 10),
        (10, 20),
        (20, 20),
        (20, 23),
        (23, 23),
    ]


def test_a_run_shows_its_row_from_the_claim_on(world: World) -> None:
    loop, _ = world.loop(world.take_over())
    assert loop.version is None
    with pytest.raises(RuntimeError, match="nothing is claimed"):
        _ = loop.row
    loop.run()
    assert loop.version == loop.row.version == world.row().version


def test_a_batch_is_shown_as_in_progress_until_its_commit(world: World) -> None:
    loop, engine = world.loop(world.take_over())
    seen: list[tuple[Batch, FenceRow]] = []

    def see() -> None:
        shown = present(loop.in_progress)
        seen.append((shown.batch, shown.row))

    engine.after = see
    loop.run()
    assert [batch for batch, _ in seen] == engine.batches
    assert all(dict(batch.until) == dict(row.planned) for batch, row in seen)
    assert loop.in_progress is None


def test_a_run_that_ends_leaves_no_thread(world: World) -> None:
    others = set(threading.enumerate())
    loop, _ = world.loop(world.take_over())
    loop.run()
    for thread in set(threading.enumerate()) - others:
        thread.join(5)
        assert not thread.is_alive()


def test_a_stop_finishes_the_batch_in_progress(world: World) -> None:
    loop, engine = world.loop(world.take_over())
    engine.midway = loop._stop.set
    loop.run()
    assert sum(world.row().offsets.values()) == 10
    assert len(engine.batches) == 1


@pytest.mark.parametrize("moment", ["midway", "after the commit"])
def test_a_stop_leaves_nothing_planned_that_is_not_begun(moment: str, world: World) -> None:
    """So that an upgrade finds no batch of which the old code may have written a part."""
    loop, engine = world.loop(world.take_over())
    if moment == "midway":
        engine.midway = loop._stop.set
    else:
        loop._report = lambda _report: loop._stop.set()
    loop.run()
    assert world.row().planned == world.row().offsets
    assert sum(world.row().offsets.values()) == 10
    furthest = max(sum(row.planned.values()) for row in world.table.history)
    assert furthest == (10 if moment == "midway" else 20), "after a stop no batch is planned"


def test_a_stop_leaves_a_batch_that_a_predecessor_began(world: World) -> None:
    world.crash(driver="old")
    planned = world.row().planned
    loop, engine = world.loop(world.take_over())
    loop.claim()
    loop._stop.set()
    loop.run()
    assert world.row().planned == planned
    assert engine.batches == []


@pytest.mark.parametrize("limit", [10, 4])
def test_a_finishing_run_does_exactly_what_was_begun_and_ends(limit: int, world: World) -> None:
    """Also where the batch was cut after a part of it may have been written."""
    world.crash(driver="old")
    began = dict(world.row().planned)
    assert sum(began.values()) == 10
    loop, engine = world.loop(world.take_over(), finish_until=began, first_batch_limit=limit, limit=limit)
    loop.run()
    assert not loop._stop.is_set()
    assert world.row().offsets == world.row().planned == began
    assert max(batch.records for batch in engine.batches) <= limit
    assert world.row().offsets != world.log.ends


def test_a_finishing_run_that_finds_all_done_writes_nothing(world: World) -> None:
    world.crash(driver="old")
    began = dict(world.row().planned)
    for _ in range(2):
        loop, engine = world.loop(world.take_over(), finish_until=began)
        loop.run()
    assert engine.batches == []
    assert world.row().offsets == world.row().planned == began


def test_a_stop_before_the_first_batch_claims_and_ends(world: World) -> None:
    loop, engine = world.loop(world.take_over())
    loop._stop.set()
    loop.run()
    assert engine.batches == []


def test_a_run_that_was_given_a_limit_never_reaches_the_size_that_failed(world: World) -> None:
    engine = world.crash("after", 1, limit=16)
    engine = world.run(driver="pod-2", limit=16, first_batch_limit=8)
    assert [batch.records for batch in engine.batches] == [8, 8, 8, 8, 8, 8, 2]
    world.assert_complete()
    planned = [sum(row.planned.values()) for row in world.table.history if row.driver == "pod-2"]
    assert planned[0] == 8  # by the claim, before anything is written


def test_a_limited_run_doubles_its_batch_size_every_ten_minutes(world: World) -> None:
    """A limit that was too low, after an outage say, does not slow the pipeline down until its next restart."""
    world.log.ends = {"t/0": 50, "t/1": 50}
    clock = {"now": 0.0}
    limited, engine = world.loop(world.take_over(), limit=16, first_batch_limit=4, now=lambda: clock["now"])

    def pass_time() -> None:
        clock["now"] += 200.0

    engine.after = pass_time
    limited.run()
    # The batch after a raise was planned while the one before it was written.
    assert [batch.records for batch in engine.batches] == [4] * 4 + [8] * 3 + [16] * 3 + [12]
    world.assert_complete()


def test_the_run_after_a_limited_one_has_the_full_size_again(world: World) -> None:
    engine = world.run(limit=16, first_batch_limit=8)
    world.log.ends["t/0"] += 32
    engine = world.run(driver="pod-2", limit=16)
    assert [batch.records for batch in engine.batches] == [16, 16]
    world.assert_complete()


def test_a_cut_batch_that_fails_again_is_repeated_as_it_was_cut(world: World) -> None:
    for number, limit in enumerate((None, 8, 4)):
        dying, engine = world.loop(world.take_over(), driver=f"pod-{number}", limit=16, first_batch_limit=limit)
        crash_at(engine, "midway", 1)
        with pytest.raises(Crash):
            dying.run()
        assert engine.batches[0].records == (limit or 16)
    engine = world.run(driver="last", limit=16)
    assert engine.batches[0].records == 4
    world.assert_complete()


def test_what_an_earlier_run_may_have_begun_is_repeated_also_where_it_is_cut(world: World) -> None:
    engine = world.crash("midway", 2, limit=16)
    assert not any(batch.is_repeated for batch in engine.batches)
    engine = world.run(driver="pod-2", limit=16, first_batch_limit=8)
    assert [batch.is_repeated for batch in engine.batches[:3]] == [True, True, False]
    assert not any(batch.is_repeated for batch in engine.batches[2:])
    world.assert_complete()


def test_a_row_of_another_owner_is_not_claimed(world: World) -> None:
    loop, engine = world.loop(world.take_over(), owner="cluster/another")
    with pytest.raises(Fenced, match="belongs to"):
        loop.run()
    assert engine.batches == []


def test_a_stretch_without_records_is_passed_at_once() -> None:
    """Each batch in a gigabyte of aborted records would read all of it, up to the next record."""
    world = World(log=FakeLog(ends={"t/0": 5_000, "t/1": 20}))
    loop, engine = world.loop(world.take_over())
    engine.gaps = {"t/0": (12, 4_990)}
    in_progress: list[bool] = []
    loop._report = lambda _report: in_progress.append(not loop.hand.is_empty)
    loop.run()
    assert in_progress == [False] * 6, "what is reported is committed"
    assert len(engine.batches) == 5
    assert {offset for key, offset in world.store.cells if key == "t/0"} == {*range(12), *range(4_990, 5_000)}
    assert world.row().offsets == world.log.ends
    history = [row for row in world.table.history if row.driver is not None]
    for before, after in pairwise(history):  # each commit ends where the change before it planned
        assert dict(after.offsets) in (dict(before.offsets), dict(before.planned))


@pytest.mark.parametrize(("length", "batches"), [(9, 3), (10, 2)])
def test_a_stretch_without_records_is_passed_when_it_is_as_long_as_a_batch(length: int, batches: int) -> None:
    world = World(log=FakeLog(ends={"t/0": 30}))
    loop, engine = world.loop(world.take_over())
    engine.gaps = {"t/0": (10, 10 + length)}
    loop.run()
    assert len(engine.batches) == batches
    assert world.row().offsets == {"t/0": 30}


def test_a_stretch_that_was_not_in_the_log_at_the_plan_is_left_for_the_next_one() -> None:
    """The leader epochs of a commit were seen together with the ends of the log."""
    world = World(log=FakeLog(ends={"t/0": 100}))
    loop, engine = world.loop(world.take_over())
    engine.gaps = {"t/0": (5, 4_000)}

    def grow() -> None:
        world.log.ends["t/0"], world.log.epoch = 5_000, 5

    engine.before = grow
    loop.run()
    assert world.row().offsets == {"t/0": 5_000}
    committed = [(row.offsets["t/0"], row.leader_epochs["t/0"]) for row in world.table.history if row.leader_epochs]
    assert (100, 4) in committed
    assert [offset for offset, epoch in committed if epoch == 4 and offset > 100] == []


def test_a_finishing_run_does_not_pass_a_stretch_beyond_its_end() -> None:
    world = World(log=FakeLog(ends={"t/0": 5_000}))
    loop, engine = world.loop(world.take_over(), finish_until={"t/0": 8})
    engine.gaps = {"t/0": (5, 4_000)}
    loop.run()
    assert world.row().offsets == {"t/0": 8}


class DiesOnce(MemoryFenceTable):
    """The process dies before the change that follows a plan."""

    def __init__(self, *, before: Mapping[str, int]) -> None:
        super().__init__()
        self._plan = dict(before)

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        if self._plan and before.planned == self._plan:
            self._plan = {}
            raise Crash
        return super().swap(before, after)


def test_a_crash_while_a_stretch_is_passed_loses_nothing() -> None:
    world = World(log=FakeLog(ends={"t/0": 5_000}), table=DiesOnce(before={"t/0": 4_000}))
    loop, engine = world.loop(world.take_over())
    engine.gaps = {"t/0": (12, 4_000)}
    with pytest.raises(Crash):
        loop.run()
    loop, engine = world.loop(world.take_over())
    engine.gaps = {"t/0": (12, 4_000)}
    loop.run()
    assert set(world.store.cells) == {("t/0", offset) for offset in (*range(12), *range(4_000, 5_000))}
    assert world.row().offsets == {"t/0": 5_000}
