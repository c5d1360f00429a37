"""The batch loop with everything in memory: what holds when each step fails, before its effect and after it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.batch import Batch, Watermarks, Written
from fencepost.contract import (
    Acceptance,
    CassandraEndpoint,
    CassandraSink,
    DriverConfig,
    KafkaSource,
    Loss,
    Reason,
    TopicChange,
)
from fencepost.driver import plan
from fencepost.driver.loop import Loop
from fencepost.driver.report import Report
from fencepost.errors import BadSpec, BatchFailed, DataLoss, DependencyDown, as_worker_error
from fencepost.fence import Fence, Fenced, FenceRow, FenceSchemaMissing, FenceUnauthorized, FenceUnavailable
from fencepost.fence.memory import MemoryFenceTable

PIPELINE = "scope/ns/name"


class Crash(BaseException):
    """The process dies here."""


def config(epoch: int, **changes: Any) -> DriverConfig:
    source = KafkaSource(
        bootstrap_servers="k",
        topics=("t",),
        max_records_per_batch=changes.pop("limit", 10),
        **changes.pop("source", {}),
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
    epoch: int = 4
    leaderless: set[str] = field(default_factory=set)
    missing: float | None = None

    def state(self) -> Watermarks:
        self.fault()
        if self.missing is not None:
            return Watermarks(begins={}, ends={}, topic_ids={}, missing={"t": self.missing})
        ends = {key: end for key, end in self.ends.items() if key not in self.leaderless}
        return Watermarks(
            begins={key: self.begins.get(key, 0) for key in ends},
            ends=ends,
            topic_ids={"t": self.topic_id},
            leader_epochs=dict.fromkeys(ends, self.epoch),
            leaderless=frozenset(self.leaderless),
        )


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
    record_size: int = 0
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
        return Written(rows={"s": batch.records}, records=batch.records, size=batch.records * self.record_size)

    def rehearse(self, batch: Batch) -> None:
        raise AssertionError(f"only an isolation rehearses {batch}")

    def keep_warm(self) -> None:
        self.warmed += 1

    def progress(self) -> int:
        return sum(batch.records for batch in self.batches)


@dataclass
class World:
    """One pipeline across its runs."""

    table: MemoryFenceTable = field(default_factory=MemoryFenceTable)
    log: FakeLog = field(default_factory=FakeLog)
    store: Store = field(default_factory=Store)
    reports: list[Report] = field(default_factory=list)
    mirrored: list[Mapping[str, int]] = field(default_factory=list)

    def fence(self) -> Fence:
        return Fence(self.table, PIPELINE, patience=5, sleep=lambda _: None)

    def take_over(self) -> int:
        row = self.fence().read() or self.fence().create("owner")
        return self.fence().take_over(row, owner="owner").epoch

    def loop(self, epoch: int, *, driver: str = "pod", idle: int = 3, **changes: Any) -> tuple[Loop, FakeEngine]:
        """A loop that stops when it has been idle `idle` times."""
        engine = FakeEngine(self.store)
        look_ahead = changes.pop("look_ahead", 30.0)
        stop = threading.Event()
        clock = Counter[str]()
        now: Callable[[], float] = changes.pop("now", lambda: clock["now"] / 1000)

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
            mirror=self.mirrored.append,
            now=now,
            wait=wait,
            look_ahead=look_ahead,
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


@pytest.mark.parametrize("moment", ["midway", "after the commit"])
def test_a_stop_leaves_nothing_planned_that_is_not_begun(moment: str) -> None:
    """So that an upgrade finds no batch of which the old code may have written a part."""
    world = World()
    loop, engine = world.loop(world.take_over())
    if moment == "midway":
        engine.midway = loop._stop.set
    else:
        loop._report = lambda _report: loop._stop.set()
    loop.run()
    assert world.row().planned == world.row().offsets
    assert sum(world.row().offsets.values()) == 10


def test_a_stop_leaves_a_batch_that_a_predecessor_began() -> None:
    world = World()
    died(world)
    planned = world.row().planned
    loop, engine = world.loop(world.take_over())
    loop.claim()
    loop._stop.set()
    loop.run()
    assert world.row().planned == planned
    assert engine.batches == []


def died(world: World) -> None:
    """A run that wrote a part of its first batch."""
    loop, engine = world.loop(world.take_over(), driver="old")

    def crash() -> None:
        raise Crash

    engine.midway = crash
    with pytest.raises(Crash):
        loop.run()


@pytest.mark.parametrize("limit", [10, 4])
def test_a_finishing_run_does_exactly_what_was_begun_and_ends(limit: int) -> None:
    """Also where the batch was cut after a part of it may have been written."""
    world = World()
    died(world)
    began = dict(world.row().planned)
    assert sum(began.values()) == 10
    loop, engine = world.loop(world.take_over(), finish_until=began, first_batch_limit=limit, limit=limit)
    loop.run()
    assert not loop._stop.is_set()
    assert world.row().offsets == world.row().planned == began
    assert max(batch.records for batch in engine.batches) <= limit
    assert world.row().offsets != world.log.ends


def test_a_finishing_run_that_finds_all_done_writes_nothing() -> None:
    world = World()
    died(world)
    began = dict(world.row().planned)
    for _ in range(2):
        loop, engine = world.loop(world.take_over(), finish_until=began)
        loop.run()
    assert engine.batches == []
    assert world.row().offsets == world.row().planned == began


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
    with pytest.raises(DataLoss, match="recreated"):
        again.run()
    assert engine.batches == []
    assert world.row().driver is None  # nothing was changed, not even claimed


def losing(world: World) -> DataLoss:
    """Run into a loss."""
    loop, engine = world.loop(world.take_over(), driver=f"pod-{len(world.reports)}")
    with pytest.raises(DataLoss) as caught:
        loop.run()
    assert engine.batches == []
    assert caught.value.__cause__ is not caught.value
    return caught.value


def test_a_loss_is_recorded_and_the_next_run_skips_what_is_accepted_of_it_and_no_more() -> None:
    world = World()
    first, _ = world.loop(world.take_over())
    first.run()
    world.log.ends = {"t/0": 90, "t/1": 80}
    world.log.begins = {"t/0": 40, "t/1": 25}
    loss = losing(world).loss
    assert loss is not None
    assert loss.ranges == {"t/0": (30, 40), "t/1": (20, 25)}
    assert losing(world).loss == loss
    acceptance = Acceptance(by="kim", choice="", at=datetime(2026, 1, 1, tzinfo=UTC))
    world.table.accept_loss(PIPELINE, loss, acceptance)
    world.log.begins["t/1"] = 33
    more = losing(world).loss
    assert more is not None
    assert more.ranges == {"t/1": (25, 33)}
    world.table.accept_loss(PIPELINE, more, acceptance)
    again, _ = world.loop(world.take_over(), driver="pod-9")
    again.run()
    assert world.row().offsets == world.log.ends
    written = {key for key, _ in world.store.cells.items()}
    gone = {("t/0", at) for at in range(30, 40)} | {("t/1", at) for at in range(20, 33)}
    assert written == {(key, at) for key, end in world.log.ends.items() for at in range(end)} - gone
    world.log.begins["t/0"] = 95
    world.log.ends["t/0"] = 99
    assert losing(world).loss is not None


def test_an_offset_that_kafka_refuses_is_a_loss_only_where_the_log_says_so() -> None:
    """A task's reader knows that Kafka refused, not what the log holds instead."""
    refused = DataLoss("the log no longer holds all of t/0 [0, 10)", reason=Reason.OFFSET_OUT_OF_RANGE)

    def refuse() -> None:
        raise RuntimeError(f"Job aborted: {as_worker_error(refused)}")

    world = World()
    loop, engine = world.loop(world.take_over())
    engine.midway = refuse
    with pytest.raises(BatchFailed, match="refused an offset that its log holds"):
        loop.run()
    loop, engine = world.loop(world.take_over(), driver="pod-2", look_ahead=0.0)

    def cut() -> None:
        world.log.begins["t/0"] = 7
        refuse()

    engine.midway = cut
    with pytest.raises(DataLoss) as caught:
        loop.run()
    assert caught.value.loss is not None
    assert caught.value.loss.ranges == {"t/0": (0, 7)}
    assert [report.loss for report in world.table.losses.values()] == [caught.value.loss]


