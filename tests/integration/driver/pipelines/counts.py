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


def halves(events: DataFrame, context: StreamContext) -> DataFrame:
    """Other counts, of the same state."""
    return stream(events, context).withColumn("count", F.col("count") * 2)


def by_key_alone(events: DataFrame, _: StreamContext) -> DataFrame:
    """Counts that another state has."""
    keyed = events.select("timestamp", F.col("key").cast("string").alias("key")).withWatermark("timestamp", "1 hour")
    counted = keyed.groupBy("key").count()
    return counted.select(F.lit(0).cast("long").alias("minute"), "key", "count")
