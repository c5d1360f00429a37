"""A stateful function of the integration tests."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program has it

from fencepost.context import StreamContext


def stream(events: DataFrame, context: StreamContext) -> DataFrame:
    """How many records a key has in each minute of event time; args: how late a record may be."""
    (delay,) = context.args
    return counted(events, delay)


def counted(events: DataFrame, delay: str) -> DataFrame:
    """Return the counts; `delay` is how late a record may be."""
    keyed = events.select("timestamp", F.col("key").cast("string").alias("key"))
    counted = keyed.withWatermark("timestamp", delay).groupBy(F.window("timestamp", "1 minute"), "key").count()
    return counted.select(F.col("window.start").cast("long").alias("minute"), "key", "count")
