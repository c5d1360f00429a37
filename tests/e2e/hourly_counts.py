"""A plain count of the hours of departures in Kafka's log: the table, and what the state holds of it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from e2e.recomputed import Entry, Recomputed
from flights.dataset import Event
from flights.expectation import departure
from harness.kafka_log import Record

WATERMARK: Final = timedelta(days=7)
"""LATEST of the example."""
UNCLEAR: Final = timedelta(days=4), timedelta(days=10)
"""No record may be that late in its partition: whether it counts would depend on the cuts of the batches."""
HOUR: Final = timedelta(hours=1)

Hour = tuple[str, datetime]
"""Airport and hour."""


@dataclass(frozen=True, slots=True)
class Count:
    """Departures of an hour, and the greatest coordinates among their records."""

    departures: int
    last: tuple[int, int]


def plain_count(log: Iterable[Record]) -> Recomputed:
    """Count. Records of a partition are in the order of the log; those that are weeks late do not count."""
    hours: dict[Hour, Count] = {}
    newest: dict[int, datetime] = {}
    late = 0
    for record in log:
        origin, left = departed(record)
        if left is None:
            continue
        newest[record.partition] = max(left, newest.get(record.partition, left))
        behind = newest[record.partition] - left
        assert not UNCLEAR[0] < behind < UNCLEAR[1], f"record {record.partition}@{record.offset} is {behind} late"
        if behind >= UNCLEAR[1]:
            late += 1
            continue
        hour = origin, left.replace(minute=0)
        place = record.partition, record.offset
        before = hours.get(hour, Count(0, place))
        hours[hour] = Count(before.departures + 1, max(before.last, place))
    watermark = max(newest.values()) - WATERMARK
    return Recomputed(
        rows={hour: count.departures for hour, count in hours.items()},
        state={hour: count for hour, count in hours.items() if hour[1] + HOUR > watermark},
        watermark=watermark,
        late=late,
    )


def departed(record: Record) -> tuple[str, datetime | None]:
    """Return from where a record's flight left, and when."""
    fields = json.loads(record.value)
    left = departure(Event(fields["id"], record.key, fields))["departed_at"]
    return str(fields["origin"]), left if isinstance(left, datetime) else None


def counted_from(target: Mapping[int, int], log: Iterable[Record]) -> Recomputed:
    """Count as `plain_count`, with empty state at these offsets by partition.

    What was counted before stays in the table, for the hours that no later record is of.
    """
    records = list(log)
    before = plain_count(record for record in records if record.offset < target[record.partition])
    after = plain_count(record for record in records if record.offset >= target[record.partition])
    assert before.late == 0, "the first batch of empty state has no watermark"
    assert before.rows.keys() - after.rows.keys(), "no hour is over"
    assert before.rows.keys() & after.rows.keys(), "no hour is counted in parts"
    return replace(after, rows={**before.rows, **after.rows})


def looked_up(log: Iterable[Record], state: Mapping[Hashable, object]) -> dict[Hashable, object]:
    """Return, by partition and offset, the departures that a state has of the hour of each record; None of no hour."""
    found: dict[Hashable, object] = {}
    for record in log:
        origin, left = departed(record)
        count = None if left is None else state.get((origin, left.replace(minute=0)))
        found[record.partition, record.offset] = count.departures if isinstance(count, Count) else None
    return found


def of_table(row: Any) -> Entry:
    """Return a row of the table."""
    return (row.origin, row.hour.replace(tzinfo=UTC)), row.departures


def of_state(row: Any) -> Entry:
    """Return a row of the state."""
    key, value = row["key"], row["value"]
    begin = datetime.fromisoformat(key["window"]["start"])
    return (key["origin"], begin), Count(value["count"], (value["max"]["partition"], value["max"]["offset"]))
