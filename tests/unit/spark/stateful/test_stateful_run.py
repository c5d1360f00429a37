"""Runs of a stateful pipeline on real Spark: log, fence and chunks are in memory.

Records of two partitions are counted by key and minute; every seventh one is ten minutes late.  A run ends as a process
does: from some call to the fence or the chunks on, none has an effect.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.batch import NO_EPOCH, Range
from fencepost.context import StreamContext
from fencepost.contract import Reason, StateConfig
from fencepost.driver.reporting.commit_report import Report
from fencepost.driver.stateful import checkpoint_service
from fencepost.driver.stateful.run import StatefulRun
from fencepost.errors import BadSpec, BatchFailed, DataLoss, DriverError, PoisonRecord, RecordFailed
from fencepost.fence import Fence, Fenced, FenceRow
from fencepost.sinks import BatchToken, Sink, SinkTask
from fencepost.spark import session as spark_session
from fencepost.spark.stateful.query import StatefulQuery
from fencepost.state.checkpoint import Checkpoint
from fencepost.state.chunks import ChunkStore
from fencepost.state.fence_committer import tree_of
from fencepost.state.memory import MemoryChunks, MemoryFileIndex
from fencepost.state.progress import Committed, unpack_committed
from fencepost.state.webhdfs import http_server
from fencepost.state.webhdfs.authentication import Keys
from unit.driver.loop_world import PIPELINE, FakeRecords, World, config

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from fencepost.spark.tasks.slicing import LeftOut

STATE = StateConfig(partitions=2, max_bytes=1 << 30, data_port=0)
ENDS = {"t/0": 40, "t/1": 20}
LATER = {"t/0": 44, "t/1": 20}
START = datetime(2026, 1, 1, tzinfo=UTC)


def reading(
    ranges: Sequence[Range], *, reached: Callable[[str, int], object], seen: Callable[[str, int, int], object]
) -> Iterator[pa.RecordBatch]:
    """One record per offset, fifteen seconds apart; a late one of LATER is five minutes late."""
    del reached, seen
    from fencepost.testing import record_batch  # noqa: PLC0415

    for one in ranges:
        yield record_batch(
            [
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "offset": offset,
                    "timestamp": START
                    + timedelta(seconds=15 * offset - (600 if offset < 40 else 300) * (offset % 7 == 6)),
                    "value": str(offset % 3).encode(),
                }
                for offset in range(one.start, one.until)
                if (offset, NO_EPOCH) not in one.left_out
            ]
        )


def stream(events: DataFrame, context: StreamContext) -> DataFrame:
    """Count by key and minute; late events do not count."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    assert context.args == ()
    counted = events.withWatermark("timestamp", "2 minutes").groupBy(F.window("timestamp", "1 minute"), "value").count()
    return counted.select(
        F.col("window.start").cast("long").alias("minute"), F.col("value").cast("string").alias("key"), "count"
    )


@dataclass(frozen=True)
class FileTask:
    """Writes rows into a file of their own, with the token of their batch."""

    folder: str

    def write(self, batches: Iterable[pa.RecordBatch], batch: BatchToken) -> Iterator[int]:
        rows = [row for found in batches for row in found.to_pylist()]
        if not batch.is_warm_up:
            text = json.dumps([batch.token, [list(row.values()) for row in rows]])
            (Path(self.folder) / f"{uuid.uuid4()}.json").write_text(text)
        yield len(rows)


