"""The batch loop when each step fails, before its effect and after it, and while Kafka is silent."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.driver.reporting.commit_report import Report
from fencepost.errors import DependencyDown
from fencepost.fence import Fenced, FenceUnavailable
from fencepost.fence.memory import MemoryFenceTable
from unit.driver.loop_world import Crash, FakeLog, World, crash_at


def test_a_twin_loses_at_the_claim_and_writes_nothing(world: World) -> None:
    epoch = world.take_over()
    first, _ = world.loop(epoch, driver="pod-1")
    first.claim()
    twin, engine = world.loop(epoch, driver="pod-2")
    with pytest.raises(Fenced) as caught:
        twin.run()
    assert caught.value.__cause__ is None
    assert engine.batches == []


def test_fenced_in_the_middle_of_a_batch_commits_nothing_and_its_rows_lose(world: World) -> None:
    old, engine = world.loop(world.take_over(), driver="old")

    def replaced() -> None:
        engine.after = lambda: None
        new, _ = world.loop(world.take_over(), driver="new")
        new.run()
        # the zombie's rows arrive after the successor's
        for part in engine.batches[0].ranges:
            for offset in range(part.start, part.until):
                world.store.put(part.key, offset, old.row.write_timestamp, "zombie")

    engine.after = replaced
    with pytest.raises(Fenced):
        old.run()
    world.assert_complete()
    assert "zombie" not in {name for _, name in world.store.cells.values()}
    assert old.hand.records == 10  # for the verdict


def test_a_run_that_stops_between_two_batches_asks_a_silent_database_until_it_knows_that_it_is_fenced(
    world: World,
) -> None:
    """Injected: the run is replaced while it is idle and asked to stop, and its first requests get no answer."""
    loop, _ = world.loop(world.take_over(), idle=1)
    silent = Counter[str]()

    def fault(call: str) -> None:
        silent[call] += 1
        if silent[call] <= 2:
            raise FenceUnavailable("timeout")

    def replaced(_seconds: float) -> None:
        world.take_over()
        world.table.before = fault
        loop._stop.set()

    loop._wait = replaced
    with pytest.raises(Fenced, match="epoch 1 is over"):
        loop.run()


def test_a_run_that_stops_while_the_database_is_silent_ends_as_stopped(world: World) -> None:
    loop, _ = world.loop(world.take_over(), idle=1)

    def silent(_call: str) -> None:
        raise FenceUnavailable("timeout")

    def wait(_seconds: float) -> None:
        world.table.before = silent
        loop._stop.set()

    loop._wait = wait
    loop.run()


@pytest.mark.parametrize("limit", [3, 10, 100])
@pytest.mark.parametrize("step", ["before", "midway", "after"])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_crash_around_a_write_repeats_exactly_that_batch(step: str, batch: int, limit: int, world: World) -> None:
    loop, engine = world.loop(world.take_over(), limit=limit)
    crash_at(engine, step, batch)
    try:
        loop.run()
    except Crash:
        before = world.row()
        world.log.ends["t/1"] += 5
        again, second = world.loop(world.take_over(), driver="pod-2", limit=limit + 1)
        again.run()
        assert second.batches[0].until == {**before.offsets, **before.planned}
    world.assert_complete()
    world.assert_each_batch_whole()


@settings(max_examples=150, deadline=None)
@given(
    calls=st.lists(st.tuples(st.integers(1, 9), st.booleans(), st.booleans()), min_size=1, max_size=4),
    limit=st.integers(1, 25),
    grow=st.integers(0, 5),
)
def test_whatever_fails_at_the_fence_every_record_is_written_and_no_batch_is_torn(
    calls: list[tuple[int, bool, bool]], limit: int, grow: int
) -> None:
    """Each run meets one fault at its n-th call: a timeout before or after the effect, or the process' end."""
    world = World()
    for number, (at, late, dies) in enumerate(calls):
        epoch = world.take_over()
        _inject(world.table, at=at, late=late, error=Crash() if dies else FenceUnavailable("timeout"))
        loop, _ = world.loop(epoch, driver=f"pod-{number}", limit=limit)
        try:
            loop.run()
        except Crash:
            pass
        finally:
            world.table.before = world.table.after = lambda _call: None
        world.log.ends["t/0"] += grow
    world.run(driver="last", limit=limit)
    world.assert_complete()
    world.assert_each_batch_whole()
    epochs = [row.epoch for row in world.table.history]
    versions = [row.version for row in world.table.history]
    assert epochs == sorted(epochs)
    assert versions == list(range(len(versions)))
    totals = [sum(row.offsets.values()) for row in world.table.history]
    assert totals == sorted(totals)


