"""What each merchant earned in each hour, of a topic in which a payment may be more than once.

A producer that gets no answer sends a payment again, and the first one may have arrived. In a table of payments the
second row would replace the first; a sum would count both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fencepost import StreamContext

PAYMENT = "payment_id STRING, merchant STRING, cents BIGINT, at TIMESTAMP"
LATEST = "1 hour"
"""How far a payment may be behind the newest one. One that is further behind does not count."""


def stream(events: DataFrame, context: StreamContext) -> DataFrame:  # noqa: ARG001 - the records say it all
    """Return the sums that a batch changes, one row for each merchant and hour."""
    payment = f.from_json(f.col("value").cast("string"), PAYMENT, {"mode": "FAILFAST"})
    payments = events.select(payment.alias("payment")).select("payment.*").withWatermark("at", LATEST)
    once = payments.dropDuplicatesWithinWatermark(["payment_id"])
    hours = once.groupBy("merchant", f.window("at", "1 hour").alias("hour"))
    return hours.agg(f.count("*").alias("payments"), f.sum("cents").alias("cents")).withColumn(
        "hour", f.col("hour.start")
    )
