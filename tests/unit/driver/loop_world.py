"""A pipeline of the batch loop in memory: its log, its table, its fence row, and what ends its runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fakes.driver_configs import USUAL
from fencepost.batch import Batch, Range, Record, Sighting, SinkWork, Watermarks, WorkerMemory, Written
from fencepost.contract import Acceptance, DriverConfig, KafkaSource, Loss, Reason
from fencepost.driver.loop import Loop
from fencepost.driver.reporting.commit_report import Report
from fencepost.errors import DataLoss
from fencepost.fence import Fence, FenceRow
from fencepost.fence.memory import MemoryFenceTable
from present import present

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
    return replace(USUAL, pipeline=PIPELINE, epoch=epoch, source=source, **changes)


@dataclass
class FakeLog:
    """A topic of two partitions."""

    ends: dict[str, int] = field(default_factory=lambda: {"t/0": 30, "t/1": 20})
    begins: dict[str, int] = field(default_factory=dict)
    topic_id: str = "id"
    fault: Callable[[], None] = lambda: None
    looks: int = 0
    """How often the log was looked at."""
    epoch: int = 4
    leaderless: set[str] = field(default_factory=set)
    missing: float | None = None
    times: dict[str, Sequence[int]] = field(default_factory=dict)
    """When the records of partitions were produced, in ms; those of another partition at its offsets."""
    grown_again_from: dict[str, int] = field(default_factory=dict)
    """Where a log was truncated before it grew again: a read under an older leader epoch returns that offset."""

    def state(self) -> Watermarks:
        self.looks += 1
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

    def offsets_at(self, time: int, partitions: Collection[str]) -> Mapping[str, int | None]:
        times = {key: self.times.get(key, range(self.ends[key])) for key in partitions if key not in self.leaderless}
        return {key: next((at for at, ms in enumerate(part) if ms >= time), None) for key, part in times.items()}

    def check(self, parts: Sequence[Range], at_least: Mapping[str, int]) -> Mapping[str, int]:
        """Compare what was read before these ranges; no record shows an epoch."""
        assert not at_least
        cut = {part.key: (self.grown_again_from.get(part.key, part.start), part.start) for part in parts}
        lost = {key: (start, until) for key, (start, until) in cut.items() if start < until}
        if lost:
            loss = Loss(reason=Reason.LOG_TRUNCATED, ranges=lost)
            raise DataLoss(f"the log was truncated: {lost}", reason=Reason.LOG_TRUNCATED, loss=loss)
        return {}

    def sightings(self, part: Range) -> tuple[Sighting, ...]:
        """Return the epochs of a range's records as a task reports them: none is known."""
        del part
        return ()


@dataclass
class FakeRecords:
    """Kafka's records: one at each offset."""

    log: FakeLog
    step: Callable[[str], None] = lambda _: None

    def first(self, part: Range) -> Record:
        self.step("read")
        return Record(
            topic=part.topic, partition=part.partition, offset=part.start, timestamp=datetime(2026, 1, 1, tzinfo=UTC),
            key=b"k", value=b"v", headers=(),
        )  # fmt: skip

    def check(self, parts: Sequence[Range], at_least: Mapping[str, int] | None = None) -> Mapping[str, int]:
        self.step("check")
        return self.log.check(parts, at_least or {})


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
    gaps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By partition: offsets [start, until) without a record."""
    batches: list[Batch] = field(default_factory=list)
    rehearsed: list[Batch] = field(default_factory=list)
    rehearses: Callable[[], object] = lambda: None
    sightings: Callable[[Range], tuple[Sighting, ...]] = lambda _: ()
    memory: WorkerMemory = field(default_factory=WorkerMemory)
    cores: int = 0

    def write(self, batch: Batch, row: FenceRow) -> Written:
        self.before()
        self.batches.append(batch)
        name = repr(sorted(batch.spans().items()))
        for part in batch.ranges:
            start, until = self.gaps.get(part.key, (0, 0))
            for offset in [*range(part.start, min(start, part.until)), *range(max(until, part.start), part.until)]:
                self.store.put(part.key, offset, row.write_timestamp, name)
            self.midway()
        self.after()
        reached = {
            part.key: self.gaps[part.key][1]
            for part in batch.ranges
            if part.key in self.gaps and self.gaps[part.key][0] <= part.until < self.gaps[part.key][1]
        }
        return Written(
            {"s": SinkWork(batch.records)},
            memory=self.memory,
            cores=self.cores,
            records=batch.records,
            size=batch.records * self.record_size,
            reached=reached,
            epochs={part.key: self.sightings(part) for part in batch.ranges},
        )

    def rehearse(self, batch: Batch) -> None:
        self.rehearsed.append(batch)
        self.rehearses()

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
    records_steps: list[str] = field(default_factory=list)
    records_step: Callable[[str], None] = lambda _: None

    def fence(self) -> Fence:
        return Fence(self.table, PIPELINE, patience=5, sleep=lambda _: None)

    def take_over(self) -> int:
        row = self.fence().read() or self.fence().create("owner")
        return self.fence().take_over(row, owner="owner").epoch

    def loop(self, epoch: int, *, driver: str = "pod", idle: int = 3, **changes: Any) -> tuple[Loop, FakeEngine]:
        """A loop that stops when it has been idle `idle` times."""
        engine = FakeEngine(self.store, sightings=self.log.sightings)
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
            records=FakeRecords(self.log, self._step),
            engine=engine,
            stop=stop,
            report=self.reports.append,
            mirror=self.mirrored.append,
            now=now,
            wait=wait,
            look_ahead=look_ahead,
        )
        return loop, engine

    def run(self, **changes: Any) -> FakeEngine:
        """Take over, and run until the loop is idle."""
        loop, engine = self.loop(self.take_over(), **changes)
        loop.run()
        return engine

    def crash(self, step: str = "midway", batch: int = 1, **changes: Any) -> FakeEngine:
        """Take over, and die at a step of the run's nth batch."""
        loop, engine = self.loop(self.take_over(), **changes)
        crash_at(engine, step, batch)
        with pytest.raises(Crash):
            loop.run()
        return engine

    def accept(self, loss: Loss | None, choice: str = "") -> None:
        """Let a user accept a loss."""
        given = Acceptance(by="kim", choice=choice, at=datetime(2026, 1, 1, tzinfo=UTC))
        self.table.accept_loss(PIPELINE, present(loss), given)

    def _step(self, step: str) -> None:
        self.records_steps.append(step)
        self.records_step(step)

    def row(self) -> FenceRow:
        return present(self.fence().read())

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


def crash_at(engine: FakeEngine, step: str, batch: int) -> None:
    """Crash at a step of the run's nth batch."""
    count = Counter[str]()

    def crash() -> None:
        count["n"] += 1
        if count["n"] == batch:
            raise Crash

    setattr(engine, step, crash)
