"""A stateful pipeline in memory: the real checkpoint and fence, and a model of what Spark does with the directory.

The model adds up the records of one partition in two state stores.  A version of a store is a full file or a difference
to the version before, named by a unique id that the commit log has, as in Spark's checkpoint format 2.  A driver is a
generator: it stops after each call, so that others run in between, and it may never run again.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from fakes.clock import Clock
from fencepost.fence import Fence, FenceRow, FenceUnavailable, Starting
from fencepost.fence.memory import MemoryFenceTable, no_fault
from fencepost.fence.patience import Patience
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import PatientChunks, read_file, write_file
from fencepost.state.collector import Collector
from fencepost.state.directory import LogFile
from fencepost.state.fence_committer import (
    FenceCommitter,
    PlannedBatch,
    WrittenBatch,
    reached_by,
    reopened,
)
from fencepost.state.file_ids import FileIds
from fencepost.state.memory import MemoryChunks, MemoryFileIndex
from fencepost.state.progress import unpack_committed, unpack_planned
from fencepost.state.tree import StoredFile
from present import present

PIPELINE, OWNER, KEY = "scope/shop/orders", "cluster/cr", "orders/0"
STORES = 2
FULL_EVERY = 3
"""Versions between two full files of a store."""
GRACE = 100.0
Steps = Generator[None, None, None]


class Killed(BaseException):
    """The process ends at this call."""


def value_of(offset: int) -> int:
    """Return what the record at an offset adds."""
    return offset * 7919 % 1013 + 1


def total(store: int, until: int) -> int:
    """Return what a store has after the records before an offset."""
    return sum(value_of(offset) for offset in range(until) if offset % STORES == store)


def end_of(offset_log: str) -> int:
    """Return where the batch of an offset log ends."""
    return int(json.loads(offset_log.splitlines()[1])[KEY])


class Facts:
    """The offset log is a version, and the end of the batch."""

    def planned(self, offset_log: str, row: FenceRow) -> PlannedBatch:
        return PlannedBatch(offsets=row.offsets, planned=json.loads(offset_log.splitlines()[1]))

    def written(self, batch: int) -> WrittenBatch:
        return WrittenBatch(records=1, duration_ms=batch)

    def committed(self, row: FenceRow) -> None:
        """Nothing is reported."""

    def logged(self, offset_log: str, offsets: Mapping[str, int]) -> str:
        version, _ = offset_log.splitlines()
        return f"{version}\n{json.dumps(dict(offsets), separators=(',', ':'))}"


@dataclass
class World:
    """The stores, the clock, and what was written. `fault` sees each call to a store, before and after its effect."""

    dice: random.Random
    clock: Clock = field(default_factory=Clock)
    table: MemoryFenceTable = field(default_factory=MemoryFenceTable)
    chunks: MemoryChunks = field(default_factory=MemoryChunks)
    index: MemoryFileIndex = field(default_factory=MemoryFileIndex)
    snapshots: dict[int, FenceRow] = field(default_factory=dict)
    output: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By batch and store: the write timestamp, and the total."""
    fault: Callable[[str], None] = no_fault
    _read: tuple[float, FenceRow] | None = None
    _reached: dict[bytes, frozenset[UUID]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table.now = self.clock.micros
        for store in (self.table, self.chunks, self.index):
            store.before = lambda call: self.fault(f"before {call}")
            store.after = lambda call: self.fault(f"after {call}")
        self.fence().create(OWNER)

    def fence(self) -> Fence:
        return Fence(
            self.table,
            PIPELINE,
            patience=5,
            now=self.clock.micros,
            monotonic=self.clock.monotonic,
            sleep=self.clock.sleep,
        )

    @property
    def row(self) -> FenceRow:
        return self.table.rows[PIPELINE]

    def take_over(self) -> Driver:
        taken = self.fence().take_over(self.row, owner=OWNER)
        return Driver(self, taken.epoch)

    def rewind(self, to: FenceRow) -> Driver:
        """Take over, and go back to a snapshot; what was written beyond it is deleted."""
        taken = self.fence().take_over(self.row, owner=OWNER)
        back = self.fence().rewind(
            taken, offsets=to.offsets, leader_epochs={}, growth_barrier={}, checkpoint=to.checkpoint
        )
        self.output = dict.fromkeys(self.output, (back.write_timestamp - 1, -1))
        return Driver(self, back.epoch)

    def snapshot(self) -> None:
        """Store the row that was read last time, unless that is too long ago, and read another one."""
        if self._read is not None and self.clock.monotonic() - self._read[0] < GRACE:
            self.snapshots[self._read[1].version] = self._read[1]
        self._read = self.clock.monotonic(), self.row

    def reached(self) -> set[UUID]:
        """Return the files of the row and of the snapshots."""
        found = [row.checkpoint for row in (self.row, *self.snapshots.values()) if row.checkpoint is not None]
        for each in found:
            if each not in self._reached:
                fault, self.fault = self.fault, no_fault
                self._reached[each] = reached_by(each, self.chunks)
                self.fault = fault
        return set().union(*(self._reached[each] for each in found))

    def check(self) -> None:
        """Fail where the row's offsets are not those of its logs, or what the row or a snapshot reaches is gone."""
        row = self.row
        done, planned = unpack_committed(row.checkpoint), unpack_planned(row.planned_log)
        if done is not None:
            assert row.offsets[KEY] == end_of(done.offset_logs[done.batch])
        if planned is not None:
            assert planned.batch == (0 if done is None else done.batch + 1)
            assert row.planned[KEY] == end_of(planned.offset_log)
        missing = self.reached() - self.chunks.files
        assert not missing, f"{len(missing)} files are gone that are reached"

    def write(self, batch: int, store: int, at: int, value: int) -> None:
        """Write output USING TIMESTAMP: the later one stays."""
        self.output[batch, store] = max((at, value), self.output.get((batch, store), (0, 0)))


class Driver:
    """One epoch's driver. `steps` is its life."""

    def __init__(self, world: World, epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        self.committed = 0
        self.checkpoint: Checkpoint | None = None
        self.committer: FenceCommitter | None = None
        self.ids: FileIds | None = None
        self.collector: Collector | None = None
        self.ended: list[BaseException] = []
        self.steps = self._live()

    def collect(self) -> int:
        return 0 if self.collector is None else self.collector.collect()

    @property
    def serving(self) -> frozenset[UUID]:
        unused = present(self.ids).unused
        return unused | present(self.checkpoint).reached | present(self.committer).reached

    def _live(self) -> Steps:
        world = self.world
        fence = world.fence()
        row = fence.claim(epoch=self.epoch, driver=f"pod-{self.epoch}", code="c", start=start_at_zero)
        yield
        patience = Patience(5, world.clock.monotonic, world.clock.sleep)
        self.ids = ids = FileIds(world.index, patience, random=lambda: UUID(int=world.dice.getrandbits(128)))
        self.checkpoint, self.committer = reopened(
            fence, row, facts=Facts(), chunks=PatientChunks(world.chunks, patience), ids=ids,
            now=lambda: world.clock.micros() // 1000, ended=self.ended.append,
        )  # fmt: skip
        self.collector = Collector(
            fence, row, chunks=world.chunks, index=world.index, serving=lambda: self.serving,
            snapshots=lambda: [each.checkpoint for each in world.snapshots.values() if each.checkpoint is not None],
            grace=GRACE,
        )  # fmt: skip
        yield
        spark = Spark(self, self.checkpoint, world.dice)
        yield from spark.start()
        while True:
            yield from spark.batch()
            self.committed += 1


class Spark:
    """The query: what MicroBatchExecution, the state stores and their maintenance ask of the directory."""

    def __init__(self, driver: Driver, checkpoint: Checkpoint, dice: random.Random) -> None:
        self.driver = driver
        self.directory = checkpoint
        self.dice = dice

    def start(self) -> Steps:
        for path in ("offsets", "commits", "state"):
            self.directory.make_directory(path)
        if not self.has("metadata"):
            yield from self.log("metadata", '{"id":"q"}')
        # Spark reads the offsets of the last batch and of the one before, and the commit log of the batch before.
        last = self.newest("offsets")
        assert all(self.has(f"offsets/{batch}") for batch in range(max(last - 1, 0), last + 1))
        assert self.newest("commits") in {last, last - 1}
        yield

    def batch(self) -> Steps:
        """Repeat the planned batch, or plan one; then do and commit it."""
        planned, committed = self.newest("offsets"), self.newest("commits")
        if planned == committed:
            planned += 1
            end = self.end(planned - 1) + self.dice.randrange(4)
            yield from self.log(f"offsets/{planned}", f'v1\n{{"{KEY}":{end}}}')
        before = json.loads(self.text(f"commits/{planned - 1}"))["ids"] if planned else [None] * STORES
        start, end = self.end(planned - 1), self.end(planned)
        self.directory.begin()
        yield
        ids, at = [], present(self.driver.committer).row.write_timestamp
        for store in range(STORES):
            value = self.load(store, planned, before[store])
            yield
            assert value == total(store, start), "the state is not that of the records before the batch"
            added = sum(value_of(offset) for offset in range(start, end) if offset % STORES == store)
            for attempt in range(self.dice.choice([1, 1, 2])):  # a lost task runs again
                unique = f"{self.driver.epoch}-{planned}-{store}-{attempt}-{self.dice.getrandbits(40)}"
                yield from self.upload(store, planned + 1, unique, before[store], value, added)
            ids.append(unique)
            self.driver.world.write(planned, store, at, value + added)
            yield
        yield from self.log(f"commits/{planned}", json.dumps({"ids": ids}))
        if self.dice.random() < 0.5:
            yield from self.maintain(planned + 1)

    def load(self, store: int, version: int, unique: str | None) -> int:
        """Return the total of a version: of a full file, or of the differences since one."""
        if unique is None:
            return 0
        found = json.loads(self.content(f"state/0/{store}/{version}_{unique}"))
        below = 0 if found["full"] else self.load(store, version - 1, found["before"])
        return below + int(found["value"])

    def upload(self, store: int, version: int, unique: str, before: str | None, value: int, added: int) -> Steps:
        full = version % FULL_EVERY == 1
        content = json.dumps({"full": full, "value": value + added if full else added, "before": before}).encode()
        path = f"state/0/{store}/{version}_{unique}"
        temporary = f"state/0/{store}/.{version}_{unique}.tmp"
        file = self.directory.create(temporary)
        yield
        length = write_file(self.driver.world.chunks, file, io.BytesIO(content), limit=10**6)
        yield
        self.directory.complete(file, length)
        yield
        self.directory.rename(temporary, path)
        yield

    def maintain(self, version: int) -> Steps:
        """Delete what the last versions do not need, as the maintenance of an executor does."""
        oldest = (version - 1) // FULL_EVERY * FULL_EVERY + 1 - FULL_EVERY
        for store in range(STORES):
            for entry in self.directory.entries(f"state/0/{store}"):
                if not entry.name.startswith(".") and int(entry.name.partition("_")[0]) < oldest:
                    self.directory.delete(f"state/0/{store}/{entry.name}")
                    yield

    def log(self, path: str, text: str) -> Steps:
        """Write a log file as Spark does: under a temporary name, then renamed."""
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{self.dice.getrandbits(60)}.tmp".lstrip("/")
        self.directory.keep(temporary, text.encode())
        yield
        self.directory.rename(temporary, path)
        yield

    def has(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return any(entry.name == name for entry in self.directory.entries(folder))

    def newest(self, log: str) -> int:
        """Return the newest batch of a log, -1 without one."""
        return max((int(entry.name) for entry in self.directory.entries(log) if entry.name.isdigit()), default=-1)

    def end(self, batch: int) -> int:
        return 0 if batch < 0 else end_of(self.text(f"offsets/{batch}"))

    def text(self, path: str) -> str:
        found = self.directory.open(path)
        assert isinstance(found, LogFile)
        return found.content.decode()

    def content(self, path: str) -> bytes:
        found = self.directory.open(path)
        assert isinstance(found, StoredFile)
        return b"".join(read_file(self.driver.world.chunks, found.id, found.length))


def start_at_zero(row: FenceRow) -> Starting:
    """Start a new pipeline at 0; leave the row of another one as it is."""
    offsets = row.offsets or {KEY: 0}
    return Starting(offsets=offsets, planned=row.planned or offsets, topic_ids={"orders": "id"})


def no_answer(call: str) -> None:
    """Lose the request, or its answer."""
    raise FenceUnavailable(f"{call}: no answer")