def test_a_truncation_that_a_task_saw_is_recorded_with_its_range() -> None:
    world = World()
    first, _ = world.loop(world.take_over())
    first.run()
    world.log.ends["t/0"] = 60
    loop, engine = world.loop(world.take_over(), driver="pod-2")
    seen = Loss(reason=Reason.LOG_TRUNCATED, ranges={"t/0": (12, 30), "other/0": (0, 1)})

    def diverge() -> None:
        raise RuntimeError(str(as_worker_error(DataLoss("cut", reason=Reason.LOG_TRUNCATED, loss=seen))))

    engine.midway = diverge
    with pytest.raises(DataLoss) as caught:
        loop.run()
    loss = caught.value.loss
    assert loss is not None
    assert (loss.ranges, loss.topics) == ({"t/0": (12, 30)}, {"t": TopicChange("id", "id")})
    world.table.accept_loss(PIPELINE, loss, Acceptance(by="kim", choice="", at=datetime(2026, 1, 1, tzinfo=UTC)))
    again, engine = world.loop(world.take_over(), driver="pod-3")
    again.run()
    assert engine.batches[0].ranges[0].start == 12
    assert world.row().offsets == world.log.ends


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (FenceUnavailable("silent"), FenceUnavailable),
        (FenceUnauthorized("refused"), DataLoss),
        (FenceSchemaMissing("no table"), DataLoss),
    ],
)
def test_a_loss_that_cannot_be_recorded(error: Exception, ends: type[Exception]) -> None:
    """Without an answer the next run finds the loss again; without the table or the right a person must help first."""
    world = World()
    first, _ = world.loop(world.take_over())
    first.run()
    world.log.topic_id = "another"
    loop, _ = world.loop(world.take_over(), driver="pod-2")

    def refuse(call: str) -> None:
        if call == "report_loss":
            raise error

    world.table.before = refuse
    with pytest.raises(ends) as caught:
        loop.run()
    if isinstance(caught.value, DataLoss):
        assert caught.value.loss is None
        assert "fence_losses" in caught.value.remedy


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


