"""`StreamTest` runs a stateful function in memory, and shows how its rows depend on where runs end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from fencepost import BadSpec
from fencepost.testing.streams import StreamTest, disordered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import BatchContext, StreamContext

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(minutes: float, key: str = "a", partition: int = 0) -> dict[str, Any]:
    return {"timestamp": START + timedelta(minutes=minutes), "value": key.encode(), "partition": partition}


def per_minute(events: DataFrame, context: StreamContext) -> DataFrame:
    """Count by minute; an event is late after two minutes."""
    assert context.args == ("x",)
    minute = f.window("timestamp", "1 minute").alias("minute")
    counts = events.withWatermark("timestamp", "2 minutes").groupBy(minute, f.col("value").cast("string").alias("key"))
    return counts.count().withColumn("minute", f.col("minute.start"))


def by_size(rows: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:
    assert context.args == ("x",)
    return {"all": rows, "many": rows.where("count > 1").select("key", "count")}


def test_each_sink_gets_the_rows_of_each_batch_and_none_of_late_records(spark: SparkSession) -> None:
    after_a_gap = {**at(0.3), "offset": 5_000}
    batches = [[at(0.1), at(0.2, "b", 1)], [after_a_gap, at(9, "b", 1)], [at(9.1, "b", 1)], [at(0.4), at(10)]]
    rows = StreamTest(spark, per_minute, finish=by_size, sinks=("all", "many"), args=("x",)).rows(batches)
    assert [(round((row["minute"] - START) / timedelta(minutes=1)), row["count"]) for row in rows["all"]] in (
        [(0, 1), (0, 1), *second, (9, 2), (10, 1)] for second in ([(0, 2), (9, 1)], [(9, 1), (0, 2)])
    )
    assert rows["many"] == [{"key": "a", "count": 2}, {"key": "b", "count": 2}]


def test_workers_run_the_python_of_the_test(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: pytest of an environment that is not activated, and another python3 on the PATH."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3-without-packages")
    assert StreamTest(spark, per_minute, args=("x",)).rows([[at(0)]])["rows"][0]["count"] == 1


def test_append_gives_the_windows_that_the_watermark_closes(spark: SparkSession) -> None:
    test = StreamTest(spark, per_minute, args=("x",), output_mode="append")
    rows = test.rows([[at(0), at(0.1)], [at(9)]])["rows"]
    assert [(row["minute"], row["count"]) for row in rows] == [(START, 2)]


@pytest.mark.long
def test_counts_of_late_and_unordered_records_do_not_depend_on_restarts(spark: SparkSession) -> None:
    records = [at(number / 4, key="abc"[number % 3], partition=number % 2) for number in range(60)]
    test = StreamTest(spark, per_minute, args=("x",), partitions=2)
    test.check_restarts(disordered(records, batch=15, late=0.2, by=40), cuts=6, seed=7)


def test_rows_that_depend_on_the_run_are_shown_with_the_seed(spark: SparkSession) -> None:
    def of_run(events: DataFrame, context: StreamContext) -> DataFrame:
        return events.groupBy("partition").agg(f.count("*").alias("n")).withColumn("run", f.lit(context.epoch))

    with pytest.raises(AssertionError) as caught:
        StreamTest(spark, of_run).check_restarts([[at(0)], [at(1), at(2, partition=1)]], cuts=1, seed=7)
    assert str(caught.value).splitlines() == [
        "the rows depend on where runs end (seed 7)",
        "  runs ended after batch 1 was committed",
        "  sink 'rows', missing after restarts: {'n': 1, 'partition': 1, 'run': 1}",
        "  sink 'rows', missing after restarts: {'n': 2, 'partition': 0, 'run': 1}",
        "  sink 'rows', added after restarts: {'n': 1, 'partition': 1, 'run': 2}",
        "  sink 'rows', added after restarts: {'n': 2, 'partition': 0, 'run': 2}",
    ]


def test_a_batch_whose_rows_were_written_before_the_cut_is_repeated(spark: SparkSession) -> None:
    """Both have written its rows; by key the later ones stay."""
    tokens: list[tuple[bool, int]] = []

    def noted(rows: DataFrame, context: BatchContext) -> DataFrame:
        if context.offsets:
            tokens.append((context.is_repeated, context.token))
        return rows.withColumn("written_at", f.lit(context.token))

    with pytest.raises(AssertionError, match=r"runs ended after batch 1 was planned, batch 1 was written\n"):
        StreamTest(spark, per_minute, finish=noted, args=("x",)).check_restarts([[at(0)]], cuts=2)
    assert [is_repeated for is_repeated, _ in tokens] == [False, True, True]
    assert tokens == sorted(tokens, key=lambda batch: batch[1])


def test_a_function_that_is_no_stream_is_refused_as_in_a_run(spark: SparkSession) -> None:
    with pytest.raises(BadSpec, match="is not streaming"):
        StreamTest(spark, lambda events, _: events.sparkSession.range(1)).rows([[at(0)]])


@pytest.mark.parametrize(
    ("batches", "message"),
    [([], "no record"), ([[]], "no record"), ([[{"offset": 4}], [{"offset": 4}]], "offset 4 of test/0 follows")],
)
def test_batches_that_no_partition_holds_are_refused(batches: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StreamTest(None, per_minute).rows(batches)  # type: ignore[arg-type]


def test_disordered_records_are_all_there_and_the_seed_decides_their_order() -> None:
    records = [{"value": str(number).encode()} for number in range(1000)]
    batches = disordered(records, batch=300, late=0.1, by=200, shuffled=5, seed=3)
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]
    arrived = [int(record["value"]) for batch in batches for record in batch]
    assert sorted(arrived) == list(range(1000))
    far = sum(number < max(arrived[:place], default=0) - 20 for place, number in enumerate(arrived))
    assert 50 < far < 120
    assert batches == disordered(records, batch=300, late=0.1, by=200, shuffled=5, seed=3)
    assert batches != disordered(records, batch=300, late=0.1, by=200, shuffled=5, seed=4)
    assert disordered(records, batch=1000, late=0, shuffled=0) == [records]
