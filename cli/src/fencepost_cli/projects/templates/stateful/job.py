"""The pipeline $name: how many records of the topic $topic each id has in each hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from fencepost import StreamContext
    from pyspark.sql import DataFrame

EVENT = "id STRING, at TIMESTAMP"
"""Yours: the fields of a record that are used; the record is JSON."""

LATEST = "1 day"
"""How long an hour is kept after the newest record that was read. A later record for that hour does not count."""


def stream(events: DataFrame, context: StreamContext) -> DataFrame:  # noqa: ARG001 - the records say it all
    """Return the counts that a batch changes, one row for each id and hour."""
    # FAILFAST: a record that is not JSON stops the pipeline. The default would not count it.
    event = f.from_json(f.col("value").cast("string"), EVENT, {"mode": "FAILFAST"})
    found = events.select(event.alias("event")).select("event.*").withWatermark("at", LATEST)
    hours = found.groupBy("id", f.window("at", "1 hour").alias("hour"))
    return hours.agg(f.count("*").alias("records")).withColumn("hour", f.col("hour.start"))
