"""How a stateful run ends: the checkpoint and the fence are real, and a function stands for Spark's query."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from fakes.clock import Clock
from fencepost.batch import Batch, Range, Written
from fencepost.contract import Reason, StateConfig
from fencepost.driver.reporting.commit_report import Report, StateSize
from fencepost.driver.stateful import run
from fencepost.driver.stateful.run import StatefulRun
from fencepost.errors import BadSpec, BatchFailed, OutOfMemory, RecordFailed
from fencepost.fence import FenceRow, FenceUnavailable
from fencepost.fence.patience import Patience
from fencepost.spark.stateful.stream_source import Plans, offsets_text
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import ChunkStore
from fencepost.state.errors import CheckpointFull, LogTooLong
from fencepost.state.memory import MemoryChunks, MemoryFileIndex
from fencepost.state.progress import Committed
from fencepost.state.tree import StoredFile
from unit.driver.loop_world import FakeRecords, World, config

STATE = StateConfig(partitions=2, max_bytes=1 << 30, data_port=0)
FILE = UUID(int=1)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let no patience take time."""
    clock = Clock()
    monkeypatch.setattr(run, "Patience", lambda seconds: Patience(seconds, clock.monotonic, clock.sleep))
    return clock


@dataclass
class Pipeline:
    """One run. `query` is what Spark does in a batch, after its plan; requests that fail are given to `failed`."""

    query: Callable[[Callable[[Exception], object]], object]
    world: World = field(default_factory=World)
    chunks: MemoryChunks = field(default_factory=MemoryChunks)
    index: MemoryFileIndex = field(default_factory=MemoryFileIndex)
    snapshots: Callable[[], tuple[bytes, ...]] = tuple
    state: StateConfig = STATE
    reports: list[Report] = field(default_factory=list)
    running: StatefulRun = field(init=False)
    checkpoint: Checkpoint = field(init=False)
    failed: Callable[[Exception], object] = field(init=False)

    def __post_init__(self) -> None:
        made = config(self.world.take_over(), state=self.state)
        self.running = StatefulRun(
            config=made, driver="pod", fence=self.world.fence(), source=self.world.log,
            records=FakeRecords(self.world.log), query=self, serve=self.serve, chunks=self.chunks, index=self.index,
            snapshots=self.snapshots, stop=threading.Event(), report=self.reports.append, end=lambda _: None,
            wait=lambda _: None,
        )  # fmt: skip

    @contextmanager
    def serve(self, checkpoint: Checkpoint, _: ChunkStore, failed: Callable[[Exception], object]) -> Iterator[str]:
        self.checkpoint, self.failed = checkpoint, failed
        yield "nowhere"

    def run(self, _location: str, plans: Plans, write: Callable[[Any, int], None]) -> None:
        """Plan, write and commit batch 0, and do what `query` does in between."""
        checkpoint = self.checkpoint
        start = plans.start()
        end = plans.end(start)
        checkpoint.keep("metadata", b"{}")
        checkpoint.keep("offsets/0", f"v1\n{{}}\n{offsets_text(end)}".encode())
        plans.batch(start, end)
        self.query(self.failed)
        write(None, 0)
        checkpoint.keep("commits/0", b"v1")
        raise BatchFailed("the query ended without an error")

    def write(self, _rows: object, batch: Batch, _row: FenceRow, *, is_repeated: bool) -> Written:
        assert not is_repeated
        return Written({}, records=batch.records)

    def rehearse(self, parts: Sequence[Range]) -> int:
        return sum(part.records for part in parts)

    def event_time(self, _: int) -> None:
        return None

    def progress(self) -> int:
        return 10


def away(call: str) -> None:
    raise FenceUnavailable(f"{call}: no answer")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (BatchFailed("Job aborted"), FenceUnavailable),
        (RecordFailed("invalid input for type INT"), RecordFailed),
        (OutOfMemory("an executor's JVM ran out of memory"), OutOfMemory),
        (BadSpec("no column"), BadSpec),
    ],
)
def test_a_request_that_failed_explains_only_what_has_no_other_cause(raised: Exception, kind: type[Exception]) -> None:
    def query(failed: Callable[[Exception], object]) -> None:
        failed(FenceUnavailable("no answer"))
        raise raised

    with pytest.raises(kind):
        Pipeline(query).running.run()


