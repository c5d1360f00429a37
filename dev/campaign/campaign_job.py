"""The campaign's own code: a row for each record, and the newest row for each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from fencepost.context import BatchContext

EVENT = "id BIGINT, text STRING"


def first_release(batch: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:  # noqa: ARG001
    """Return the frames of both sinks. A text that begins with `poison` fails, and the error quotes it."""
    return _frames(batch)


def second_release(batch: DataFrame, context: BatchContext) -> Mapping[str, DataFrame]:  # noqa: ARG001
    """Return the same as `first_release`, as another release of the code."""
    return _frames(batch)


def _frames(batch: DataFrame) -> Mapping[str, DataFrame]:
    event = f.from_json(f.col("value").cast("string"), EVENT, {"mode": "FAILFAST"})
    text = f.col("event.text")
    checked = f.when(text.startswith("poison"), f.raise_error(text)).otherwise(text)
    rows = batch.select(
        "topic", "partition", "offset", f.col("key").cast("string").alias("name"), event.alias("event")
    ).select("topic", "partition", "offset", "name", "event.id", checked.alias("text"))
    newest = f.row_number().over(Window.partitionBy("name").orderBy(f.col("offset").desc()))
    return {"records": rows, "names": rows.withColumn("place", newest).where("place = 1").drop("place")}
