"""Batches on a real Spark session, whose rows a real PostgreSQL commits with their offsets."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from fencepost.contract import PostgresqlSink
from integration.postgresql.batches_beside import batches_beside

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import BatchContext

pytestmark = pytest.mark.integration
ROWS = "topic string, partition int, `offset` bigint"


@pytest.fixture
def schema(postgresql: str) -> Iterator[str]:
    """A schema with the fence and a table without a key."""
    name = f"s{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        connection.execute(f'CREATE TABLE {name}.rows (topic text, partition int NOT NULL, "offset" bigint)'.encode())
        yield name
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


def test_a_task_whose_worker_is_killed_and_a_shuffle_leave_each_row_once(
    spark: SparkSession, postgresql: str, schema: str, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"

    def transform(batch: DataFrame, context: BatchContext) -> DataFrame:
        token = context.token

        def killing_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in batches:
                yield rows
                if rows.num_rows and token > 0 and not killed.exists():
                    killed.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        rows = batch.select("topic", "partition", "offset").repartition(4)
        return rows.mapInArrow(killing_once, ROWS)

    sink = PostgresqlSink(name="rows", schema=schema, table="rows")
    with batches_beside(spark, postgresql, sink, transform, fences=schema) as batches:
        batches.commit(50)
        batches.commit(80)
    assert killed.exists()
    with psycopg.connect(postgresql) as connection:
        found = connection.execute(f'SELECT partition, "offset" FROM {schema}.rows ORDER BY 1, 2'.encode()).fetchall()  # noqa: S608
    assert found == [(part, at) for part in (0, 1) for at in range(80)]