class Silence:
    """A Kafka that stops answering from its n-th look on, until it is ended."""

    def __init__(self, world: World, *, look: int) -> None:
        self._ended = threading.Event()
        self._left = look
        self.begun = threading.Event()
        world.log.fault = self

    def __call__(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.begun.set()
            self._ended.wait(30)

    def end(self) -> None:
        self._ended.set()


def test_a_finished_batch_is_committed_while_kafka_is_silent() -> None:
    """Injected: the look ahead hangs; the commit used to wait for its whole patience."""
    world = World()
    silence = Silence(world, look=2)
    loop, _ = world.loop(world.take_over(), look_ahead=0.01)
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


def test_a_stop_while_kafka_is_down_is_no_error() -> None:
    """Injected: asked to stop, the log gives up at once instead of at the end of its patience."""
    world = World()
    loop, _ = world.loop(world.take_over())
    looks = Counter[str]()

    def down() -> None:
        looks["n"] += 1
        if looks["n"] > 1:
            loop._stop.set()
            raise DependencyDown("no broker")

    world.log.fault = down
    loop.run()
    assert sum(world.row().offsets.values()) == 10


def test_a_run_that_was_given_a_limit_never_reaches_the_size_that_failed() -> None:
    world = World()
    dying, engine = world.loop(world.take_over(), limit=16)
    crash_at(engine, "after", 1)
    with pytest.raises(Crash):
        dying.run()
    limited, engine = world.loop(world.take_over(), driver="pod-2", limit=16, first_batch_limit=8)
    limited.run()
    assert [batch.records for batch in engine.batches] == [8, 8, 8, 8, 8, 8, 2]
    world.assert_complete()
    planned = [sum(row.planned.values()) for row in world.table.history if row.driver == "pod-2"]
    assert planned[0] == 8  # by the claim, before anything is written


def test_a_limited_run_doubles_its_batch_size_every_ten_minutes() -> None:
    """A limit that was too low, after an outage say, does not slow the pipeline down until its next restart."""
    world = World()
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


def test_the_run_after_a_limited_one_has_the_full_size_again() -> None:
    world = World()
    limited, engine = world.loop(world.take_over(), limit=16, first_batch_limit=8)
    limited.run()
    world.log.ends["t/0"] += 32
    again, engine = world.loop(world.take_over(), driver="pod-2", limit=16)
    again.run()
    assert [batch.records for batch in engine.batches] == [16, 16]
    world.assert_complete()


def test_a_cut_batch_that_fails_again_is_repeated_as_it_was_cut() -> None:
    world = World()
    for number, limit in enumerate((None, 8, 4)):
        dying, engine = world.loop(world.take_over(), driver=f"pod-{number}", limit=16, first_batch_limit=limit)
        crash_at(engine, "midway", 1)
        with pytest.raises(Crash):
            dying.run()
        assert engine.batches[0].records == (limit or 16)
    last, engine = world.loop(world.take_over(), driver="last", limit=16)
    last.run()
    assert engine.batches[0].records == 4
    world.assert_complete()


def test_what_an_earlier_run_may_have_begun_is_repeated_also_where_it_is_cut() -> None:
    world = World()
    dying, engine = world.loop(world.take_over(), limit=16)
    crash_at(engine, "midway", 2)
    with pytest.raises(Crash):
        dying.run()
    assert not any(batch.is_repeated for batch in engine.batches)
    again, engine = world.loop(world.take_over(), driver="pod-2", limit=16, first_batch_limit=8)
    again.run()
    assert [batch.is_repeated for batch in engine.batches[:3]] == [True, True, False]
    assert not any(batch.is_repeated for batch in engine.batches[2:])
    world.assert_complete()


def test_a_partition_without_a_leader_is_left_out_and_read_once_it_has_one() -> None:
    world = World()
    loop, engine = world.loop(world.take_over(), limit=100)
    world.log.leaderless = set()
    looks = Counter[str]()

    def lose() -> None:
        looks["n"] += 1
        world.log.leaderless = {"t/1"} if 1 < looks["n"] < 5 else set()
        world.log.ends["t/0"] = 30 + looks["n"]

    world.log.fault = lose
    world.log.ends = {"t/0": 30, "t/1": 20}
    loop._wait = lambda _seconds: loop._stop.set() if looks["n"] > 8 else None
    loop.run()
    assert [report.unavailable for report in world.reports][:2] == [("t/1",), ("t/1",)]
    assert world.reports[-1].unavailable == ()
    assert world.row().offsets["t/1"] == 20
    assert engine.batches[1].spans().keys() == {"t/0"}


def test_a_topic_that_a_broker_does_not_know_for_a_moment_is_no_data_loss() -> None:
    world = World()
    first, _ = world.loop(world.take_over())
    first.run()
    looks = Counter[str]()

    def forget() -> None:
        looks["n"] += 1
        world.log.missing = 3.0 if looks["n"] < 4 else None

    world.log.fault = forget
    world.log.ends["t/0"] += 7
    again, _ = world.loop(world.take_over(), driver="pod-2", idle=6)
    again.run()
    world.assert_complete()
    world.log.fault = lambda: None
    world.log.missing = plan.AGREEMENT
    third, _ = world.loop(world.take_over(), driver="pod-3")
    with pytest.raises(DataLoss, match="does not exist"):
        third.run()


def test_a_claim_waits_for_a_new_topic_until_kafka_agrees_that_it_does_not_exist() -> None:
    world = World()
    looks = Counter[str]()

    def agree() -> None:
        looks["n"] += 1
        world.log.missing = float(10 * looks["n"])

    world.log.fault = agree
    loop, _ = world.loop(world.take_over(), idle=100)
    with pytest.raises(BadSpec, match="does not exist"):
        loop.run()
    assert looks["n"] == 3
    assert world.row().driver is None


def test_a_claim_waits_for_the_leader_of_each_new_partition_and_not_for_ever() -> None:
    world = World(log=FakeLog(leaderless={"t/1"}))
    loop, _ = world.loop(world.take_over(), idle=1000)
    with pytest.raises(DependencyDown, match="t/1 has no leader"):
        loop.run()
    assert world.row().driver is None


def test_a_batch_carries_the_leader_epochs_of_what_was_committed() -> None:
    """The reader asks Kafka with them whether the log diverged before the batch."""
    world = World()
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
    again, second = world.loop(world.take_over(), driver="pod-2")
    again.run()
    spans = [batch.spans() for batch in (*engine.batches, *second.batches)]
    first = next(number for number, span in enumerate(spans) if "t/2" in span)
    assert max(span["t/0"][1] for span in spans[:first]) >= 30
    world.assert_complete()
    assert world.row().growth_barrier == {}


def test_a_row_of_another_owner_is_not_claimed() -> None:
    world = World()
    loop, engine = world.loop(world.take_over(), owner="cluster/another")
    with pytest.raises(Fenced, match="belongs to"):
        loop.run()
    assert engine.batches == []


def test_the_ends_of_the_log_are_in_the_row_for_who_cannot_ask_kafka() -> None:
    world = World()
    loop, _ = world.loop(world.take_over())
    loop.run()
    assert world.row().log_ends == world.log.ends


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
