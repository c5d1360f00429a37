"""Departures by airport: one row per record, keyed by its place in Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fencepost.context import BatchContext


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:  # noqa: ARG001
    """Return the columns of the table `departures`."""
    return batch.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
