"""A stateful query over the stream of Kafka's records; log and reader are made here, Spark and its checkpoint are real.

Each run of a query ends by an exception, as a run of the driver does.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.batch import Batch, Range, between
from fencepost.contract import Loss, Reason
from fencepost.errors import ATTEMPT, DataLoss, as_worker_error, begin_attempt
from fencepost.spark import failures
from fencepost.spark.stream_source import StreamSource, offsets_of, offsets_text

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LIMIT = 50
"""Records of a partition in one batch."""
KEYS = 7
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}


class Finished(Exception):
    """Everything is read."""


class Crash(Exception):
    """The run ends here."""


@dataclass
class Log:
    """A log, and the plans of batches in it. `asked` has the batches that Spark asked for."""

    ends: dict[str, int]
    begin: dict[str, int] = field(default_factory=dict)
    before: Callable[[int], None] = lambda _: None
    """Called before the nth batch of a run is given to Spark."""
    asked: list[tuple[Mapping[str, int], Mapping[str, int]]] = field(default_factory=list)

    def start(self) -> Mapping[str, int]:
        return {key: self.begin.get(key, 0) for key in self.ends}

    def end(self, start: Mapping[str, int]) -> Mapping[str, int]:
        if start == self.ends:
            raise Finished
        return {key: min(end, start.get(key, 0) + LIMIT) for key, end in self.ends.items()}

    def batch(self, start: Mapping[str, int], end: Mapping[str, int]) -> Batch:
        self.asked.append((start, end))
        self.before(len(self.asked))
        return between(start, end)


def reading(
    ranges: Sequence[Range],
    *,
    reached: Callable[[str, int], object],
    seen: Callable[[str, int, int], object],
    fault: Callable[[Range], None] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """One record per offset."""
    from fencepost.testing import record_batch  # noqa: PLC0415

    for one in ranges:
        fault(one)
        yield record_batch(
            [
                {"partition": one.partition, "offset": offset, "value": str(offset % KEYS).encode()}
                for offset in range(one.start, one.until)
            ]
        )
        reached(one.key, one.until + 1)
        seen(one.key, one.until - 1, 3)


def crash_once(flag: str, part: Range) -> None:
    """Fail in the task that reads offset 60 of partition 0, the first time."""
    if part.partition == 0 and part.start <= 60 < part.until and not Path(flag).exists():
        Path(flag).touch()
        raise as_worker_error(
            DataLoss(
                "gone",
                reason=Reason.OFFSET_OUT_OF_RANGE,
                loss=Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges={"t/0": (60, 61)}),
            )
        )


def expected(ends: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(str(offset % KEYS) for end in ends.values() for offset in range(end)))


@dataclass
class Counts:
    """What the query has counted by key: it returns each count that a batch changes."""

    before_commit: Callable[[int], None] = lambda _: None
    """Called with the number of a batch after its state is written, and before the batch is committed."""
    found: dict[str, int] = field(default_factory=dict)
    error: Exception | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        rows.sparkSession.sparkContext.setLocalProperty(ATTEMPT, begin_attempt())
        try:
            written = rows.collect()
        except Exception as error:
            self.error = error
            raise
        self.before_commit(batch)
        self.found |= {row["value"].decode(): row["count"] for row in written}


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    from pyspark import cloudpickle  # noqa: PLC0415

    # The workers do not find the tests on their path.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    made = spark.newSession()
    for name, value in SETTINGS.items():
        made.conf.set(name, value)
    return made


def run(frame: DataFrame, sink: Counts, checkpoint: Path) -> None:
    """Count by value until something is raised."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    counted = frame.groupBy("value").count()
    writer = counted.writeStream.outputMode("update").foreachBatch(sink)
    query = writer.option("checkpointLocation", f"file://{checkpoint}").start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(120)


def crash_at(number: int) -> Callable[[int], None]:
    def crash(now: int) -> None:
        if now == number:
            raise Crash

    return crash


