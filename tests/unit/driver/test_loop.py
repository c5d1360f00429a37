"""The batch loop with everything in memory: what holds when each step fails, before its effect and after it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.batch import Batch, Watermarks, Written
from fencepost.contract import CassandraEndpoint, CassandraSink, DriverConfig, KafkaSource
from fencepost.driver.loop import Loop, Report
from fencepost.errors import DataLoss, DependencyDown
from fencepost.fence import Fence, Fenced, FenceRow, FenceUnavailable
from fencepost.fence.memory import MemoryFenceTable

PIPELINE = "scope/ns/name"


class Crash(BaseException):
    """The process dies here."""


def config(epoch: int, **changes: Any) -> DriverConfig:
    source = KafkaSource(
        bootstrap_servers="k",
        topics=("t",),
        max_records_per_batch=changes.pop("limit", 10),
    )
    base = DriverConfig(
        pipeline=PIPELINE, epoch=epoch, entrypoint="m:f", args=(), code="c", source=source,
        sinks=(CassandraSink(name="s", keyspace="k", table="t"),), cassandra=CassandraEndpoint(contact_points=("c",)),
        fence_keyspace="f", consistency="ONE", batch_interval=1.0, spark_master="local", spark_conf={}, executors=1,
        termination_grace=30.0,
    )  # fmt: skip
    return replace(base, **changes)


@dataclass
class FakeLog:
    """A topic of two partitions."""

    ends: dict[str, int] = field(default_factory=lambda: {"t/0": 30, "t/1": 20})
    begins: dict[str, int] = field(default_factory=dict)
    topic_id: str = "id"
    fault: Callable[[], None] = lambda: None

    def state(self) -> Watermarks:
        self.fault()
        begins = {key: self.begins.get(key, 0) for key in self.ends}
        return Watermarks(begins=begins, ends=dict(self.ends), topic_ids={"t": self.topic_id})


@dataclass
class Store:
    """An output table with write timestamps: the highest wins, as in Cassandra."""

    cells: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)

    def put(self, key: str, offset: int, timestamp: int, batch: str) -> None:
        old = self.cells.get((key, offset))
        if old is None or timestamp >= old[0]:
            self.cells[key, offset] = (timestamp, batch)


@dataclass
class FakeEngine:
    """Writes each record of a batch; the value names the batch, so a torn boundary shows."""

    store: Store
    before: Callable[[], None] = lambda: None
    midway: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    warmed: int = 0
    batches: list[Batch] = field(default_factory=list)

    def write(self, batch: Batch, row: FenceRow) -> Written:
        self.before()
        self.batches.append(batch)
        name = repr(sorted(batch.spans().items()))
        for part in batch.ranges:
            for offset in range(part.start, part.until):
                self.store.put(part.key, offset, row.write_timestamp, name)
            self.midway()
        self.after()
        return Written(rows={"s": batch.records})

    def keep_warm(self) -> None:
        self.warmed += 1


@dataclass
class World:
    """One pipeline across its runs."""

    table: MemoryFenceTable = field(default_factory=MemoryFenceTable)
    log: FakeLog = field(default_factory=FakeLog)
    store: Store = field(default_factory=Store)
    reports: list[Report] = field(default_factory=list)

    def fence(self) -> Fence:
        return Fence(self.table, PIPELINE, patience=5, sleep=lambda _: None)

    def take_over(self) -> int:
        row = self.fence().read() or self.fence().create("owner")
        return self.fence().take_over(row, owner="owner").epoch

    def loop(self, epoch: int, *, driver: str = "pod", idle: int = 3, **changes: Any) -> tuple[Loop, FakeEngine]:
        """A loop that stops when it has been idle `idle` times."""
        engine = FakeEngine(self.store)
        stop = threading.Event()
        clock = Counter[str]()

        def wait(seconds: float) -> None:
            clock["now"] += round(seconds * 1000)
            clock["waits"] += 1
            if clock["waits"] >= idle:
                stop.set()

        loop = Loop(
            config=config(epoch, **changes),
            driver=driver,
            fence=self.fence(),
            source=self.log,
            engine=engine,
            stop=stop,
            report=self.reports.append,
            now=lambda: clock["now"] / 1000,
            wait=wait,
        )
        return loop, engine

    def row(self) -> FenceRow:
        row = self.fence().read()
        assert row is not None
        return row

    def assert_complete(self) -> None:
        expected = {(key, offset) for key, end in self.log.ends.items() for offset in range(end)}
        assert set(self.store.cells) == expected
        assert self.row().offsets == self.log.ends

    def assert_each_batch_whole(self) -> None:
        """Every record carries the batch that was committed for it: no boundary was torn by a crash."""
        names = {name for _, name in self.store.cells.values()}
        covered = Counter(
            (key, offset)
            for name in names
            for key, (start, until) in eval(name)  # noqa: S307 - our own repr
            for offset in range(start, until)
        )
        assert set(covered.values()) <= {1}


def test_a_backlog_is_read_in_bounded_batches_without_a_pause() -> None:
    world = World()
    loop, engine = world.loop(world.take_over())
    loop.run()
    assert [batch.records for batch in engine.batches] == [10] * 5
    world.assert_complete()
    assert [report.lag for report in world.reports] == [40, 30, 20, 10, 0]


def test_one_change_of_the_row_a_batch_in_a_backlog() -> None:
    world = World()
    loop, _ = world.loop(world.take_over())
    loop.run()
    offsets = [dict(row.offsets) for row in world.table.history if row.driver is not None]
    assert len(offsets) == 1 + 5  # the claim, then a commit a batch
    assert [sum(one.values()) for one in offsets] == [0, 10, 20, 30, 40, 50]


def test_idle_commits_nothing_and_waits() -> None:
    world = World(log=FakeLog(ends={"t/0": 0}))
    loop, engine = world.loop(world.take_over(), idle=4)
    loop.run()
    assert engine.batches == []
    assert len([row for row in world.table.history if row.driver is not None]) == 1


def test_a_batch_after_idleness_is_recorded_before_it_is_written() -> None:
    world = World(log=FakeLog(ends={"t/0": 0}))
    loop, engine = world.loop(world.take_over(), idle=2)
    seen: list[Mapping[str, int]] = []
    looks = Counter[str]()

    def arrive() -> None:
        looks["n"] += 1
        if looks["n"] == 2:
            world.log.ends["t/0"] = 3

    world.log.fault = arrive
    engine.before = lambda: seen.append(dict(world.row().planned))
    loop.run()
    assert seen == [{"t/0": 3}]
    assert world.row().offsets == {"t/0": 3}


def test_an_idle_loop_keeps_the_workers_warm() -> None:
    world = World(log=FakeLog(ends={"t/0": 0}))
    loop, engine = world.loop(world.take_over(), idle=100)
    loop.run()
    assert engine.warmed == 3


def test_the_interval_lies_between_the_starts_of_two_batches() -> None:
    world = World(log=FakeLog(ends={"t/0": 5}))
    loop, _ = world.loop(world.take_over(), idle=1)
    loop.run()
    assert world.row().offsets == {"t/0": 5}


def test_a_twin_loses_at_the_claim_and_writes_nothing() -> None:
    world = World()
    epoch = world.take_over()
    first, _ = world.loop(epoch, driver="pod-1")
    first.claim()
    twin, engine = world.loop(epoch, driver="pod-2")
    with pytest.raises(Fenced):
        twin.run()
    assert engine.batches == []


def test_fenced_in_the_middle_of_a_batch_commits_nothing_and_its_rows_lose() -> None:
    world = World()
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


def test_stop_ends_after_the_batch_in_hand() -> None:
    world = World()
    loop, engine = world.loop(world.take_over())
    engine.midway = loop._stop.set
    loop.run()
    assert sum(world.row().offsets.values()) == 10
    assert len(engine.batches) == 1


def test_a_stop_before_the_first_batch_claims_and_ends() -> None:
    world = World()
    loop, engine = world.loop(world.take_over())
    loop._stop.set()
    loop.run()
    assert engine.batches == []


def test_data_loss_seen_while_writing_is_raised_after_the_commit() -> None:
    world = World()
    loop, engine = world.loop(world.take_over())
    engine.midway = lambda: world.log.begins.update({"t/0": 25})
    looks = Counter[str]()

    def cut_later() -> None:
        looks["n"] += 1
        if looks["n"] > 1:
            world.log.begins["t/0"] = 25

    world.log.fault = cut_later
    with pytest.raises(DataLoss):
        loop.run()
    assert sum(world.row().offsets.values()) == 10


def test_a_recreated_topic_stops_the_next_run() -> None:
    world = World()
    loop, _ = world.loop(world.take_over())
    loop.run()
    world.log.topic_id = "another"
    again, engine = world.loop(world.take_over(), driver="pod-2")
    with pytest.raises(DataLoss, match="created anew"):
        again.run()
    assert engine.batches == []
    assert world.row().driver is None  # nothing was changed, not even claimed


def test_partitions_that_appear_are_read_from_zero() -> None:
    world = World()
    loop, engine = world.loop(world.take_over(), idle=3)

    def grow() -> None:
        world.log.ends["t/2"] = 7

    engine.after = grow
    loop.run()
    world.assert_complete()


def _grow_at(world: World, look: int, *, records: int) -> None:
    """Let the topic have one more partition from the n-th look at the log on; the first is the claim's."""
    looks = Counter[str]()

    def grow() -> None:
        looks["n"] += 1
        if looks["n"] == look:
            world.log.ends["t/2"] = records

    world.log.fault = grow


