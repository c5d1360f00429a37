"""A stateless function of the integration tests that looks things up in a pinned state."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every Spark program has it

from fencepost.context import BatchContext


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:
    """The count that the pinned state has of each record's key."""
    known = context.state("counts").groupBy("key.key").agg(F.sum("value.count").alias("count"))
    records = batch.select(F.col("offset").alias("minute"), F.col("key").cast("string").alias("key"))
    return records.join(F.broadcast(known), "key")