def _inject(table: MemoryFenceTable, *, at: int, late: bool, error: BaseException) -> None:
    count = Counter[str]()

    def fault(_call: str) -> None:
        count["n"] += 1
        if count["n"] == at:
            raise error

    if late:
        table.after = fault
    else:
        table.before = fault


class Silence:
    """A Kafka that stops answering from its n-th look on, until it is ended."""

    def __init__(self, world: World, *, look: int) -> None:
        self._ended = threading.Event()
        self._look = look
        self.looks = 0
        self.begun = threading.Event()
        world.log.fault = self

    def __call__(self) -> None:
        self.looks += 1
        if self.looks >= self._look:
            self.begun.set()
            self._ended.wait(30)

    def end(self) -> None:
        self._ended.set()


def test_a_finished_batch_is_committed_while_kafka_is_silent(world: World) -> None:
    """Injected: the look ahead hangs; the commit used to wait for its whole patience."""
    silence = Silence(world, look=2)
    loop, engine = world.loop(world.take_over(), look_ahead=0.01)
    looks: list[int] = []
    engine.before = lambda: looks.append(silence.looks)
    reports: list[Report] = []

    def report(one: Report) -> None:
        reports.append(one)
        silence.end()

    loop._report = report
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert (reports[0].records, reports[0].lag) == (10, None)
    assert looks[:2] == [1, 2], "the answer that came late plans the next batch"
    world.assert_complete()


@pytest.mark.parametrize("look", [1, 2, 3], ids=["claim", "look ahead", "plan"])
def test_a_stop_while_kafka_is_silent_ends_the_run_cleanly(look: int) -> None:
    world = World(log=FakeLog(ends={"t/0": 10}))
    silence = Silence(world, look=look)
    loop, _ = world.loop(world.take_over(), look_ahead=0.01, idle=10**9)
    ends: list[BaseException | None] = []

    def run() -> None:
        try:
            loop.run()
            ends.append(None)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            ends.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert silence.begun.wait(20)
    loop._stop.set()
    thread.join(20)
    silence.end()
    assert ends == [None]
    assert (world.row().driver is None) is (look == 1)
    assert loop.hand.is_empty


def fails_after_the_claim(world: World, when: Callable[[], None] = lambda: None) -> None:
    """Injected: Kafka is down from the second look at the log; `when` is called at each look that fails."""

    def down() -> None:
        if world.log.looks > 1:
            when()
            raise DependencyDown("no broker")

    world.log.fault = down


def test_a_stop_while_kafka_is_down_is_not_an_error(world: World) -> None:
    """Injected: asked to stop, the log gives up at once instead of at the end of its patience."""
    loop, _ = world.loop(world.take_over())
    fails_after_the_claim(world, loop._stop.set)
    loop.run()
    assert sum(world.row().offsets.values()) == 10


def test_kafka_down_while_writing_commits_then_ends(world: World) -> None:
    loop, _ = world.loop(world.take_over())
    fails_after_the_claim(world)
    with pytest.raises(DependencyDown):
        loop.run()
    assert sum(world.row().offsets.values()) == 10
    assert world.log.looks == 2, "Kafka is not asked again"
