"""The queries of `bench stateful`, as an author would write them. Keys are `k` and nine digits.

Arguments: the query, the schedule of the batches, and the checkpoint: 'fenced', or one of the module `native`.
A tenth of the rows goes to the sink, so that what is measured is the state and not the table.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import schedule  # type: ignore[import-not-found]  # from the ConfigMap
from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from fencepost import BatchContext, StreamContext

PROCESSOR_KEYS = 20_000
VALUE = 1_000
"""Bytes."""
NOISE = random.Random(27).randbytes(1 << 16)


def stream(events: DataFrame, context: StreamContext) -> DataFrame:
    """Return the counts that a batch changes."""
    query, sizes, checkpoint = context.args
    schedule.install(sizes)
    if checkpoint != "fenced":
        import native  # type: ignore[import-not-found]  # noqa: PLC0415 - from the ConfigMap, in the driver alone

        native.install(checkpoint)
    import observed  # type: ignore[import-not-found]  # noqa: PLC0415 - as above

    observed.install()
    return kept(QUERIES[query](events))


def transform(batch: DataFrame, context: BatchContext) -> DataFrame:
    """Return a row for each record: the floor, without state."""
    if context.version == 0:
        schedule.install(context.args[1])
    return kept(batch.select(f.col("key").cast("string").alias("key"), f.lit(1).cast("bigint").alias("count")))


def kept(rows: DataFrame) -> DataFrame:
    """Return the tenth of the rows that is written. By key alone, Spark would filter the records before the state."""
    return rows.where("pmod(hash(key, count), 10) = 0")


def count(events: DataFrame) -> DataFrame:
    """Count by key."""
    return events.groupBy(f.col("key").cast("string").alias("key")).count()


def large(events: DataFrame) -> DataFrame:
    """Keep the largest value of each key: a kilobyte each, at a random place in noise that does not compress."""
    place = f.pmod(f.hash("key", "offset"), f.lit(len(NOISE) - VALUE))
    value = f.substring(f.lit(NOISE), place, f.lit(VALUE))
    newest = events.groupBy(f.col("key").cast("string").alias("key")).agg(f.max(value).alias("value"))
    return newest.select("key", f.length("value").cast("bigint").alias("count"))


def windows(events: DataFrame) -> DataFrame:
    """Count in windows of a minute, in a thousand groups; a record may be five minutes late."""
    group = f.substring(f.col("key").cast("string"), -3, 3).alias("group")
    minutes = f.window("timestamp", "1 minute").alias("minute")
    counted = events.withWatermark("timestamp", "5 minutes").groupBy(group, minutes).count()
    return counted.select(f.concat_ws("/", "group", f.col("minute.start").cast("string")).alias("key"), "count")


def processor(events: DataFrame) -> DataFrame:
    """Count by key with transformWithState in Python."""
    number = f.substring(f.col("key").cast("string"), 2, 9).cast("int")
    keyed = events.select((number % PROCESSOR_KEYS).cast("string").alias("key"))
    return keyed.groupBy("key").transformWithState(Counter(), "key STRING, count BIGINT", "Update", "None")


class Counter(StatefulProcessor):
    """Counts the rows of a key."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._count = handle.getValueState("count", "count BIGINT")

    def handleInputRows(self, key: tuple[str], rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803 - Spark's names
        """Add the rows of a batch."""
        (before,) = self._count.get() or (0,)
        after = before + sum(1 for _ in rows)
        self._count.update((after,))
        yield Row(key=key[0], count=after)

    def close(self) -> None:
        """Do nothing."""


QUERIES = {"count": count, "windows": windows, "processor": processor, "large": large}