class FileSink(Sink):
    """A table in files: of a key's rows the one with the highest token stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self, schema: StructType) -> None:
        assert schema.names == ["minute", "key", "count"]

    def task(self) -> SinkTask:
        return FileTask(str(self.folder))

    def table(self) -> dict[tuple[int, str], int]:
        found = sorted(json.loads(path.read_text()) for path in self.folder.glob("*.json"))
        return {(minute, key): count for _, rows in found for minute, key, count in rows}


class Killed(Exception):
    """The process is gone."""


@dataclass
class Pipeline:
    """A pipeline across its runs."""

    spark: SparkSession
    sink: FileSink
    world: World = field(default_factory=World)
    chunks: MemoryChunks = field(default_factory=MemoryChunks)
    index: MemoryFileIndex = field(default_factory=MemoryFileIndex)
    reports: list[Report] = field(default_factory=list)
    ended: list[BaseException] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    before_write: Callable[[int], None] = lambda _: None
    function: Callable[[DataFrame, StreamContext], DataFrame] = stream
    state: StateConfig = STATE
    left_out: LeftOut = field(default_factory=dict)
    isolate: bool = False
    checks: bool = False
    """Whether runs start as those after a claim of the same code do."""
    looks: int = 40
    """How often a run looks at a log without new records before it stops."""
    looked: Callable[[int], None] = lambda _: None
    """Called with how often a run has looked so."""

    def __post_init__(self) -> None:
        self.world.log.ends = dict(ENDS)

    def run(self, *, fault: Callable[[int], None] = lambda _: None) -> None:
        """Take over, and run until everything is read. `fault` sees how many changes a run has begun and made."""
        made = config(self.world.take_over(), state=self.state, limit=20, batch_interval=0.01, isolate=self.isolate)
        self.calls.clear()

        def change(call: str) -> None:
            if call in {"swap", "write", "add_range"}:
                self.calls.append(call)
                fault(len(self.calls))

        for store in (self.world.table, self.chunks, self.index):
            store.before = store.after = change
        try:
            self.started(made).run()
        finally:
            for store in (self.world.table, self.chunks, self.index):
                store.before = store.after = lambda _call: None

    def started(self, made: Any, stop: threading.Event | None = None) -> StatefulRun:
        stop = stop or threading.Event()
        keys = Keys("of the generation")
        hadoop = self.spark.sparkContext._jsc.hadoopConfiguration()
        for name, value in checkpoint_service.client(made, keys).items():
            hadoop.set(name.removeprefix("spark.hadoop."), value)
        idle: list[float] = []

        def wait(seconds: float) -> None:
            idle.append(seconds)
            stop.wait(0.01)
            self.looked(len(idle))
            if len(idle) > self.looks:
                stop.set()

        query = StatefulQuery(
            spark=self.spark, config=made, state=self.state, stream=self.function, finish=None,
            sinks={"s": self.sink}, properties={}, records=reading,
        )  # fmt: skip
        query.leave_out(self.left_out)
        if self.checks:
            query.check()
        inner = query.write

        def write(rows: DataFrame, *rest: Any, **more: Any) -> Any:
            written = inner(rows, *rest, **more)
            self.before_write(made.epoch)
            return written

        query.write = write  # type: ignore[method-assign]
        return StatefulRun(
            config=made, driver=f"pod-{made.epoch}", fence=Fence(self.world.table, made.pipeline, patience=1),
            source=self.world.log, records=FakeRecords(self.world.log), query=query, serve=partial(serve, made, keys),
            chunks=self.chunks, index=self.index, snapshots=lambda: (), stop=stop, report=self.reports.append,
            end=self.ended.append, wait=wait,
        )  # fmt: skip

    def outcome(self) -> tuple[Mapping[str, int], dict[tuple[int, str], int]]:
        return self.world.row().offsets, self.sink.table()


@contextmanager
def serve(made: Any, keys: Keys, checkpoint: Checkpoint, chunks: ChunkStore, failed: Any) -> Iterator[str]:
    with checkpoint_service.serve(made, keys, checkpoint, chunks, failed, host=None) as location:
        yield location


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path) -> Callable[[], Pipeline]:
    from pyspark import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    settings = spark_session.settings(config(1, state=STATE), {})

    def make() -> Pipeline:
        session = spark.newSession()
        for name, value in settings.items():
            if name.startswith(("spark.sql.streaming.", "spark.sql.shuffle.", "spark.sql.session.")):
                session.conf.set(name, value)
        folder = tmp_path / str(uuid.uuid4())
        folder.mkdir()
        return Pipeline(session, FileSink(folder))

    return make


def test_a_run_killed_at_any_change_leaves_offsets_state_and_output_as_one_that_was_not(
    made: Callable[[], Pipeline],
) -> None:
    """The last rows of a key are what the state has of it."""
    undisturbed = made()
    undisturbed.run()
    offsets, table = undisturbed.outcome()
    calls = len(undisturbed.calls)
    assert offsets == ENDS
    assert sum(report.records for report in undisturbed.reports) == sum(ENDS.values())
    assert sum(table.values()) < sum(ENDS.values())
    assert undisturbed.world.row().planned_log is None

    killed, kills = made(), 0
    for at in (3, 7, 12, 18, calls // 2):
        try:
            killed.run(fault=partial(dead_from, at))
        except Exception:  # noqa: BLE001 - whatever Spark makes of it
            kills += 1
    assert kills > 2
    killed.run()
    assert killed.outcome() == (offsets, table)


def test_commits_have_the_event_time_of_the_batches_before(made: Callable[[], Pipeline]) -> None:
    """In a second of idleness Spark reports batches without figures, under the number of the one to come."""
    pipeline = made()
    pipeline.run()
    row = pipeline.world.row()
    newest = {key: START + timedelta(seconds=15 * (end - 1)) for key, end in ENDS.items()}
    assert row.record_times == {key: moment.timestamp() * 1000 for key, moment in newest.items()}
    latest = max(newest.values()) - timedelta(minutes=2)
    assert row.watermark is not None
    assert START.timestamp() < row.watermark / 1000 <= latest.timestamp()
    assert 0 < row.late_rows <= sum(ENDS.values()) - sum(pipeline.sink.table().values())

    pipeline.world.log.ends = {key: end + 10 for key, end in ENDS.items()}
    pipeline.run()
    again = pipeline.world.row()
    assert again.watermark is not None
    assert again.watermark >= row.watermark
    reports = [report.event_time for report in pipeline.reports if report.event_time is not None]
    assert again.late_rows == sum(event_time.late_rows for event_time in reports)
    assert len(reports) == len(pipeline.reports) - 2, "the first batch of a run has none before it"


@pytest.mark.long
def test_a_task_may_take_longer_than_a_connection_stands_still(
    made: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark opens the file of a partition's changes when a task begins, and writes it when the task ends."""
    undisturbed = made()
    undisturbed.run()
    monkeypatch.setattr(http_server, "STALL_DEADLINE", 0.5)
    slow = replace(made(), function=slowly)
    slow.run()
    assert slow.outcome() == undisturbed.outcome()


