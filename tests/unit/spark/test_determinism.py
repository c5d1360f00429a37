"""`BatchTest.assert_deterministic` finds each way in which rows can depend on more than the records."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

import fencepost
from fencepost.errors import BadSpec
from fencepost.testing import BatchTest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import BatchContext, RecordContext

RECORDS = [
    {"partition": number % 2, "offset": number // 2, "key": f"k{number % 3}".encode(), "value": str(number).encode()}
    for number in range(6)
]
AGAIN = "what changes from one attempt to the next"
CLOCK = "the clock"
SEED = "Python's hash seed"
ORDER = "the order in which tasks read"
CUTS = "where batches are cut"
COUNTER = itertools.count()


def with_column(column: Callable[[], Any]) -> Callable[[DataFrame, BatchContext], DataFrame]:
    """A transform of one row per record, with this column."""

    def transform(batch: DataFrame, context: BatchContext) -> DataFrame:
        assert context.token
        return batch.select("topic", "partition", "offset", "key", column().alias("found"))

    return transform


order_of_a_set = f.udf(lambda key: ",".join({key.decode(), *map(str, range(20))}), StringType())
todays_date = f.udf(lambda key: f"{key!r} {date.today()}", StringType())  # noqa: DTZ011 - what is found


def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    number = itertools.count()
    for batch in batches:
        found = pa.array([next(number) for _ in range(batch.num_rows)])
        yield pa.RecordBatch.from_arrays([batch["offset"], batch["partition"], found], ["offset", "partition", "found"])


def by_place(batch: DataFrame, context: BatchContext) -> DataFrame:
    assert context.token
    return batch.mapInArrow(numbered, "offset long, partition int, found long")


def count(batch: DataFrame, context: BatchContext) -> DataFrame:
    assert context.token
    return batch.groupBy("partition").count()


ONE_OF_EACH_CAUSE = [
    (with_column(f.uuid), AGAIN),
    (with_column(f.current_date), CLOCK),
    (with_column(lambda: order_of_a_set("key")), SEED),
    (by_place, ORDER),
    (count, CUTS),
]
MORE = [
    (with_column(f.current_timestamp), AGAIN),
    (with_column(lambda: f.lit(time.time())), AGAIN),
    (with_column(f.rand), AGAIN),
    (with_column(lambda: f.lit(next(COUNTER))), AGAIN),
    (with_column(lambda: f.lit(dt.datetime.now(UTC).year)), CLOCK),
    (with_column(lambda: f.lit(date.today())), CLOCK),  # noqa: DTZ011 - what is found
    (with_column(lambda: todays_date("key")), CLOCK),
    (with_column(lambda: f.expr("date_trunc('year', now())")), CLOCK),
    (with_column(lambda: f.lit(hash("shop"))), CLOCK),
    (with_column(lambda: f.rand(1)), ORDER),
]


@pytest.mark.parametrize(
    ("transform", "cause"), [*ONE_OF_EACH_CAUSE, *(pytest.param(*each, marks=pytest.mark.long) for each in MORE)]
)
def test_rows_that_depend_on_more_than_the_records_are_found(spark: SparkSession, transform: Any, cause: str) -> None:
    with pytest.raises(AssertionError, match="depends on") as caught:
        BatchTest(spark, transform).assert_deterministic(RECORDS)
    assert str(caught.value).startswith(f"the output depends on {cause}"), caught.value


def test_the_message_has_the_fewest_records_and_the_rows(spark: SparkSession) -> None:
    def one_is_random(batch: DataFrame, context: BatchContext) -> DataFrame:
        assert context.token
        rolled = f.when(f.expr("value = X'33'"), f.lit(random.random())).otherwise(0.0)
        return batch.select("partition", "offset", rolled.alias("found"))

    with pytest.raises(AssertionError) as caught:
        BatchTest(spark, one_is_random).assert_deterministic(RECORDS)
    first, shown, record, before, after = str(caught.value).splitlines()
    assert AGAIN in first
    assert shown.strip() == "input: test/1 [1, 2)"
    assert record.strip() == "test/1@1: key b'k0', value b'3'"
    assert before.strip().startswith("only at first: {'found': 0.")
    assert after.strip().startswith("only afterwards: {'found': 0.")


def test_a_transform_of_single_records_is_deterministic(spark: SparkSession) -> None:
    key = f.col("key").cast("string")
    test = BatchTest(spark, with_column(lambda: f.concat(key, f.lit(dt.date(2026, 1, 1)))))
    test.assert_deterministic(RECORDS)
    assert test.rows(RECORDS)["rows"][0]["found"] == "k02026-01-01"


def test_a_pinned_state_is_the_same_in_each_way(spark: SparkSession) -> None:
    names = spark.createDataFrame([(b"k0", "zero"), (b"k1", "one")], "key binary, name string")

    def named(batch: DataFrame, context: BatchContext) -> DataFrame:
        return batch.join(context.state("names"), "key").select("partition", "offset", "name")

    test = BatchTest(spark, named, states={"names": names})
    test.assert_deterministic(RECORDS)
    assert {row["name"] for row in test.rows(RECORDS)["rows"]} == {"zero", "one"}
    with pytest.raises(BadSpec, match="no 'names'"):
        BatchTest(spark, named).rows(RECORDS)


@fencepost.record_batches
def of_records(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
    assert context.token
    return batch.select(["topic", "partition", "offset", "key"])


@fencepost.record_batches
def of_records_by_a_set(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
    assert context.token
    joined = [",".join({str(key), *map(str, range(20))}) for key in batch["key"].to_pylist()]
    return pa.RecordBatch.from_arrays([batch["offset"], pa.array(joined)], ["offset", "found"])


@fencepost.record_batches
def of_records_by_the_day(batch: pa.RecordBatch, context: RecordContext) -> pa.RecordBatch:
    assert context.token
    days = [str(dt.datetime.now(UTC).date())] * batch.num_rows
    return pa.RecordBatch.from_arrays([batch["offset"], pa.array(days)], ["offset", "found"])


@pytest.mark.long
def test_a_transform_of_record_batches_needs_no_spark() -> None:
    BatchTest(None, of_records).assert_deterministic(RECORDS)
    for transform, cause in ((of_records_by_a_set, SEED), (of_records_by_the_day, CLOCK)):
        with pytest.raises(AssertionError, match=f"depends on {cause}"):
            BatchTest(None, transform).assert_deterministic(RECORDS)


def test_the_clock_is_right_again_afterwards(spark: SparkSession) -> None:
    BatchTest(spark, with_column(lambda: f.lit(1))).assert_deterministic(RECORDS)
    assert dt.datetime.now(UTC).timestamp() == pytest.approx(time.time(), abs=60)
    assert type(dt.datetime.now(UTC)) is dt.datetime
    assert "hash" not in globals()
