"""The pipeline $name: one row for each record of the topic $topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from fencepost import BatchContext
    from pyspark.sql import DataFrame

EVENT = "id STRING, amount DOUBLE, at TIMESTAMP"
"""Yours: the fields of a record, which is JSON. schema.cql has a column for each."""

ROWS_PER_BUCKET = 10_000
"""Offsets that share a Cassandra partition."""


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:  # noqa: ARG001 - the batch says it all
    """Return one row per record. Its key is the record's place in Kafka, so a repeated record writes the same row."""
    # FAILFAST: a record that is not JSON stops the pipeline. The default would write a row of nulls.
    event = f.from_json(f.col("value").cast("string"), EVENT, {"mode": "FAILFAST"})
    bucket = f.floor(f.col("offset") / ROWS_PER_BUCKET).alias("bucket")
    return batch.select("topic", "partition", bucket, "offset", event.alias("event")).select(
        "topic", "partition", "bucket", "offset", "event.*"
    )
