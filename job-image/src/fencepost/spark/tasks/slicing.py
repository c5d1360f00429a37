"""How a batch is divided into Spark tasks."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from fencepost.batch import Range

SLICE_RECORDS: Final = 2_000
"""Records below which a second task costs more than it saves (dev/bench/driver: 1,000 rows in one task took
three quarters of the time that two tasks took)."""
SLICE_BYTES: Final = 1024 * 1024
"""Bytes from which a second task is worth it whatever the number of records: SLICE_RECORDS of the usual 500."""


LeftOut: TypeAlias = Mapping[str, Collection[tuple[int, int]]]
"""Of each partition the offsets and the leader epochs of records that no task reads."""
NOTHING: Final[LeftOut] = {}


def slices(
    ranges: Iterable[Range],
    tasks: int,
    *,
    split: bool = True,
    record_size: float | None = None,
    left_out: LeftOut = NOTHING,
) -> list[tuple[Range, ...]]:
    """Divide ranges among at most `tasks` Spark tasks; small batches stay whole.

    The parts are equal, and several tasks share a partition. Without `split` a partition stays in one task, in the
    order of its offsets, and the parts are as equal as whole partitions allow. `record_size` is in bytes, as far as it
    is known: a few large records are worth several tasks.
    """
    todo = [part for part in ranges if part.records > 0]
    total = sum(part.records for part in todo)
    smallest = max(1, int(min(SLICE_RECORDS, SLICE_BYTES / (record_size or 1))))
    count = max(1, min(tasks, -(-total // smallest)))
    parts = _cut(todo, max(1, -(-total // count))) if split else _distributed(todo, count)
    return [tuple(_without(whole, left_out.get(whole.key, ())) for whole in part) for part in parts]


def _without(whole: Range, records: Collection[tuple[int, int]]) -> Range:
    found = sorted((offset, epoch) for offset, epoch in records if whole.start <= offset < whole.until)
    return replace(whole, left_out=tuple(found)) if found else whole


def _distributed(todo: Iterable[Range], count: int) -> list[tuple[Range, ...]]:
    """Give each range to the part with the fewest records, the largest range first."""
    parts: list[list[Range]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for part in sorted(todo, key=lambda one: (-one.records, one)):
        records, index = loads[0]
        parts[index].append(part)
        heapq.heapreplace(loads, (records + part.records, index))
    return [tuple(part) for part in parts if part] or [()]


def _cut(todo: Iterable[Range], size: int) -> list[tuple[Range, ...]]:
    """Cut ranges into parts of `size` records."""
    parts: list[list[Range]] = [[]]
    room = size
    for part in todo:
        start = part.start
        while start < part.until:
            if room == 0:
                parts.append([])
                room = size
            until = min(part.until, start + room)
            parts[-1].append(replace(part.after(start), until=until))
            room -= until - start
            start = until
    return [tuple(part) for part in parts]
