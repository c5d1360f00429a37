"""The batch as a DataFrame: one Spark task per slice, each reading its ranges in a Python worker.

`mapInArrow` over `spark.range`, not the Python Data Source API, which plans each read in one more Python process on the
driver.  Over fake records, 2 cores under changing load, four runs each: a batch of 1,000 on two tasks took p50 222 to
455 ms here and 260 to 363 with the data source (less than the noise apart), on one task 200 to 274; 1 M records 2.4 to
9.8 s and 2.5 to 7.3.  So this is the simpler way, with one process fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from fencepost.batch import Range
from fencepost.contract import offset_key
from fencepost.formats.decoding import AS_BYTES, Decoding
from fencepost.kafka.reader import ARROW_SCHEMA, content_bytes
from fencepost.spark.tasks.scratch import check_executable
from fencepost.spark.tasks.slice_row import SliceRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from fencepost.kafka.reader import Reached, Seen
    from fencepost.spark.tasks.counts import SliceCounter

SCHEMA: Final = (
    "topic string, partition int, offset long, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>"
)
"""The author's input columns where nothing is decoded, as Spark's DDL."""


def frame(
    spark: SparkSession,
    slices: Sequence[tuple[Range, ...]],
    read: Read,
    counter: SliceCounter,
    decoding: Decoding = AS_BYTES,
) -> DataFrame:
    """Return the records of all slices, lazily."""
    one_row_a_slice = spark.range(0, len(slices), 1, len(slices))
    return one_row_a_slice.mapInArrow(partial(_read_slices, list(slices), read, counter, decoding), columns(decoding))


def columns(decoding: Decoding) -> StructType | str:
    """Return the author's input columns, for Spark. Raises BadSpec."""
    if not decoding.columns:
        return SCHEMA
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 - Spark's imports overlap the JVM's start

    return from_arrow_schema(decoding.schema(ARROW_SCHEMA))


def _read_slices(
    slices: Sequence[tuple[Range, ...]],
    read: Read,
    counter: SliceCounter,
    decoding: Decoding,
    rows: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Read the slices whose numbers are in `rows`."""
    for batch in rows:
        for index in batch.column(0).to_pylist():
            records = read(slices[index], reached=counter.reach, seen=counter.see)
            yield from map(decoding, counted(records, counter, index))


class Read(Protocol):
    """Yields the records of some ranges, as `fencepost.kafka.reader.read` does."""

    def __call__(self, ranges: Sequence[Range], *, reached: Reached, seen: Seen) -> Iterator[pa.RecordBatch]:
        """Yield them."""
        ...


def read_rows(
    read: Read, counter: Callable[[int], SliceCounter], decoding: Decoding, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read the slices of a stream's rows, each of which is the text of a SliceRow."""
    check_executable()
    for rows in batches:
        for text in rows.column(0).to_pylist():
            row = SliceRow.of_json(text)
            counts = counter(row.number)
            records = read(row.ranges, reached=counts.reach, seen=counts.see)
            yield from map(decoding, counted(_dated(records, counts), counts, row.index))


def _dated(batches: Iterable[pa.RecordBatch], counter: SliceCounter) -> Iterator[pa.RecordBatch]:
    """Yield the records, and report the largest timestamp of each partition."""
    for batch in batches:
        # As numbers: Arrow loads the time zones for Python's datetimes.
        columns = [batch.column("topic"), batch.column("partition"), batch.column("timestamp").view(pa.int64())]
        table = pa.table(columns, names=["topic", "partition", "timestamp"])
        for row in table.group_by(["topic", "partition"]).aggregate([("timestamp", "max")]).to_pylist():
            if row["timestamp_max"] is not None:
                counter.add_time(offset_key(row["topic"], row["partition"]), max(0, row["timestamp_max"] // 1000))
        yield batch


def counted(batches: Iterable[pa.RecordBatch], counter: SliceCounter, index: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of the slice `index`, and report how many there are and their bytes."""
    records, size = 0, 0
    for batch in batches:
        records, size = records + batch.num_rows, size + content_bytes(batch)
        counter.add(index, records, size)
        yield batch
