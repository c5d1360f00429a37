"""Run a transform on records, and see what it leaves in the sinks' tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from fencepost.context import takes_record_batches
from fencepost.testing.inputs import context, frame, record_batch, record_context
from fencepost.testing.rows import Keys, Table, tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import RecordTransform, Transform

Record: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = dict[str, list[dict[str, Any]]]
"""The rows by sink."""

ONLY_SINK: Final = ""
"""The sink of a transform that returns a single frame."""


@dataclass(frozen=True, slots=True)
class BatchRuns:
    """A transform with what each of its batches needs; a transform of record batches needs no `spark`."""

    spark: SparkSession | None
    transform: Transform | RecordTransform
    args: tuple[str, ...] = ()
    states: Mapping[str, DataFrame] = field(default_factory=dict)

    def rows(self, records: Sequence[Record]) -> Rows:
        """Return the rows of one batch. Raises TypeError for a transform of DataFrames without a session."""
        if not takes_record_batches(self.transform):
            return {sink: [row.asDict() for row in frame.collect()] for sink, frame in self.frames(records).items()}
        transform = cast("RecordTransform", self.transform)
        result = transform(record_batch(records), record_context(args=self.args, offsets=spans(records)))
        outputs = result if isinstance(result, Mapping) else {ONLY_SINK: result}
        return {sink: output.to_pylist() for sink, output in outputs.items()}

    def frames(self, records: Sequence[Record]) -> Mapping[str, DataFrame]:
        """Return what a transform of DataFrames makes of one batch. Raises TypeError without a session."""
        from pyspark.sql import DataFrame  # noqa: PLC0415 - Spark's imports take a second

        if self.spark is None:
            raise TypeError("a transform of DataFrames needs a Spark session")
        batch = context(self.spark, args=self.args, offsets=spans(records), states=self.states)
        result = cast("Transform", self.transform)(frame(self.spark, records), batch)
        return {ONLY_SINK: result} if isinstance(result, DataFrame) else result

    def tables(self, batches: Iterable[Sequence[Record]], keys: Keys) -> dict[str, Table]:
        """Return what each sink's table holds after these batches."""
        return written([self.rows(batch) for batch in batches], keys)


def written(batches: Iterable[Rows], keys: Keys) -> dict[str, Table]:
    """Return what each sink's table holds after the rows of these batches."""
    return tables(((sink, row) for rows in batches for sink, found in rows.items() for row in found), keys)


def in_order(records: Sequence[Record]) -> list[Record]:
    """Return the records with their coordinates filled in, by topic, partition and offset."""
    filled = [
        {"topic": "test", "partition": 0, "offset": position, **record} for position, record in enumerate(records)
    ]
    return sorted(filled, key=coordinates)


def coordinates(record: Record) -> tuple[str, int, int]:
    """Return topic, partition and offset."""
    return record["topic"], record["partition"], record["offset"]


def by_partition(records: Sequence[Record]) -> list[list[Record]]:
    """Return the records of each partition."""
    partitions: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        partitions.setdefault(coordinates(record)[:2], []).append(record)
    return list(partitions.values())


def spans(records: Sequence[Record]) -> dict[str, tuple[int, int]]:
    """Return {'topic/partition': (first offset, end)}."""
    found: dict[str, tuple[int, int]] = {}
    for topic, partition, offset in map(coordinates, records):
        start, end = found.get(f"{topic}/{partition}", (offset, offset))
        found[f"{topic}/{partition}"] = (min(start, offset), max(end, offset + 1))
    return found