def test_a_query_that_ends_anywhere_counts_each_record_once(session: SparkSession, tmp_path: Path) -> None:
    """Injected: an end before a batch is read, in a task, and after the state of a batch is written."""
    ends = {"t/0": 130, "t/1": 95}
    checkpoint = tmp_path / "checkpoint"
    task_fault = partial(crash_once, str(tmp_path / "flag"))
    asked: list[list[tuple[Mapping[str, int], Mapping[str, int]]]] = []
    found: dict[str, int] = {}
    for before, fault, before_commit in (
        (crash_at(2), None, crash_at(-1)),
        (crash_at(-1), task_fault, crash_at(-1)),
        (crash_at(-1), None, crash_at(1)),
        (crash_at(-1), None, crash_at(-1)),
    ):
        log, sink = Log(ends, before=before), Counts(before_commit)
        read = partial(reading, fault=fault) if fault else reading
        run(StreamSource(session, log, read=read).frame(), sink, checkpoint)
        asked.append(log.asked)
        found |= sink.found

    assert found == expected(ends)
    second = ({"t/0": 50, "t/1": 50}, {"t/0": 100, "t/1": 95})
    assert [batches[0] for batches in asked] == [({"t/0": 0, "t/1": 0}, {"t/0": 50, "t/1": 50}), *3 * [second]]


def test_what_a_plan_raises_is_there_as_it_was_raised(session: SparkSession, tmp_path: Path) -> None:
    lost = DataLoss("gone", reason=Reason.TOPIC_RECREATED)

    def lose(_batch: int) -> None:
        raise lost

    source = StreamSource(session, Log({"t/0": 10}, before=lose), read=reading)
    run(source.frame(), Counts(), tmp_path)
    assert source.failure is lost


def test_what_a_task_raises_crosses_by_its_type(session: SparkSession, tmp_path: Path) -> None:
    sink = Counts()
    fault = partial(crash_once, str(tmp_path / "flag"))
    source = StreamSource(session, Log({"t/0": 130}), read=partial(reading, fault=fault))
    run(source.frame(), sink, tmp_path / "checkpoint")
    assert sink.error is not None
    error = failures.of_job(sink.error, is_warm_up=False)
    assert isinstance(error, DataLoss)
    assert error.loss == Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges={"t/0": (60, 61)})
    assert source.failure is None


def test_the_first_batch_is_repeated_from_where_the_plan_starts(session: SparkSession, tmp_path: Path) -> None:
    """A batch without a batch before it has no start in the checkpoint."""
    sink = Counts()
    run(
        StreamSource(session, Log({"t/0": 30}, begin={"t/0": 20}, before=crash_at(1)), read=reading).frame(),
        sink,
        tmp_path,
    )
    log = Log({"t/0": 30}, begin={"t/0": 20})
    run(StreamSource(session, log, read=reading).frame(), sink, tmp_path)
    assert log.asked == [({"t/0": 20}, {"t/0": 30})]
    assert sum(sink.found.values()) == 10


def test_counts_are_those_of_the_newest_batch_however_often_it_is_read(session: SparkSession, tmp_path: Path) -> None:
    """The query reads the stream twice, and Spark asks for the slices of each."""
    log, sink = Log({"t/0": 130, "t/1": 95}), Counts()
    source = StreamSource(session, log, read=reading)
    totals: list[Any] = []
    sink.before_commit = lambda _: totals.append((source.counts.total()[0], source.counts.reached()))
    frame = source.frame()
    run(frame.union(frame), sink, tmp_path)
    assert totals == [
        (100, {"t/0": 51, "t/1": 51}), (95, {"t/0": 101, "t/1": 96}), (30, {"t/0": 131}),
    ]  # fmt: skip
    assert sink.found == {key: 2 * count for key, count in expected(log.ends).items()}
    assert len(log.asked) == 3


def test_a_large_batch_has_several_slices(session: SparkSession) -> None:
    source = StreamSource(session, Log({"t/0": 4_000, "t/1": 6_000}), read=reading)
    rows = source.partitions(offsets_text({"t/0": 0, "t/1": 0}), offsets_text({"t/0": 4_000, "t/1": 6_000}))
    assert len(rows) == session.sparkContext.defaultParallelism > 1


def test_equal_offsets_have_equal_texts() -> None:
    assert offsets_text({"t/1": 2, "t/0": 1}) == offsets_text({"t/0": 1, "t/1": 2}) == '{"t/0":1,"t/1":2}'
    assert offsets_of('{"t/0":1,"t/1":2}') == {"t/1": 2, "t/0": 1}


@pytest.mark.parametrize("text", ["5", '{"t/0":"1"}', '{"t/0":null}', "{"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"offsets|Expecting"):
        offsets_of(text)
