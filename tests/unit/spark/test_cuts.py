"""`check_cuts` accepts a transform of single records, and shows how the rows of another one depend on cuts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from fencepost.testing import check_cuts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import BatchContext

RECORDS: list[Mapping[str, Any]] = [
    {"partition": number % 2, "offset": number // 2, "key": f"k{number % 3}".encode(), "value": str(number).encode()}
    for number in range(6)
]


def one_row_per_record(batch: DataFrame, context: BatchContext) -> DataFrame:
    assert context.offsets
    parts = f.array("partition", f.col("offset").cast("int")).alias("parts")
    return batch.select("topic", "partition", "offset", f.create_map(f.lit("a"), f.lit(float("nan"))).alias("m"), parts)


def newest_per_key(batch: DataFrame, context: BatchContext) -> DataFrame:
    assert context.offsets
    newest = Window.partitionBy("key").orderBy(f.col("value").cast("string").desc())
    rows = batch.withColumn("place", f.row_number().over(newest)).where("place = 1")
    return rows.select(f.col("key").cast("string").alias("k"), f.col("value").cast("string").alias("v"))


def test_a_transform_of_records_does_not_depend_on_cuts(spark: SparkSession) -> None:
    check_cuts(spark, one_row_per_record, RECORDS)


def test_a_count_over_the_batch_depends_on_cuts(spark: SparkSession) -> None:
    def count(batch: DataFrame, context: BatchContext) -> DataFrame:
        assert context.offsets
        return batch.groupBy("partition").count()

    with pytest.raises(AssertionError) as caught:
        check_cuts(spark, count, RECORDS)
    assert str(caught.value).splitlines() == [
        "the output depends on where batches are cut",
        "  cut into halves: test/0 [0, 1), test/1 [0, 1) | test/0 [1, 3), test/1 [1, 3)",
        "  only from one batch: {'count': 3, 'partition': 0}",
        "  only from one batch: {'count': 3, 'partition': 1}",
        "  only from the cut batches: {'count': 1, 'partition': 0}",
        "  only from the cut batches: {'count': 1, 'partition': 1}",
        "  only from the cut batches: {'count': 2, 'partition': 0}",
        "  only from the cut batches: 1 more rows",
    ]


def test_a_number_within_the_batch_depends_on_cuts_and_the_sink_is_named(spark: SparkSession) -> None:
    def numbered(batch: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:
        place = f.row_number().over(Window.orderBy("partition", "offset"))
        return {"plain": one_row_per_record(batch, context), "numbered": batch.select("offset", place.alias("place"))}

    with pytest.raises(AssertionError, match="the output for sink 'numbered' depends on where batches are cut"):
        check_cuts(spark, numbered, RECORDS)


def test_the_newest_row_of_a_key_leaves_the_same_table_whatever_the_cut(spark: SparkSession) -> None:
    in_one_partition = [{**record, "partition": 0, "offset": number} for number, record in enumerate(RECORDS)]
    check_cuts(spark, newest_per_key, in_one_partition, keys=["k"])
    with pytest.raises(AssertionError):
        check_cuts(spark, newest_per_key, in_one_partition)
