"""Batches on a Spark session, whose rows a PostgreSQL commits with their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from fencepost.batch import Batch, Range
from fencepost.contract import PostgresqlEndpoint, PostgresqlSink
from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.postgresql.schema import create_schema
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.sinks.postgresql.postgresql_sink import TableSink
from fencepost.sinks.postgresql.staging_task import Access
from fencepost.spark import source
from fencepost.spark.engine import SparkEngine
from unit.spark.conftest import CONFIG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import BatchContext

RETRYING: Final = replace(CONFIG, spark_master="local[2,3]")
"""A task has three attempts."""


@dataclass(slots=True)
class BatchesBeside:
    """An epoch of a pipeline that reads two partitions of the topic t."""

    engine: SparkEngine
    fence: Fence
    row: FenceRow

    def write(self, until: int) -> dict[str, int]:
        """Plan and write the records of both partitions before this offset, and return where they end."""
        ends = {"t/0": until, "t/1": until}
        if self.row.planned != ends:
            self.row = self.fence.plan(self.row, offsets=self.row.offsets, planned=ends)
        ranges = tuple(Range("t", part, self.row.offsets[f"t/{part}"], until) for part in (0, 1))
        self.engine.write(Batch(ranges=ranges, until=ends), self.row)
        return ends

    def commit(self, until: int) -> None:
        """Write them, and commit."""
        ends = self.write(until)
        self.row = self.fence.commit(self.row, offsets=ends, planned=ends, records=1, duration_ms=1)


@contextmanager
def batches_beside(
    spark: SparkSession,
    dsn: str,
    sink: PostgresqlSink,
    transform: Callable[[DataFrame, BatchContext], DataFrame],
    *,
    fences: str,
    value: Callable[[int, int], bytes] = lambda _partition, _offset: b"v",
) -> Iterator[BatchesBeside]:
    """Take over in a schema for the fence, with this value for each partition and offset."""

    def made(spark: SparkSession, parts: Any, _read: Any, _counter: Any, _decoding: Any) -> DataFrame:
        from fencepost.testing import frame  # noqa: PLC0415

        places = [(one.partition, at) for part in parts for one in part for at in range(one.start, one.until)]
        return frame(spark, [{"partition": part, "offset": at, "value": value(part, at)} for part, at in places])

    folder = next(part.removeprefix("host=") for part in dsn.split() if part.startswith("host="))
    endpoint = PostgresqlEndpoint(hosts=(folder,), database="postgres")
    with closing(Session(endpoint, credentials=("postgres", ""))) as session, pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "frame", made)
        create_schema(session, fences)
        table = PostgresqlFenceTable(session, fences)
        fence = Fence(table, CONFIG.pipeline)
        taken = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
        start = {"t/0": 0, "t/1": 0}
        row = fence.claim(
            epoch=taken.epoch, driver="d", code="c",
            start=lambda _: Starting(offsets=start, planned=start, topic_ids={"t": "id"}),
        )  # fmt: skip
        access = Access(endpoint=endpoint, credentials=("postgres", ""), tls=None, patience=5.0)
        sinks = {sink.name: TableSink(sink, table, CONFIG.pipeline, access)}
        config = replace(RETRYING, epoch=row.epoch)
        engine = SparkEngine(spark=spark, config=config, transform=transform, sinks=sinks, properties={})
        engine.warm()
        yield BatchesBeside(engine, fence, row)