def test_a_request_that_failed_before_a_commit_explains_nothing_after_it() -> None:
    with pytest.raises(BatchFailed, match="ended without an error"):
        Pipeline(lambda failed: failed(FenceUnavailable("no answer"))).running.run()


def test_a_state_beyond_its_bounds_is_a_mistake_of_the_spec() -> None:
    def query(failed: Callable[[Exception], object]) -> None:
        failed(CheckpointFull("the checkpoint has 200000 files"))
        raise BatchFailed("Job aborted")

    with pytest.raises(BadSpec, match="200000 files") as full:
        Pipeline(query).running.run()
    assert full.value.reason is Reason.STATE_TOO_LARGE


def test_logs_of_too_many_partitions_name_the_field() -> None:
    def query(failed: Callable[[Exception], object]) -> None:
        failed(LogTooLong("log file offsets/7 of the checkpoint has more than 8388608 bytes"))
        raise BatchFailed("Job aborted")

    with pytest.raises(BadSpec, match="offsets/7") as full:
        Pipeline(query).running.run()
    assert full.value.reason is Reason.STATE_TOO_LARGE
    assert "spec.source.kafka.topics" in full.value.remedy


@pytest.mark.parametrize(("room", "warns"), [(7, False), (6, True)])
def test_the_size_of_the_state_is_reported_and_one_beyond_its_room_is_named(
    room: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def query(_: object) -> None:
        for path, length in (("state/0/0/1.zip", 3), ("state/0/1/1.zip", 4)):
            pipeline.checkpoint.complete(pipeline.checkpoint.create(path), length)

    pipeline = Pipeline(query, state=replace(STATE, max_bytes=room))
    with pytest.raises(BatchFailed, match="ended without an error"):
        pipeline.running.run()
    assert [report.state for report in pipeline.reports] == [StateSize(used=7, room=room)]
    assert ("spec.state.maxBytes" in caplog.text) == warns


def test_a_batch_that_loads_its_state_makes_progress_with_each_file() -> None:
    """History of the defect: tasks that loaded 5 GB showed nothing for a minute, and their run was replaced."""
    seen: list[int] = []

    def query(_: object) -> None:
        checkpoint = pipeline.checkpoint
        checkpoint.complete(checkpoint.create("state/0/0/1.zip"), 3)
        for _ in range(2):
            checkpoint.open("state/0/0/1.zip")
            seen.append(pipeline.running.progress())

    pipeline = Pipeline(query)
    assert pipeline.running.progress() == 10
    with pytest.raises(BatchFailed, match="ended without an error"):
        pipeline.running.run()
    assert seen == [12, 12]


def test_a_collection_that_fails_explains_no_batch() -> None:
    """Its chunks are read in another thread, and again later."""
    snapshot = Committed(batch=0, metadata="", offset_logs={0: ""}, commit_log="", tree=StoredFile(FILE, 1)).pack()

    def query(_: object) -> None:
        pipeline.chunks.before = away
        with pytest.raises(FenceUnavailable):
            pipeline.running.collect()
        raise BatchFailed("Job aborted")

    pipeline = Pipeline(query, snapshots=lambda: (snapshot,))
    with pytest.raises(BatchFailed, match="Job aborted"):
        pipeline.running.run()


def test_a_store_that_does_not_answer_is_asked_for_as_long_as_the_patience(clock: Clock) -> None:
    """Its tree is written by a commit, and read by the next run."""

    def query(_: object) -> None:
        pipeline.chunks.before = away

    pipeline = Pipeline(query)
    with pytest.raises(FenceUnavailable):
        pipeline.running.run()
    assert clock.seconds <= config(1).patience


def test_a_tree_that_cannot_be_read_is_asked_for_as_long_as_the_patience(clock: Clock) -> None:
    chunks, index, world = MemoryChunks(), MemoryFileIndex(), World()
    with pytest.raises(BatchFailed, match="ended without an error"):
        Pipeline(lambda _: None, world, chunks, index).running.run()
    chunks.before = away
    with pytest.raises(FenceUnavailable):
        Pipeline(lambda _: None, world, chunks, index).running.run()
    assert 0 < clock.seconds <= config(1).patience
