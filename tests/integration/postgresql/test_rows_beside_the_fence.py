"""Batches on a real Spark session, whose rows a real PostgreSQL commits with their offsets."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from fencepost.batch import Batch, Range
from fencepost.contract import PostgresqlEndpoint, PostgresqlSink
from fencepost.fence import Fence, Starting
from fencepost.fence.postgresql.schema import create_schema
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.sinks.postgresql.postgresql_sink import TableSink
from fencepost.sinks.postgresql.staging_task import Access
from fencepost.spark import session as spark_session
from fencepost.spark import source
from fencepost.spark.engine import SparkEngine
from unit.spark.conftest import CONFIG, connect_jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import BatchContext

pytestmark = pytest.mark.integration
RETRYING = replace(CONFIG, spark_master="local[2,3]")
"""A task has three attempts."""
ROWS = "topic string, partition int, `offset` bigint"


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    connect_jvm()
    found = spark_session.create(spark_session.settings(RETRYING, {}))
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture
def schema(postgresql: str) -> Iterator[str]:
    """A schema with the fence and a table without a key."""
    name = f"s{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgresql, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        connection.execute(f'CREATE TABLE {name}.rows (topic text, partition int NOT NULL, "offset" bigint)'.encode())
        yield name
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


def made(spark: SparkSession, parts: Any, _read: Any, _counter: Any, _decoding: Any) -> DataFrame:
    from fencepost.testing import frame  # noqa: PLC0415

    places = [(one.partition, at) for part in parts for one in part for at in range(one.start, one.until)]
    return frame(spark, [{"partition": partition, "offset": at, "value": b"v"} for partition, at in places])


def test_a_task_whose_worker_is_killed_and_a_shuffle_leave_each_row_once(
    spark: SparkSession, postgresql: str, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "frame", made)
    folder = next(part.removeprefix("host=") for part in postgresql.split() if part.startswith("host="))
    endpoint = PostgresqlEndpoint(hosts=(folder,), database="postgres")
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

    with closing(Session(endpoint, credentials=("postgres", ""))) as session:
        create_schema(session, schema)
        fences = PostgresqlFenceTable(session, schema)
        fence = Fence(fences, CONFIG.pipeline)
        taken = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
        start = {"t/0": 0, "t/1": 0}
        row = fence.claim(
            epoch=taken.epoch, driver="d", code="c",
            start=lambda _: Starting(offsets=start, planned=start, topic_ids={"t": "id"}),
        )  # fmt: skip
        access = Access(endpoint=endpoint, credentials=("postgres", ""), tls=None, patience=5.0)
        sink = TableSink(PostgresqlSink(name="rows", schema=schema, table="rows"), fences, CONFIG.pipeline, access)
        config = replace(RETRYING, epoch=row.epoch)
        engine = SparkEngine(spark=spark, config=config, transform=transform, sinks={"rows": sink}, properties={})
        engine.warm()
        for until in (50, 80):
            ends = {"t/0": until, "t/1": until}
            row = fence.plan(row, offsets=row.offsets, planned=ends)
            ranges = tuple(Range("t", part, row.offsets[f"t/{part}"], until) for part in (0, 1))
            written = engine.write(Batch(ranges=ranges, until=ends), row)
            row = fence.commit(row, offsets=ends, planned=ends, records=1, duration_ms=written.phases["job"])
    assert killed.exists()
    with psycopg.connect(postgresql) as connection:
        found = connection.execute(f'SELECT partition, "offset" FROM {schema}.rows ORDER BY 1, 2'.encode()).fetchall()  # noqa: S608
    assert found == [(part, at) for part in (0, 1) for at in range(80)]
