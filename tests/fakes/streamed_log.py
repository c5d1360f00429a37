"""A log whose records a stateful query counts by value: python -m fakes.streamed_log CHECKPOINT ENDS STOP_AT

Plans and reader are made here; Spark, its checkpoint and the state in RocksDB are real.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fencepost.batch import Batch, Range, between
from fencepost.errors import ATTEMPT, begin_attempt
from fencepost.spark.stateful.stream_source import StreamSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LIMIT = 50
"""Records of a partition in one batch."""
KEYS = 7
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}


class Finished(Exception):
    """Everything is read."""


@dataclass
class Log:
    """A log, and the plans of batches in it. `asked` has the batches that Spark asked for."""

    ends: dict[str, int]
    begin: dict[str, int] = field(default_factory=dict)
    before: Callable[[int], None] = lambda _: None
    """Called before the nth batch of a run is given to Spark."""
    asked: list[tuple[Mapping[str, int], Mapping[str, int]]] = field(default_factory=list)

    def start(self) -> Mapping[str, int]:
        return {key: self.begin.get(key, 0) for key in self.ends}

    def end(self, start: Mapping[str, int]) -> Mapping[str, int]:
        if start == self.ends:
            raise Finished
        return {key: min(end, start.get(key, 0) + LIMIT) for key, end in self.ends.items()}

    def batch(self, start: Mapping[str, int], end: Mapping[str, int]) -> Batch:
        self.asked.append((start, end))
        self.before(len(self.asked))
        return between(start, end)


def reading(
    ranges: Sequence[Range],
    *,
    reached: Callable[[str, int], object],
    seen: Callable[[str, int, int], object],
    fault: Callable[[Range], None] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """One record per offset."""
    from fencepost.testing import record_batch  # noqa: PLC0415

    for one in ranges:
        fault(one)
        yield record_batch(
            [
                {"partition": one.partition, "offset": offset, "value": str(offset % KEYS).encode()}
                for offset in range(one.start, one.until)
            ]
        )
        reached(one.key, one.until + 1)
        seen(one.key, one.until - 1, 3)


def expected(ends: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(str(offset % KEYS) for end in ends.values() for offset in range(end)))


@dataclass
class Counts:
    """What the query has counted by key: it returns each count that a batch changes."""

    before_commit: Callable[[int], None] = lambda _: None
    """Called with the number of a batch after its state is written, and before the batch is committed."""
    found: dict[str, int] = field(default_factory=dict)
    error: Exception | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        rows.sparkSession.sparkContext.setLocalProperty(ATTEMPT, begin_attempt())
        try:
            written = rows.collect()
        except Exception as error:
            self.error = error
            raise
        self.before_commit(batch)
        self.found |= {row["value"].decode(): row["count"] for row in written}


def start(frame: DataFrame, sink: Counts, checkpoint: str) -> StreamingQuery:
    """Count the records by value."""
    writer = frame.groupBy("value").count().writeStream.outputMode("update").foreachBatch(sink)
    return writer.option("checkpointLocation", f"file://{checkpoint}").start()


def prepared(spark: SparkSession) -> SparkSession:
    """Return a session with the settings of these queries, whose workers get the reader."""
    from pyspark import cloudpickle  # noqa: PLC0415

    # The workers do not find the tests on their path.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    made = spark.newSession()
    for name, value in SETTINGS.items():
        made.conf.set(name, value)
    return made


def main(checkpoint: str, ends: str, stop_at: str) -> None:
    """Run the query until a batch; once its state is written, say so and wait to be killed."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    def wait(batch: int) -> None:
        if batch == int(stop_at):
            print("written", flush=True)
            time.sleep(3600)

    builder = SparkSession.builder.master("local[2]")
    local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "spark.driver.memory": "1g"}
    for name, value in {**local, **quick}.items():
        builder = builder.config(name, value)
    source = StreamSource(prepared(builder.getOrCreate()), Log(json.loads(ends)), read=reading)
    start(source.frame(), Counts(wait), checkpoint).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