def test_an_empty_partition_that_appears_during_a_backlog_is_read_once_it_has_records() -> None:
    world = World()
    loop, engine = world.loop(world.take_over())
    _grow_at(world, 2, records=0)

    def fill() -> None:
        if len(engine.batches) == 3:
            world.log.ends["t/2"] = 4

    engine.after = fill
    loop.run()
    world.assert_complete()
    world.assert_each_batch_whole()


def crash_at(engine: FakeEngine, step: str, batch: int) -> None:
    """Crash at a step of the run's nth batch."""
    count = Counter[str]()

    def crash() -> None:
        count["n"] += 1
        if count["n"] == batch:
            raise Crash

    setattr(engine, step, crash)


@pytest.mark.parametrize("records", [0, 2, 7])
@pytest.mark.parametrize("step", ["before", "midway", "after"])
@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_crash_after_partitions_grew_in_a_backlog_repeats_exactly_that_batch(
    step: str, batch: int, records: int
) -> None:
    world = World()
    loop, engine = world.loop(world.take_over())
    _grow_at(world, 2, records=records)
    crash_at(engine, step, batch)
    with pytest.raises(Crash):
        loop.run()
    world.log.ends["t/1"] += 5
    again, second = world.loop(world.take_over(), driver="pod-2", limit=11)
    again.run()
    assert second.batches[0].ranges == loop.hand.ranges
    world.assert_complete()
    world.assert_each_batch_whole()


@pytest.mark.parametrize("limit", [3, 10, 100])
@pytest.mark.parametrize("step", ["before", "midway", "after"])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_crash_around_a_write_repeats_exactly_that_batch(step: str, batch: int, limit: int) -> None:
    world = World()
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
    last, _ = world.loop(world.take_over(), driver="last", limit=limit)
    last.run()
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


def test_kafka_down_while_writing_commits_then_ends() -> None:
    world = World()
    loop, _ = world.loop(world.take_over())
    looks = Counter[str]()

    def down() -> None:
        looks["n"] += 1
        if looks["n"] > 1:
            raise DependencyDown("no broker")

    world.log.fault = down
    with pytest.raises(DependencyDown):
        loop.run()
    assert sum(world.row().offsets.values()) == 10