def slowly(events: DataFrame, context: StreamContext) -> DataFrame:
    """Count as `stream` does, in two seconds per partition."""
    counted = stream(events, context)
    return counted.mapInArrow(_after_two_seconds, counted.schema)


def _after_two_seconds(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(2)
    yield from batches


def test_a_byte_of_the_state_that_has_changed_ends_the_run_and_changes_no_count(made: Callable[[], Pipeline]) -> None:
    """Spark writes no checksum file beside a file of the state: its own format has them."""
    pipeline = made()
    pipeline.run()
    before = pipeline.outcome()
    (row,) = pipeline.world.table.rows.values()
    assert row.checkpoint is not None
    tree = tree_of(unpacked_checkpoint(row.checkpoint), pipeline.chunks)
    assert not [path for path in tree.files if path.endswith(".crc")]
    for path, file in tree.files.items():
        if path.endswith(".changelog"):
            content = bytearray(pipeline.chunks.chunks[file.id, 0])
            content[-len(content) // 3] ^= 1
            pipeline.chunks.chunks[file.id, 0] = bytes(content)

    pipeline.world.log.ends = {key: end + 10 for key, end in ENDS.items()}
    with pytest.raises(DriverError):
        pipeline.run()
    assert pipeline.outcome() == before


def unpacked_checkpoint(checkpoint: bytes) -> Committed:
    found = unpack_committed(checkpoint)
    assert found is not None
    return found


def dead_from(at: int, call: int) -> None:
    if call >= at:
        raise Killed


Place = Callable[[FenceRow], bool]
"""Where a run is killed: at the first row for which it holds."""


def all_committed(row: FenceRow) -> bool:
    """No record is left, and Spark has not yet planned the batch that closes windows."""
    return row.offsets == ENDS and row.planned_log is None


def closing(row: FenceRow) -> bool:
    """The batch that closes windows is planned."""
    return row.offsets == ENDS and row.planned_log is not None


def kill(pipeline: Pipeline, place: Place) -> None:
    """Run up to a place."""
    is_dead = threading.Event()

    def die(_call: int) -> None:
        if is_dead.is_set() or place(pipeline.world.table.rows[PIPELINE]):
            is_dead.set()
            raise Killed

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever Spark makes of it
        pipeline.run(fault=die)
    assert is_dead.is_set()


@pytest.mark.long
def test_a_run_closes_the_windows_that_its_predecessor_did_not_though_no_record_comes(
    made: Callable[[], Pipeline],
) -> None:
    """The undisturbed run is idle for a while, too; a late record shows the watermark with which that ended."""
    when_idle: list[dict[tuple[int, str], int]] = []

    def grow(pipeline: Pipeline, looks: int) -> None:
        if looks == 20:
            when_idle.append(pipeline.sink.table())
            pipeline.world.log.ends = dict(LATER)

    undisturbed, *killed = pipelines = made(), made(), made()
    for pipeline in pipelines:
        pipeline.state = replace(STATE, output_mode="append")
    for pipeline, place in zip(killed, (all_committed, closing), strict=True):
        kill(pipeline, place)
    before = [pipeline.sink.table() for pipeline in killed]
    for pipeline in pipelines:
        pipeline.reports.clear()
        pipeline.looked = partial(grow, pipeline)
        pipeline.run()

    assert before[0] == before[1]
    assert len(before[0]) < len(when_idle[0])
    assert when_idle[1:] == 2 * when_idle[:1]
    assert [pipeline.outcome() for pipeline in killed] == 2 * [undisturbed.outcome()]
    batches = [[report.records for report in pipeline.reports] for pipeline in pipelines]
    assert batches == [[20, 20, 20, 0, 4, 0], [0, 4, 0], [0, 4, 0]]


def as_they_are(events: DataFrame, _: StreamContext) -> DataFrame:
    """Keep no state."""
    return events.selectExpr("cast(0 as long) minute", "cast(offset as string) key", "cast(1 as long) count")


def test_the_first_batch_without_records_is_the_only_one_where_nothing_is_due(made: Callable[[], Pipeline]) -> None:
    pipeline = made()
    pipeline.function = as_they_are
    for batches in ([20, 20, 20], [0], [0]):
        pipeline.reports.clear()
        pipeline.run()
        assert [report.records for report in pipeline.reports] == batches


def failing_at_seven(events: DataFrame, context: StreamContext) -> DataFrame:
    """Count as `stream` does, and fail for one record."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    bad = F.raise_error(F.concat(F.lit("offset "), F.col("offset"))).cast("binary")
    is_bad = "partition = 0 and offset = 7"
    return stream(events.withColumn("value", F.when(F.expr(is_bad), bad).otherwise(F.col("value"))), context)


def test_a_record_that_fails_is_named_and_then_left_out_of_the_batch_that_failed_and_of_its_state(
    made: Callable[[], Pipeline],
) -> None:
    """The batch is planned by then. Its later records are there, and the offsets reach its end."""
    pipeline, undisturbed = made(), made()
    for each in (pipeline, undisturbed):
        each.looks = 1
        each.world.log.ends = {"t/0": 12, "t/1": 4}
    pipeline.function = failing_at_seven
    with pytest.raises(RecordFailed, match="offset 7"):
        pipeline.run()
    planned = pipeline.world.row().planned
    pipeline.isolate = True
    with pytest.raises(PoisonRecord) as named:
        pipeline.run()
    assert named.value.record == ("t/0", 7)
    assert pipeline.sink.table() == {}
    pipeline.left_out = {"t/0": {(7, NO_EPOCH)}}
    pipeline.run()
    assert pipeline.world.row().offsets == planned == undisturbed.world.log.ends
    undisturbed.run()
    expected = dict(undisturbed.outcome()[1])
    expected[int(START.timestamp()) + 60 * (7 // 4), str(7 % 3)] -= 1
    assert pipeline.outcome()[1] == {place: count for place, count in expected.items() if count}


def only_for_streams(events: DataFrame, context: StreamContext) -> DataFrame:
    """Fail for one record, and for records that are not a stream."""
    if not events.isStreaming:
        raise ValueError("no stream")
    return failing_at_seven(events, context)


def test_code_that_needs_a_stream_ends_with_what_failed_in_it(made: Callable[[], Pipeline]) -> None:
    pipeline = made()
    pipeline.isolate, pipeline.function = True, only_for_streams
    with pytest.raises(RecordFailed, match="offset 7"):
        pipeline.run()


def test_a_run_continues_after_what_was_accepted_as_lost(made: Callable[[], Pipeline]) -> None:
    """Before the claim, and within a run, which ends then: Spark's query cannot move on without a batch."""
    pipeline = made()
    pipeline.looks, pipeline.state = 1, replace(STATE, output_mode="update")
    log = pipeline.world.log
    log.ends = {"t/0": 8, "t/1": 4}
    pipeline.run()
    log.ends, log.begins = {"t/0": 60, "t/1": 20}, {"t/0": 20}
    with pytest.raises(DataLoss) as lost:
        pipeline.run()
    pipeline.world.accept(lost.value.loss, "earliest")
    expired: list[int] = []

    def expire(epoch: int) -> None:
        if not expired:
            expired.append(epoch)
            log.begins["t/0"] = 50

    pipeline.before_write = expire
    with pytest.raises(BatchFailed, match="that was accepted before"):
        pipeline.run()
    committed = pipeline.world.row().offsets["t/0"]
    pipeline.run()
    assert pipeline.world.row().offsets == log.ends
    counted = sum(pipeline.sink.table().values())
    assert counted <= 8 + 20 + (committed - 20) + 10
    assert {start: end for (_, key, start), end in pipeline.world.table.skipped.items() if key == "t/0"} == {
        8: 20,
        committed: 50,
    }


def alarms(events: DataFrame, _: StreamContext) -> DataFrame:
    """Make a row of the last record, when a timer of processing time fires."""
    from pyspark.sql import Row  # noqa: PLC0415 - slow to import
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # noqa: PLC0415 - slow to import

    class Alarm(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - PySpark's names
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - PySpark's names
            yield Row(minute=0, key=key[0], count=1)

        def close(self) -> None:
            pass

    last = events.where("partition = 0 and offset = 39").selectExpr("cast(value as string) key")
    return last.groupBy("key").transformWithState(
        Alarm(), "minute long, key string, count long", outputMode="Update", timeMode="ProcessingTime"
    )


def test_timers_fire_though_no_record_comes(made: Callable[[], Pipeline]) -> None:
    """The next run serves the checkpoint at another location than the run that wrote the schemas of the state."""
    pipeline = made()
    pipeline.function, pipeline.looks = alarms, 2
    kill(pipeline, all_committed)
    assert pipeline.sink.table() == {}
    pipeline.run()
    assert pipeline.sink.table() == {(0, "0"): 1}


@pytest.mark.long
def test_a_driver_that_is_frozen_before_its_commit_is_refused(made: Callable[[], Pipeline]) -> None:
    undisturbed, pipeline = made(), made()
    undisturbed.run()
    written: list[int] = []

    def replace_driver(epoch: int) -> None:
        written.append(epoch)
        if len(written) == 2:
            pipeline.world.take_over()

    pipeline.before_write = replace_driver
    with pytest.raises(Fenced):
        pipeline.run()
    assert isinstance(pipeline.ended[0], Fenced)
    assert written == [1, 1]
    pipeline.before_write = lambda _: None
    pipeline.run()
    assert pipeline.outcome() == undisturbed.outcome()


def with_a_query(events: DataFrame) -> DataFrame:
    """Start what would read the records beside the run."""
    events.writeStream.format("noop").start()
    return events


@pytest.mark.parametrize(
    ("function", "mode", "message"),
    [
        (lambda _events, _context: None, "update", "returned NoneType, not a DataFrame"),
        (lambda events, _context: events.sparkSession.range(1), "update", "is not streaming"),
        (lambda events, _context: events.groupBy("value").count(), "append", "watermark"),
        (lambda events, _context: events, "complete", "output mode 'complete' is not 'append' or 'update'"),
        (lambda _events, _context: 1 / 0, "update", "division by zero"),
        (lambda events, _context: events.select("absent"), "update", "absent"),
        (lambda events, _context: with_a_query(events), "update", "stream started a query of its own"),
    ],
)
def test_a_stream_that_cannot_run_is_refused_before_the_claim(
    made: Callable[[], Pipeline], function: Any, mode: str, message: str
) -> None:
    pipeline = made()
    with pytest.raises(BadSpec, match=message):
        StatefulQuery(
            spark=pipeline.spark, config=config(1), state=replace(STATE, output_mode=mode), stream=function,
            finish=None, sinks={"s": pipeline.sink}, properties={}, records=reading,
        )  # fmt: skip


def by_partition(events: DataFrame, _: StreamContext) -> DataFrame:
    """Count with another key than `stream` does."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    counted = events.withWatermark("timestamp", "2 minutes").groupBy(F.window("timestamp", "1 minute"), "partition")
    return counted.count().select(F.lit(0).alias("minute"), F.lit("").alias("key"), "count")


def without_duplicates(events: DataFrame, _: StreamContext) -> DataFrame:
    """Have another operator than `stream`."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    once = events.dropDuplicates(["partition", "offset"])
    return once.select(F.lit(0).alias("minute"), F.lit("").alias("key"), F.col("offset").alias("count"))


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "named"),
    [(by_partition, "operator StateStoreSave.*key_schema"), (without_duplicates, "stateStoreSave.*dedupe")],
)
def test_code_that_does_not_fit_the_state_is_refused_and_changes_nothing(
    made: Callable[[], Pipeline], function: Any, named: str
) -> None:
    pipeline = made()
    pipeline.run()
    before = pipeline.world.row()
    pipeline.world.log.ends = {key: end + 10 for key, end in ENDS.items()}
    pipeline.function = function
    with pytest.raises(BadSpec, match=f"(?s){named}") as refused:
        pipeline.run()
    assert refused.value.reason is Reason.STATE_INCOMPATIBLE
    row = pipeline.world.row()
    assert (row.offsets, row.checkpoint) == (before.offsets, before.checkpoint)
    assert (row.planned, row.planned_log) == (before.offsets, None)
    pipeline.function = stream
    pipeline.run()
    assert pipeline.world.row().offsets == pipeline.world.log.ends


def test_a_warm_up_writes_nothing_and_compares_the_columns(made: Callable[[], Pipeline]) -> None:
    pipeline = made()
    query = StatefulQuery(
        spark=pipeline.spark, config=config(1), state=STATE, stream=stream, finish=lambda rows, _: {"s": rows},
        sinks={"s": pipeline.sink}, properties={}, records=reading,
    )  # fmt: skip
    query.warm()
    query.check()
    assert pipeline.sink.table() == {}


def test_a_run_whose_query_was_planned_before_leaves_what_any_run_does(made: Callable[[], Pipeline]) -> None:
    usual, checked = made(), made()
    checked.checks = True
    usual.run()
    with suppress(Exception):  # whatever Spark makes of it
        checked.run(fault=partial(dead_from, 9))
    checked.run()
    assert checked.outcome() == usual.outcome()
