"""What the query computes: totals per key, and counts of windows that close when the watermark has passed them.

Both are functions of the offsets and of the watermark alone, wherever batches are cut, as the fence asks of output.  So
what an undisturbed run has at some offsets is known without playing it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, TypeAlias

TOPIC: Final = "orders"
KEYS: Final = (f"{TOPIC}/0", f"{TOPIC}/1")
STORES: Final = 2
"""Partitions of the state."""
WINDOW: Final = 4
"""Event time of a window; the event time of a record is its offset."""
DELAY: Final = 2
"""Of the watermark. Plans keep the partitions closer than that, so that no record is late."""
PER_PARTITION: Final = 3

Ends: TypeAlias = tuple[int, int]
Row: TypeAlias = tuple[str, int, int]
"""The key of an output row: what it is of, and which."""
State: TypeAlias = dict[str, int]
Record: TypeAlias = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a state is made of: all records since `origin`, where it began empty, but those that were never read."""

    origin: Ends
    unread: frozenset[Record] = frozenset()
    """Left out, or accepted as lost."""

    def beyond(self, end: Ends, start: Ends) -> Past:
        """Return the past of a state that ends at `end`, once it continues at `start`."""
        return self if start == end else replace(self, unread=self.unread | set(_records(end, start)))


@dataclass(slots=True)
class Update:
    """What a batch does to one store: the new values, what is removed, and the rows that it writes."""

    puts: State = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    rows: dict[Row, int] = field(default_factory=dict)


def ends_of(offsets: Mapping[str, int]) -> Ends:
    """Return offsets by partition; a partition that is not read yet is at 0."""
    return offsets.get(KEYS[0], 0), offsets.get(KEYS[1], 0)


def watermark_after(watermark: int, end: Ends) -> int:
    """Return the watermark of the batch after one that ends there."""
    return max(watermark, max(end) - 1 - DELAY)


def store_of(partition: int, offset: int) -> int:
    """Return the store that has the total of a record's key."""
    return (partition + offset % PER_PARTITION) % STORES


def updated(
    state: Mapping[str, int], store: int, start: Ends, end: Ends, watermark: int, unread: frozenset[Record]
) -> Update:
    """Return what the batch from `start` to `end` does to a store."""
    update = Update()
    found = dict(state)
    for partition, offset in _records(start, end, unread):
        key, window = f"total/{partition}/{offset % PER_PARTITION}", f"window/{offset // WINDOW}"
        if store_of(partition, offset) == store:
            total = found.get(key, 0) + _value(partition, offset)
            found[key] = update.puts[key] = update.rows["total", partition, offset] = total
        if offset // WINDOW % STORES == store:
            assert not _is_closed(offset // WINDOW, watermark), "a record is late"
            found[window] = update.puts[window] = found.get(window, 0) + 1
    for key, count in found.items():
        kind, _, window = key.partition("/")
        if kind == "window" and _is_closed(int(window), watermark):
            update.rows["window", 0, int(window)] = count
            update.removed.append(key)
            update.puts.pop(key, None)
    return update


@cache
def expected_state(store: int, past: Past, end: Ends, watermark: int) -> Mapping[str, int]:
    """Return what an undisturbed run has in a store at these offsets, after a commit at this watermark."""
    found: State = {}
    for partition, offset in _records(past.origin, end, past.unread):
        if store_of(partition, offset) == store:
            key = f"total/{partition}/{offset % PER_PARTITION}"
            found[key] = found.get(key, 0) + _value(partition, offset)
        window = offset // WINDOW
        if window % STORES == store and not _is_closed(window, watermark):
            found[f"window/{window}"] = found.get(f"window/{window}", 0) + 1
    return found


@cache
def expected_rows(past: Past, end: Ends, watermark: int) -> Mapping[Row, int]:
    """Return the output of an undisturbed run at these offsets."""
    totals: dict[tuple[int, int], int] = {}
    rows: dict[Row, int] = {}
    for partition, offset in _records(past.origin, end, past.unread):
        key = partition, offset % PER_PARTITION
        rows["total", partition, offset] = totals[key] = totals.get(key, 0) + _value(partition, offset)
        if _is_closed(offset // WINDOW, watermark):
            row = "window", 0, offset // WINDOW
            rows[row] = rows.get(row, 0) + 1
    return rows


def _records(start: Ends, end: Ends, unread: frozenset[Record] = frozenset()) -> Iterator[Record]:
    found = ((partition, offset) for partition in (0, 1) for offset in range(start[partition], end[partition]))
    return (record for record in found if record not in unread) if unread else found


def _value(partition: int, offset: int) -> int:
    return (offset * 7919 + partition * 104729) % 1013 + 1


def _is_closed(window: int, watermark: int) -> bool:
    return (window + 1) * WINDOW <= watermark
