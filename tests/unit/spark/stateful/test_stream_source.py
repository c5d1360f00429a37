"""A stateful query over the stream of Kafka's records; Spark and its checkpoint are real, log and reader are not.

Each run of a query ends by an exception, as a run of the driver does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fakes import streamed_log
from fakes.streamed_log import Counts, Log, expected, reading, start
from fencepost.batch import Range
from fencepost.contract import Loss, Reason
from fencepost.errors import BadSpec, DataLoss, as_worker_error
from fencepost.spark import failures
from fencepost.spark.stateful.stream_source import StreamSource, end_of, offsets_of, offsets_text, with_end
from fencepost.spark.tasks.slice_row import SliceRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Crash(Exception):
    """The run ends here."""


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


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    from pyspark import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    return streamed_log.prepared(spark)


def run(frame: DataFrame, sink: Counts, checkpoint: Path) -> None:
    """Count by value until something is raised."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    query = start(frame, sink, str(checkpoint))
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


@pytest.mark.long
def test_a_query_that_is_killed_counts_each_record_once(session: SparkSession, tmp_path: Path) -> None:
    """SIGKILL, with the state of batch 1 written and the batch not committed."""
    ends = {"t/0": 130, "t/1": 95}
    command = [sys.executable, "-m", streamed_log.__name__, str(tmp_path), json.dumps(ends), "1"]
    own_jvm = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    with subprocess.Popen(command, env=own_jvm, stdout=subprocess.PIPE, text=True) as query:
        assert query.stdout is not None
        assert query.stdout.readline() == "written\n"
        query.kill()

    log, sink = Log(ends), Counts()
    run(StreamSource(session, log, read=reading).frame(), sink, tmp_path)
    assert log.asked[0] == ({"t/0": 50, "t/1": 50}, {"t/0": 100, "t/1": 95})
    assert sink.found == expected(ends)


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


def test_the_first_batch_of_a_run_has_a_task_though_it_has_no_records(session: SparkSession) -> None:
    """Found: nothing looked at the scratch volume before RocksDB's loader waited for itself."""
    source, here = StreamSource(session, Log({"t/0": 4}), read=reading), offsets_text({"t/0": 4})
    (row,) = source.partitions(here, f"{here} ")
    assert SliceRow.of_json(row).ranges == ()
    assert source.partitions(here, here) == []


def test_equal_offsets_have_equal_texts() -> None:
    assert offsets_text({"t/1": 2, "t/0": 1}) == offsets_text({"t/0": 1, "t/1": 2}) == '{"t/0":1,"t/1":2}'
    assert offsets_of('{"t/0":1,"t/1":2}') == {"t/1": 2, "t/0": 1}


def test_the_end_of_a_batch_is_read_and_moved_in_sparks_log_of_it() -> None:
    """Each use of the events is a source of Spark's, and all have the same offsets."""
    for lines in (1, 2):
        log = "\n".join(["v1", '{"batchWatermarkMs":0}', *['{"t/0":1}'] * lines])
        assert end_of(log) == {"t/0": 1}
        assert with_end(log, {"t/0": 5, "t/1": 2}) == log.replace('{"t/0":1}', '{"t/0":5,"t/1":2}')


@pytest.mark.parametrize("sources", ['{"t/0":1}\n5', "0", "-", '{"t/0":1}\n{"t/0":2}'])
def test_another_source_beside_the_events_is_refused(sources: str) -> None:
    with pytest.raises(BadSpec, match="another streaming source"):
        end_of(f"v1\n{{}}\n{sources}")


@pytest.mark.parametrize("text", ["5", '{"t/0":"1"}', '{"t/0":null}', "{"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"offsets|Expecting"):
        offsets_of(text)
