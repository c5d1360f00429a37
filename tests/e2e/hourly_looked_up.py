"""Each flight with the departures of its hour, by a pinned state of the hours.

The module runs in a pipeline's pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import hourly_departures
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fencepost import BatchContext


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Return a row per record; `departures` is null where the state has no such hour."""
    counts = context.state("hours").select("key.origin", "key.window.start", "value.count").toDF(
        "origin", "hour", "departures"
    )  # fmt: skip
    event = f.from_json(f.col("value").cast("string"), hourly_departures.EVENT, {"mode": "FAILFAST"})
    flights = batch.select("topic", "partition", "offset", event.alias("event")).select(
        "topic", "partition", "offset", "event.*"
    )
    left = flights.withColumn("hour", f.date_trunc("hour", hourly_departures.departed_at()))
    bucket = f.floor(f.col("offset") / 10_000).alias("bucket")
    rows = left.join(f.broadcast(counts), ["origin", "hour"], "left")
    return rows.select("topic", "partition", bucket, "offset", "departures")
