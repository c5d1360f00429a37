"""How a batch is divided into Spark tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fencepost.batch import Range

SLICE_RECORDS: Final = 2_000
"""Records below which a second task costs more than it saves (dev/bench/driver: 1,000 rows in one task took
three quarters of the time that two tasks took)."""


def slices(ranges: Iterable[Range], tasks: int) -> list[tuple[Range, ...]]:
    """Cut ranges into at most `tasks` equal parts, for one Spark task each; small batches stay whole."""
    todo = [part for part in ranges if part.records > 0]
    total = sum(part.records for part in todo)
    count = max(1, min(tasks, -(-total // SLICE_RECORDS)))
    size = max(1, -(-total // count))
    parts: list[list[Range]] = [[]]
    room = size
    for part in todo:
        start = part.start
        while start < part.until:
            if room == 0:
                parts.append([])
                room = size
            until = min(part.until, start + room)
            # The epoch is of the record before the range, so the first piece alone may carry it.
            epoch = part.leader_epoch if start == part.start else None
            parts[-1].append(Range(part.topic, part.partition, start, until, epoch))
            room -= until - start
            start = until
    return [tuple(part) for part in parts]
