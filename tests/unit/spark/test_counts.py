"""What a batch read: each record once, however many sinks, actions and attempts read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from fencepost.batch import Batch, Range
from fencepost.kafka.reader import ARROW_SCHEMA, content_bytes
from fencepost.spark import source
from fencepost.spark.engine import SparkEngine
from unit.spark.conftest import CONFIG
from unit.spark.test_engine import Counting, row

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import BatchContext
    from fencepost.spark.tasks.counts import SliceCounter

EACH = 13
"""Bytes of one record: a key of 3, a value of 6, a header of 1 + 3."""
BATCH = Batch(ranges=(Range("t", 0, 0, 3000), Range("t", 1, 7, 9)), until={"t/0": 3000, "t/1": 9})


def arrow_maker() -> Callable[[Range, int], pa.RecordBatch]:
    """Return what makes the records of a range up to an offset; a function of its own reaches a Python worker."""

    def arrow(part: Range, until: int) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415

        from fencepost.kafka.reader import ARROW_SCHEMA  # noqa: PLC0415

        rows = [
            {"topic": part.topic, "partition": part.partition, "offset": offset, "timestamp": 0, "key": b"key",
             "value": b"value!", "headers": [{"key": "h", "value": b"xyz"}]}
            for offset in range(part.start, until)
        ]  # fmt: skip
        return pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)

    return arrow


@pytest.fixture
def unread(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Let the workers make their records instead of reading Kafka; everything else is what runs."""

    def frame(spark: SparkSession, parts: Any, _read: Any, counter: SliceCounter, _decoding: Any) -> DataFrame:
        arrow = arrow_maker()

        def read_slices(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from fencepost.batch import Range  # noqa: PLC0415
            from fencepost.formats.decoding import AS_BYTES  # noqa: PLC0415
            from fencepost.spark import source as in_worker  # noqa: PLC0415

            def read(ranges: Any, *, reached: Any, seen: Any) -> Iterator[pa.RecordBatch]:
                for part in ranges:
                    half = (part.start + part.until) // 2
                    yield arrow(part, half)
                    yield arrow(Range(part.topic, part.partition, half, part.until), part.until)
                    reached(part.key, part.until + 7)
                    seen(part.key, part.start, 3)
                    seen(part.key, part.until - 1, 4)

            yield from in_worker._read_slices(parts, read, counter, AS_BYTES, rows)

        return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read_slices, source.SCHEMA)

    monkeypatch.setattr(source, "frame", frame)
    return spark


def engine(spark: SparkSession, transform: Any, *sinks: str) -> SparkEngine:
    return SparkEngine(
        spark=spark, config=CONFIG, transform=transform, sinks={name: Counting() for name in sinks}, properties={}
    )


def both(batch: DataFrame, context: BatchContext) -> dict[str, DataFrame]:
    """Two sinks, and an action: the batch is read three times."""
    assert batch.count() == sum(until - start for start, until in context.offsets.values())
    return {"one": batch, "two": batch.repartition(3)}


def test_each_record_counts_once_whatever_reads_it(unread: SparkSession) -> None:
    written = engine(unread, both, "one", "two").write(BATCH, row())
    assert (written.records, written.size) == (3002, 3002 * EACH)
    assert written.reached == {"t/0": 3007, "t/1": 16}
    assert {(0, 3), (2999, 4)} <= set(written.epochs["t/0"])
    assert written.epochs["t/1"] == ((7, 3), (8, 4))


def test_the_next_batch_begins_at_zero(unread: SparkSession) -> None:
    small = Batch(ranges=(Range("t", 1, 9, 12),), until={"t/1": 12})
    made = engine(unread, lambda batch, _: batch, "rows")
    assert made.write(BATCH, row()).records == 3002
    written = made.write(small, row())
    assert (written.records, written.size) == (3, 3 * EACH)
    assert written.epochs == {"t/1": ((9, 3), (11, 4))}


def test_a_transform_that_drops_rows_does_not_change_what_was_read(unread: SparkSession) -> None:
    written = engine(unread, lambda batch, _: batch.where("offset < 10"), "rows").write(BATCH, row())
    assert (written.records, written.size) == (3002, 3002 * EACH)


def test_a_repeated_task_counts_once() -> None:
    from fencepost.spark.tasks.counts import ReadCounts, _Largest  # noqa: PLC0415

    class Local:
        """An accumulator as the driver has it; each task's update is merged when the task ends."""

        def __init__(self, value: Any, param: Any) -> None:
            self.value, self._param = value, param

        def add(self, term: Any) -> None:
            self.value = self._param.addInPlace(self.value, term)

    class Context:
        def accumulator(self, value: Any, param: Any) -> Local:
            return Local(value, param)

    counts = ReadCounts(Context())  # type: ignore[arg-type]
    first = counts.begin()
    late: SliceCounter = first
    for size in (100, 250):  # an attempt that stopped halfway, and one that read all
        first.add(0, size // 10, size)
    first.add(1, 5, 50)
    first.add(0, 10, 100)
    assert counts.total() == (30, 300)
    second = counts.begin()
    second.add(0, 1, 7)
    late.add(1, 5, 50)
    late.reach("t/0", 99)
    assert counts.total() == (1, 7)
    assert counts.reached() == {}
    second.reach("t/0", 40)
    second.reach("t/0", 30)
    assert counts.reached() == {"t/0": 40}
    assert counts.total() == (1, 7)
    assert _Largest().zero({(1, 1): (1, 1)}) == {}


def test_bytes_are_those_of_keys_values_and_headers() -> None:
    import pyarrow as pa  # noqa: PLC0415

    assert content_bytes(arrow_maker()(Range("t", 0, 0, 4), 4)) == 4 * EACH
    bare = {"topic": "t", "partition": 0, "offset": 1, "timestamp": 0, "key": None, "value": None, "headers": None}
    assert content_bytes(pa.RecordBatch.from_pylist([bare], schema=ARROW_SCHEMA)) == 0
    assert content_bytes(pa.RecordBatch.from_pylist([], schema=ARROW_SCHEMA)) == 0


def test_two_reads_of_a_slice_that_see_different_epochs_both_count() -> None:
    """Several sinks read it, and each may have had another leader."""
    from fencepost.spark.tasks.counts import ReadCounts, _Largest  # noqa: PLC0415

    joined = _Largest().addInPlace({(1, ("t/0", 5, 1)): (0, 0)}, {(1, ("t/0", 5, 2)): (0, 0), (1, 0): (9, 9)})
    counts = object.__new__(ReadCounts)
    counts._batch, counts._accumulator = 1, SimpleNamespace(value=joined)  # type: ignore[assignment]
    assert counts.epochs() == {"t/0": ((5, 1), (5, 2))}
    assert counts.total() == (9, 9)
    assert counts.reached() == {}
