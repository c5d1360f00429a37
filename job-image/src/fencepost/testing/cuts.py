"""Does a transform's output depend on where batches are cut?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from fencepost.testing.rows import Keys, Values, listed
from fencepost.testing.runs import BatchRuns, Record, by_partition, in_order, spans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import RecordTransform, Transform

Pieces: TypeAlias = Sequence[Sequence[Record]]

ONE_BY_ONE: Final = 8
"""Most records that are also tried one by one."""


def check_cuts(
    spark: SparkSession | None,
    transform: Transform | RecordTransform,
    records: Sequence[Record],
    *,
    keys: Keys = None,
    args: tuple[str, ...] = (),
    states: Mapping[str, DataFrame] | None = None,
    seed: int = 0,
) -> None:
    """Run `transform` on all `records` as one batch and as several batches, and compare the rows.

    A transform of record batches needs no `spark`. `records` are as for `fencepost.testing.frame`. They are cut into
    halves, by partition, one by one (up to ONE_BY_ONE records), and twice at places that `seed` decides. Without
    `keys`, each cut must give the same set of rows. With `keys`, the columns of the table's primary key (per sink if
    there are several), it must leave the same table: the row of a later batch replaces the row of an earlier one.
    `states` are what `context.state` returns.

    Raises AssertionError with the cut and the rows that differ.
    """
    runs = BatchRuns(spark, transform, args, states or {})
    ordered = in_order(records)
    whole = runs.tables([ordered], keys)
    for name, pieces in _cuts(ordered, random.Random(seed)):  # noqa: S311 - places to cut, no secret
        found = runs.tables(pieces, keys)
        for sink in sorted({*whole, *found}):
            one, many = set(whole.get(sink, {}).values()), set(found.get(sink, {}).values())
            if one != many:
                raise AssertionError(_difference(sink, name, pieces, one, many))


def _cuts(records: Sequence[Record], choice: random.Random) -> Iterator[tuple[str, Pieces]]:
    """Yield names of cuts, and the batches that they give."""
    parts = by_partition(records)
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


def _difference(sink: str, cut: str, pieces: Pieces, one: set[Values], many: set[Values]) -> str:
    batches = " | ".join(
        ", ".join(f"{key} [{start}, {end})" for key, (start, end) in spans(piece).items()) for piece in pieces
    )
    lines = [
        f"the output{f' for sink {sink!r}' if sink else ''} depends on where batches are cut",
        f"cut {cut}: {batches}",
        *listed("only from one batch", one - many),
        *listed("only from the cut batches", many - one),
    ]
    return "\n  ".join(lines)
