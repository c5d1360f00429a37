"""Does a transform's output depend on where batches are cut?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from fencepost.context import BatchContext, takes_record_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fencepost.context import RecordTransform, Transform

Record = Mapping[str, Any]
Pieces = Sequence[Sequence[Record]]
Table = dict[tuple[Any, ...], tuple[Any, ...]]
"""The rows of one sink by their key."""

ONE_BY_ONE: Final = 8
"""Most records that are also tried one by one."""
SHOWN: Final = 3
"""Rows of each kind in a message."""


def check_cuts(
    spark: SparkSession | None,
    transform: Transform | RecordTransform,
    records: Sequence[Record],
    *,
    keys: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
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
    keys: Mapping[str, Sequence[str]] | Sequence[str] | None,
    args: tuple[str, ...],
) -> dict[str, Table]:
    """Return what each sink's table holds after these batches."""
    tables: dict[str, Table] = {}
    for piece in pieces:
        for sink, (names, rows) in _run(spark, transform, piece, args).items():
            key = keys.get(sink) if isinstance(keys, Mapping) else keys
            for row in rows:
                values = tuple((name, _plain(row[name])) for name in names)
                place = values if key is None else tuple(_plain(row[name]) for name in key)
                tables.setdefault(sink, {})[place] = values
    return tables


def _run(
    spark: SparkSession | None,
    transform: Transform | RecordTransform,
    records: Sequence[Record],
    args: tuple[str, ...],
) -> dict[str, tuple[list[str], list[Any]]]:
    """Return by sink the names of the columns and the rows."""
    if takes_record_batches(transform):
        return _run_on_records(cast("RecordTransform", transform), records, args)
    if spark is None:
        raise TypeError("a transform of DataFrames needs a Spark session")
    return _run_on_frame(spark, cast("Transform", transform), records, args)


def _run_on_frame(
    spark: SparkSession, transform: Transform, records: Sequence[Record], args: tuple[str, ...]
) -> dict[str, tuple[list[str], list[Any]]]:
    from pyspark.sql import DataFrame  # noqa: PLC0415 - Spark's imports take a second

    from fencepost.testing import context, frame  # noqa: PLC0415 - the package imports this module

    batch: BatchContext = context(spark, args=args, offsets=_spans(records))
    result = transform(frame(spark, records), batch)
    outputs = {"": result} if isinstance(result, DataFrame) else result
    return {
        sink: (sorted(output.columns), output.select(*sorted(output.columns)).collect())
        for sink, output in outputs.items()
    }


def _run_on_records(
    transform: RecordTransform, records: Sequence[Record], args: tuple[str, ...]
) -> dict[str, tuple[list[str], list[Any]]]:
    from fencepost.testing import record_batch, record_context  # noqa: PLC0415 - the package imports this module

    result = transform(record_batch(records), record_context(args=args, offsets=_spans(records)))
    outputs = result if isinstance(result, Mapping) else {"": result}
    return {sink: (sorted(output.schema.names), output.to_pylist()) for sink, output in outputs.items()}


def _spans(records: Sequence[Record]) -> dict[str, tuple[int, int]]:
    """Return {'topic/partition': (first offset, end)}."""
    spans: dict[str, tuple[int, int]] = {}
    for topic, partition, offset in map(_coordinates, records):
        start, end = spans.get(f"{topic}/{partition}", (offset, offset))
        spans[f"{topic}/{partition}"] = (min(start, offset), max(end, offset + 1))
    return spans


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a row; one line per kind
    """Return a value that can be compared and hashed."""
    match value:
        case dict():
            return tuple(sorted(((_plain(key), _plain(one)) for key, one in value.items()), key=repr))
        case list() | tuple():
            return tuple(_plain(one) for one in value)
        case bytearray():
            return bytes(value)
        case float() if value != value:  # noqa: PLR0124 - NaN, which is not equal to itself
            return "NaN"
        case _:
            return value


def _difference(sink: str, cut: str, pieces: Pieces, one: set[tuple[Any, ...]], many: set[tuple[Any, ...]]) -> str:
    batches = " | ".join(
        ", ".join(f"{key} [{start}, {end})" for key, (start, end) in _spans(piece).items()) for piece in pieces
    )
    lines = [
        f"the output{f' for sink {sink!r}' if sink else ''} depends on where batches are cut",
        f"cut {cut}: {batches}",
        *_listed("only from one batch", one - many),
        *_listed("only from the cut batches", many - one),
    ]
    return "\n  ".join(lines)


def _listed(title: str, rows: set[tuple[Any, ...]]) -> Iterator[str]:
    for row in sorted(rows, key=repr)[:SHOWN]:
        yield f"{title}: {dict(row)}"
    if len(rows) > SHOWN:
        yield f"{title}: {len(rows) - SHOWN} more rows"
