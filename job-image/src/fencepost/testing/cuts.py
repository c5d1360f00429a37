"""Does a transform's output depend on where batches are cut?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from fencepost.context import BatchContext, takes_record_batches
from fencepost.testing.rows import Keys, Table, Values, listed, tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fencepost.context import RecordTransform, Transform

Record = Mapping[str, Any]
Pieces = Sequence[Sequence[Record]]

ONE_BY_ONE: Final = 8
"""Most records that are also tried one by one."""


def check_cuts(
    spark: SparkSession | None,
    transform: Transform | RecordTransform,
    records: Sequence[Record],
    *,
    keys: Keys = None,
    args: tuple[str, ...] = (),
    seed: int = 0,
) -> None:
    """Run `transform` on all `records` as one batch and as several batches, and compare the rows.

    A transform of record batches needs no `spark`. `records` are as for `fencepost.testing.frame`. They are cut into
    halves, by partition, one by one (up to ONE_BY_ONE records), and twice at places that `seed` decides. Without
    `keys`, each cut must give the same set of rows. With `keys`, the columns of the table's primary key (per sink if
    there are several), it must leave the same table: the row of a later batch replaces the row of an earlier one.

    Raises AssertionError with the cut and the rows that differ.
    """
    ordered = _in_order(records)
    whole = _tables(spark, transform, [ordered], keys, args)
    for name, pieces in _cuts(ordered, random.Random(seed)):  # noqa: S311 - places to cut, no secret
        found = _tables(spark, transform, pieces, keys, args)
        for sink in sorted({*whole, *found}):
            one, many = set(whole.get(sink, {}).values()), set(found.get(sink, {}).values())
            if one != many:
                raise AssertionError(_difference(sink, name, pieces, one, many))


def _in_order(records: Sequence[Record]) -> list[Record]:
    """Return the records with their coordinates filled in, by topic, partition and offset."""
    filled = [
        {"topic": "test", "partition": 0, "offset": position, **record} for position, record in enumerate(records)
    ]
    return sorted(filled, key=_coordinates)


def _coordinates(record: Record) -> tuple[str, int, int]:
    return record["topic"], record["partition"], record["offset"]


def _cuts(records: Sequence[Record], choice: random.Random) -> Iterator[tuple[str, Pieces]]:
    """Yield names of cuts, and the batches that they give."""
    partitions: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        partitions.setdefault(_coordinates(record)[:2], []).append(record)
    parts = list(partitions.values())
    yield "into halves", _pieces(parts, [len(part) // 2 for part in parts])
    if len(parts) > 1:
        yield "by partition", parts
    if len(records) <= ONE_BY_ONE:
        yield "one by one", [[record] for record in records]
    for _ in range(2):
        yield "at random places", _pieces(parts, [choice.randint(0, len(part)) for part in parts])


def _pieces(parts: Pieces, places: Sequence[int]) -> Pieces:
    """Return two batches: the records of each partition before its place, and the others."""
    before = [record for part, place in zip(parts, places, strict=True) for record in part[:place]]
    after = [record for part, place in zip(parts, places, strict=True) for record in part[place:]]
    return [piece for piece in (before, after) if piece]


def _tables(
    spark: SparkSession | None,
    transform: Transform | RecordTransform,
    pieces: Pieces,
    keys: Keys,
    args: tuple[str, ...],
) -> dict[str, Table]:
    """Return what each sink's table holds after these batches."""
    written = (_run(spark, transform, piece, args).items() for piece in pieces)
    return tables(((sink, row) for outputs in written for sink, rows in outputs for row in rows), keys)


def _run(
    spark: SparkSession | None,
    transform: Transform | RecordTransform,
    records: Sequence[Record],
    args: tuple[str, ...],
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows by sink."""
    if takes_record_batches(transform):
        return _run_on_records(cast("RecordTransform", transform), records, args)
    if spark is None:
        raise TypeError("a transform of DataFrames needs a Spark session")
    return _run_on_frame(spark, cast("Transform", transform), records, args)


def _run_on_frame(
    spark: SparkSession, transform: Transform, records: Sequence[Record], args: tuple[str, ...]
) -> dict[str, list[dict[str, Any]]]:
    from pyspark.sql import DataFrame  # noqa: PLC0415 - Spark's imports take a second

    from fencepost.testing import context, frame  # noqa: PLC0415 - the package imports this module

    batch: BatchContext = context(spark, args=args, offsets=_spans(records))
    result = transform(frame(spark, records), batch)
    outputs = {"": result} if isinstance(result, DataFrame) else result
    return {sink: [row.asDict() for row in output.collect()] for sink, output in outputs.items()}


def _run_on_records(
    transform: RecordTransform, records: Sequence[Record], args: tuple[str, ...]
) -> dict[str, list[dict[str, Any]]]:
    from fencepost.testing import record_batch, record_context  # noqa: PLC0415 - the package imports this module

    result = transform(record_batch(records), record_context(args=args, offsets=_spans(records)))
    outputs = result if isinstance(result, Mapping) else {"": result}
    return {sink: output.to_pylist() for sink, output in outputs.items()}


def _spans(records: Sequence[Record]) -> dict[str, tuple[int, int]]:
    """Return {'topic/partition': (first offset, end)}."""
    spans: dict[str, tuple[int, int]] = {}
    for topic, partition, offset in map(_coordinates, records):
        start, end = spans.get(f"{topic}/{partition}", (offset, offset))
        spans[f"{topic}/{partition}"] = (min(start, offset), max(end, offset + 1))
    return spans


def _difference(sink: str, cut: str, pieces: Pieces, one: set[Values], many: set[Values]) -> str:
    batches = " | ".join(
        ", ".join(f"{key} [{start}, {end})" for key, (start, end) in _spans(piece).items()) for piece in pieces
    )
    lines = [
        f"the output{f' for sink {sink!r}' if sink else ''} depends on where batches are cut",
        f"cut {cut}: {batches}",
        *listed("only from one batch", one - many),
        *listed("only from the cut batches", many - one),
    ]
    return "\n  ".join(lines)
