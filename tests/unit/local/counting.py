"""The author's code of the tests: rows of records, and a count of each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fencepost import BatchContext, StreamContext


def transform(batch: DataFrame, _context: BatchContext) -> DataFrame:
    """One row per record."""
    return batch.selectExpr("topic", "partition", "offset", "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS v")


def stream(events: DataFrame, _context: StreamContext) -> DataFrame:
    """How often each key was seen."""
    return events.selectExpr("CAST(key AS STRING) AS key").groupBy("key").count()


def placed(batch: DataFrame, context: BatchContext) -> DataFrame:
    """One row per record, with the context of its batch."""
    facts = f"{context.version}L AS version, {context.token}L AS token, {context.epoch} AS epoch"
    repeated = str(context.is_repeated).lower()
    return batch.selectExpr("topic", "partition", "offset", *facts.split(", "), f"{repeated} AS is_repeated")
