"""Orders as rows of a table in PostgreSQL, in the database that has the fence too.

A record is JSON: {"id": "o-17", "customer": "c-3", "cents": 1250, "placedAt": "2026-01-02T03:04:05Z"}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fencepost.context import BatchContext

ORDER = "id STRING, customer STRING, cents BIGINT, placedAt TIMESTAMP"


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:  # noqa: ARG001 - the batch says it all
    """Return one row per record, with the columns of the table."""
    # FAILFAST: a record that is not JSON stops the pipeline and pages. The default would write a row of nulls.
    order = f.from_json(f.col("value").cast("string"), ORDER, {"mode": "FAILFAST"})
    rows = batch.select("topic", "partition", "offset", order.alias("order"))
    return rows.select("topic", "partition", "offset", "order.*").withColumnRenamed("placedAt", "placed_at")
