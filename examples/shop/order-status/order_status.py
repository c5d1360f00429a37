"""What is known of each order now: the newest record of two topics, orders and payments, in one row.

Which record is newest follows from its time, and for equal times from its place in Kafka. So the order in which records
arrive does not matter, nor which topic is read first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from fencepost import StreamContext

EVENT = "order_id STRING, status STRING, cents BIGINT, at TIMESTAMP"
"""The fields of both topics: an order's total, and what a payment paid."""


def stream(events: DataFrame, context: StreamContext) -> DataFrame:  # noqa: ARG001 - the records say it all
    """Return the orders that a batch changes. Those without a payment have nulls in its columns, and the reverse.

    Without a watermark the state keeps each order forever.
    """
    event = f.from_json(f.col("value").cast("string"), EVENT, {"mode": "FAILFAST"})
    records = events.select("topic", "partition", "offset", event.alias("event")).select("*", "event.*")
    newest = records.groupBy("order_id").agg(newest_of("orders"), newest_of("payments"))
    return newest.select(
        "order_id",
        f.col("orders.status").alias("order_status"),
        f.col("orders.cents").alias("total_cents"),
        f.col("orders.at").alias("ordered_at"),
        f.col("payments.status").alias("payment_status"),
        f.col("payments.cents").alias("paid_cents"),
        f.col("payments.at").alias("paid_at"),
    )


def newest_of(topic: str) -> Column:
    """Return the newest record of one topic."""
    record = f.struct("at", "partition", "offset", "status", "cents")
    return f.max(f.when(f.col("topic") == topic, record)).alias(topic)
