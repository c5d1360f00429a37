"""The state of pipelines that ran on real Spark, read by Spark's state reader; log, fence and chunks are in memory."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from fencepost.context import StreamContext
from fencepost.errors import BatchFailed
from fencepost.spark.stateful.state_reader import answered
from fencepost.state.progress import unpack_committed
from fencepost.state.questions import (
    Answer,
    Export,
    ExportFormat,
    OperatorsQuestion,
    Refusal,
    Request,
    Rows,
    RowsQuestion,
)
from fencepost.state.reading import readable
from fencepost_cli.errors import CliError
from fencepost_cli.stores.state_reader import ask_state
from present import present
from unit.spark.stateful import test_stateful_run
from unit.spark.stateful.test_stateful_run import ENDS, STATE, Pipeline, made  # noqa: F401 - a fixture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def by_value(events: DataFrame, _: StreamContext) -> DataFrame:
    """Count by value, which is bytes."""
    return events.groupBy("value").count().selectExpr("0L minute", "cast(value as string) key", "count")


def joined(events: DataFrame, _: StreamContext) -> DataFrame:
    """Join the two partitions by offset."""
    left = events.where("partition = 0").selectExpr("offset o", "timestamp t").withWatermark("t", "5 hours")
    right = events.where("partition = 1").selectExpr("offset p", "timestamp u").withWatermark("u", "5 hours")
    within = left.join(right, _expression("o = p and u between t - interval 1 hour and t + interval 1 hour"))
    return within.selectExpr("0L minute", "cast(o as string) key", "1L count")


def visits(events: DataFrame, _: StreamContext) -> DataFrame:
    """Keep of each value how often it was seen, and where."""
    from pyspark.sql import Row  # noqa: PLC0415 - slow to import
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # noqa: PLC0415 - slow to import

    class Visits(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._times = handle.getValueState("times", "n long")
            self._offsets = handle.getListState("offsets", "partition int, offset long")
            self._last = handle.getMapState("last", "partition int", "offset long")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - PySpark's names
            times = self._times.get()[0] if self._times.exists() else 0
            for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
                times += 1
                self._offsets.appendValue((row.partition, row.offset))
                self._last.updateValue((row.partition,), (row.offset,))
            self._times.update((times,))
            self._handle.registerTimer(FAR)
            yield Row(minute=0, key=key[0], count=times)

        def close(self) -> None:
            pass

    keyed = events.selectExpr("cast(value as string) key", "partition", "offset").groupBy("key")
    return keyed.transformWithState(
        Visits(), "minute long, key string, count long", outputMode="Update", timeMode="ProcessingTime"
    )


FAR = 4102444800000
"""When the timers fire, in ms: in 2100."""


def _expression(text: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    return F.expr(text)


def counts(ends: dict[str, int]) -> dict[str, int]:
    """Return how often each value is in the log up to these ends."""
    return dict(Counter(str(offset % 3) for end in ends.values() for offset in range(end)))


class Reading:
    """Asks about what a pipeline has committed, with the Spark of the test."""

    def __init__(self, pipeline: Pipeline, folder: Path, checkpoint: bytes | None = None) -> None:
        self.pipeline = pipeline
        self.folder = folder
        self.committed = present(unpack_committed(checkpoint or pipeline.world.row().checkpoint))

    def answer(self, **asked: Any) -> Answer:
        spark, failed = self.pipeline.spark, list[Exception]()
        chunks = self.pipeline.chunks
        with readable(self.committed, chunks, folder=self.folder / "files", patience=1, failed=failed.append) as served:
            hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()
            for name, value in served.settings.items():
                hadoop.set(name.removeprefix("spark.hadoop."), value)
            request = Request(location=served.location, settings={}, scratch=str(self.folder), **asked)
            found = answered(Request.from_json(request.to_json()), lambda _: spark)
        assert failed == []
        return Answer.from_json(found.to_json())

    def rows(self, **asked: Any) -> Rows:
        answer = self.answer(rows=RowsQuestion(**asked))
        assert answer.refusal is None
        return present(answer.rows)

    def refusal(self, **asked: Any) -> Refusal:
        return present(self.answer(rows=RowsQuestion(**asked)).refusal)


@pytest.mark.long
def test_counts_by_key_are_those_of_the_log(made: Callable[[], Pipeline], tmp_path: Path) -> None:  # noqa: F811
    pipeline = made()
    pipeline.function = by_value
    pipeline.run()
    reading = Reading(pipeline, tmp_path)
    before = pipeline.world.row()

    (operator,) = present(reading.answer(operators=OperatorsQuestion(counted=True)).operators)
    assert (operator.id, operator.name, operator.partitions) == (0, "stateStoreSave", STATE.partitions)
    assert [(store.name, store.rows) for store in operator.stores] == [("default", 3)]

    found = reading.rows()
    assert found.columns == (("key", "value"), ("value", "count"), ("partition_id",))
    rows = [json.loads(row) for row in found.rows]
    assert {row["key"]["value"]: row["value"]["count"] for row in rows} == counts(ENDS)
    assert not found.more
    assert reading.rows(limit=2).more
    (one,) = reading.rows(operator=0, store="default", key={"value": "1"}).rows
    assert json.loads(one)["value"] == {"count": counts(ENDS)["1"]}

    assert reading.refusal(operator=7).message == "the state has no operator 7; it has: 0 (stateStoreSave)"
    assert "has no store 'left'; it has: default" in reading.refusal(store="left").message
    assert "--key name: the key has no such field; it has: value" in reading.refusal(key={"name": "x"}).message

    pipeline.world.log.ends = {key: end + 10 for key, end in ENDS.items()}
    pipeline.run()
    assert present(before.checkpoint) != pipeline.world.row().checkpoint
    rows = [json.loads(row) for row in Reading(pipeline, tmp_path, before.checkpoint).rows().rows]
    assert {row["key"]["value"]: row["value"]["count"] for row in rows} == counts(ENDS)

    answer, sizes = ask_state(
        Reading(pipeline, tmp_path).committed, pipeline.chunks,
        RowsQuestion(export=Export(format=ExportFormat.JSONL, folder=str(tmp_path / "jsonl"))),
    )  # fmt: skip
    assert (present(answer.rows).exported, set(sizes)) == (3, {0})
    exported = [
        json.loads(line) for file in (tmp_path / "jsonl").glob("*.json") for line in file.read_text().splitlines()
    ]
    assert {row["key"]["value"]: row["value"]["count"] for row in exported} == counts(pipeline.world.log.ends)
    with pytest.raises(CliError, match="no operator 7"):
        ask_state(Reading(pipeline, tmp_path).committed, pipeline.chunks, RowsQuestion(operator=7))


@pytest.mark.long
def test_windows_are_as_they_were_last_written(made: Callable[[], Pipeline], tmp_path: Path) -> None:  # noqa: F811
    pipeline = made()
    pipeline.run()
    reading = Reading(pipeline, tmp_path)
    rows = [json.loads(row) for row in reading.rows().rows]
    starts = {f"2026-01-01T00:{minute:02}:00.000Z": 1767225600 + 60 * minute for minute in range(60)}
    found = {(starts[row["key"]["window"]["start"]], row["key"]["value"]): row["value"]["count"] for row in rows}
    table = pipeline.sink.table()
    assert found == {key: table[key] for key in found}
    assert max(table) in found
    (one,) = reading.rows(key={"window.start": "2026-01-01 00:09:00", "value": "1"}).rows
    assert json.loads(one) in rows

    folder = tmp_path / "parquet"
    exported = reading.rows(export=Export(format=ExportFormat.PARQUET, folder=str(folder)))
    assert exported.exported == len(rows) == pq.read_table(folder).num_rows


@pytest.mark.long
def test_each_variable_of_a_processor_is_a_store(made: Callable[[], Pipeline], tmp_path: Path) -> None:  # noqa: F811
    pipeline = made()
    pipeline.function = visits
    pipeline.run()
    reading = Reading(pipeline, tmp_path)
    (operator,) = present(reading.answer(operators=OperatorsQuestion(counted=True)).operators)
    stores = {store.name: store.rows for store in operator.stores}
    assert stores == {"last": 6, "offsets": sum(ENDS.values()), "times": 3, "timers": 3}

    times = [json.loads(row) for row in reading.rows(store="times").rows]
    assert {row["key"]["key"]: row["value"]["n"] for row in times} == counts(ENDS)
    offsets = reading.rows(store="offsets", key={"key": "1"})
    assert len(offsets.rows) == counts(ENDS)["1"]
    timers = [json.loads(row) for row in reading.rows(store="timers").rows]
    assert {row["expiration_timestamp_ms"] for row in timers} == {FAR}


def test_each_side_of_a_join_is_a_store(
    made: Callable[[], Pipeline],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(test_stateful_run, "STATE", replace(STATE, output_mode="append"))
    pipeline = made()
    pipeline.function = joined
    pipeline.run()
    reading = Reading(pipeline, tmp_path)
    assert "more than one store; it has: left, right" in reading.refusal().message
    left, right = ([json.loads(row)["value"] for row in reading.rows(store=side).rows] for side in ("left", "right"))
    assert sorted(row["o"] for row in left) == list(range(ENDS["t/0"]))
    assert sorted(row["p"] for row in right) == list(range(ENDS["t/1"]))


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            ": o.a.SparkException: Job aborted due to stage failure: Total size of serialized results of 2 tasks",
            "lower --limit, or export them",
        ),
        (
            "[USER_RAISED_EXCEPTION] Total size of serialized results of 2 tasks: maxResultSize",
            "see `fencepost state show` for what there is",
        ),
    ],
)
def test_state_that_an_error_quotes_decides_no_remedy(tmp_path: Path, message: str, remedy: str) -> None:
    def start(_: Request) -> SparkSession:
        raise BatchFailed(message)

    found = answered(Request(location="", settings={}, scratch=str(tmp_path)), start)
    assert present(found.refusal).remedy == remedy
