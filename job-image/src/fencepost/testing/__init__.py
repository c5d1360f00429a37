"""Test a transform with pytest alone: no Kafka, no Cassandra.

from fencepost.testing import check_cuts, context, frame

def test_departures(spark):
    out = transform(frame(spark, [{"value": b'{"flight": 1}'}]), context(spark))
    assert out.count() == 1

def test_departures_do_not_depend_on_batches(spark):
    check_cuts(spark, transform, [{"value": b'{"flight": 1}'}, {"value": b'{"flight": 2}'}])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fencepost.context import BatchContext
from fencepost.spark.source import SCHEMA
from fencepost.testing.cuts import check_cuts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["check_cuts", "context", "frame"]


def frame(spark: SparkSession, records: Iterable[Mapping[str, Any]], *, topic: str = "test") -> DataFrame:
    """Return records as a transform receives them; fields that a record leaves out are filled in.

    Fields: topic, partition (0), offset (its position), timestamp (1970, UTC), key, value, headers ([(str, bytes)]).
    """
    rows = [
        (
            record.get("topic", topic),
            record.get("partition", 0),
            record.get("offset", position),
            record.get("timestamp", datetime.fromtimestamp(0, UTC)),
            record.get("key"),
            record.get("value"),
            record.get("headers"),
        )
        for position, record in enumerate(records)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def context(
    spark: SparkSession,
    *,
    args: tuple[str, ...] = (),
    offsets: Mapping[str, tuple[int, int]] | None = None,
    token: int = 1,
) -> BatchContext:
    """Return a context as for the first batch of a first run."""
    return BatchContext(
        pipeline="test/test/test", epoch=1, version=1, token=token, offsets=offsets or {}, args=args, spark=spark
    )
