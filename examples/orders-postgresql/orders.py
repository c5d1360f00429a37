"""Orders as rows of a table in PostgreSQL, in the database that has the fence too.

A record is JSON: {"id": "o-17", "customer": "c-3", "cents": 1250, "placedAt": "2026-01-02T03:04:05Z"}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql import functions as f

from fencepost import DependencyDown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from fencepost.context import BatchContext
    from fencepost.sinks.function import FunctionContext

ORDER = "id STRING, customer STRING, cents BIGINT, placedAt TIMESTAMP"
COLUMNS = ("topic", "partition", "offset", "id", "customer", "cents", "placed_at")

UPSERT = """
INSERT INTO orders AS stored (topic, partition, "offset", id, customer, cents, placed_at, token)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (topic, partition, "offset") DO UPDATE
SET id = excluded.id, customer = excluded.customer, cents = excluded.cents, placed_at = excluded.placed_at,
    token = excluded.token
WHERE stored.token <= excluded.token
"""
"""A repeated batch writes the same rows again; a driver that was replaced has a lower token, and changes none."""


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:  # noqa: ARG001 - the batch says it all
    """Return one row per record. Its key is the record's place in Kafka."""
    # FAILFAST: a record that is not JSON stops the pipeline and pages. The default would write a row of nulls.
    order = f.from_json(f.col("value").cast("string"), ORDER, {"mode": "FAILFAST"})
    rows = batch.select("topic", "partition", "offset", order.alias("order"))
    return rows.select("topic", "partition", "offset", "order.*").withColumnRenamed("placedAt", "placed_at")


def store(batches: Iterator[pa.RecordBatch], context: FunctionContext) -> None:
    """Write the rows of a task in one transaction."""
    rows = ([*(row[name] for name in COLUMNS), context.token] for batch in batches for row in batch.to_pylist())
    options = context.options
    try:
        with psycopg.connect(**_place(options), connect_timeout=10) as connection, connection.cursor() as cursor:
            cursor.executemany(UPSERT, rows)
    except psycopg.OperationalError as error:
        raise DependencyDown(f"the orders' PostgreSQL does not answer: {error}") from error


def _place(options: Mapping[str, str]) -> dict[str, Any]:
    names = {"host": "host", "port": "port", "dbname": "database", "user": "username", "password": "password"}
    return {name: options[option] for name, option in names.items() if option in options}
