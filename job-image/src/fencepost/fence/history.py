"""The history of a fence row: what each change changed, and now and then everything.

A busy pipeline changes its row many times a second, and its offsets name every partition.  So a change is kept as its
difference to the version before: the partitions that moved, and of a commit only that it reached the planned ends.  A
record is complete (`base`) when there is nothing to differ from: the first one of an hour's Cassandra partition, a new
epoch, a claim, and the first after a lost one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fencepost.fence.row import FenceRow

HISTORY_DAYS: Final = 7
"""Days that `fence_changes` keeps a change."""
NO_CHANGE: Final = (-1, -1)
"""The epoch and version of none: each change comes after it."""
MAPS: Final = ("offsets", "planned", "topic_ids", "leader_epochs", "growth_barrier", "figures")
_FIGURES: Final = ("epoch", "version", "clock", "committed_at", "records", "duration_ms", "state_bytes")
_TEXTS: Final = ("owner", "driver", "code")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One record. Without `base`, the maps hold what differs from the version before, and the texts are None.

    With `committed`, the offsets moved to the planned ends of the version before; the map has only what else moved.
    `lag` counts the offsets from the committed ones to the ends of the log, as the driver last saw these.
    """

    hour: datetime
    epoch: int
    version: int
    base: bool
    clock: int
    owner: str | None = None
    driver: str | None = None
    code: str | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[str, int] = field(default_factory=dict)
    growth_barrier: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, int] = field(default_factory=dict)
    committed_at: datetime | None = None
    records: int | None = None
    duration_ms: int | None = None
    state_bytes: int | None = None
    committed: bool = False
    lag: int | None = None
    written_at: int | None = None
    """When Cassandra took the record, in µs since 1970; known of one that was read."""


def change(before: FenceRow | None, after: FenceRow, now: datetime) -> Change:
    """Return the record of a change; `before` is None when the record must be complete."""
    figures: dict[str, Any] = {**{name: getattr(after, name) for name in _FIGURES}, "lag": _lag(after)}
    if before is not None and _can_differ(before, after):
        maps: dict[str, Any] = {name: _difference(getattr(before, name), getattr(after, name)) for name in MAPS}
        reached = {**before.offsets, **before.planned}
        committed = before.offsets != reached and dict(after.offsets) == reached
        if committed:
            maps["offsets"] = {}
        return Change(hour=hour_of(now), base=False, committed=committed, **figures, **maps)
    whole: dict[str, Any] = {name: getattr(after, name) for name in (*_TEXTS, *MAPS)}
    return Change(hour=hour_of(now), base=True, **figures, **whole)


def restored(pipeline: str, changes: Iterable[Change]) -> Iterator[tuple[Change, FenceRow]]:
    """Yield each record and the row after it, oldest first, from the first complete record on."""
    return replayed(pipeline, sorted(changes, key=lambda record: (record.epoch, record.version)))


def replayed(
    pipeline: str, changes: Iterable[Change], *, before: FenceRow | None = None
) -> Iterator[tuple[Change, FenceRow]]:
    """Yield what `restored` yields, of records that come oldest first; only one row is held at a time.

    `before` is the row that the first one changed: then that need not be complete.
    """
    row = before
    for record in changes:
        values: dict[str, Any] = {name: getattr(record, name) for name in (*_FIGURES, *MAPS)}
        if record.base:
            row = FenceRow(
                pipeline=pipeline, owner=record.owner or "", driver=record.driver, code=record.code, **values
            )
        elif row is not None:
            moved = {name: {**getattr(row, name), **values[name]} for name in MAPS}
            if record.committed:
                moved["offsets"] = {**row.offsets, **row.planned, **values["offsets"]}
            row = replace(row, **{**values, **moved})
        if row is not None:
            yield record, row


def first_commit(pipeline: str, changes: Iterable[Change], version: int) -> Mapping[str, int] | None:
    """Return the offsets at which the first commit after a version of the row began.

    `changes` are those after that version, oldest first.  None without a commit, or where a record is missing before.
    """
    before: FenceRow | None = None
    for _, row in replayed(pipeline, changes):
        if row.version != (before.version if before is not None else version) + 1:
            return None
        if before is not None and row.committed_at != before.committed_at:
            return before.offsets
        before = row
    return None


def hour_of(moment: datetime) -> datetime:
    """Return the hour that a moment is in, in UTC: with the pipeline the partition key of the history."""
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def history_hours() -> list[datetime]:
    """Return every hour of which the history may still hold changes, the newest first."""
    now = hour_of(datetime.now(UTC))
    return [now - timedelta(hours=ago) for ago in range(24 * HISTORY_DAYS + 1)]


def _lag(row: FenceRow) -> int | None:
    """Return the lag of the partitions that are committed; None where the driver has not seen an end."""
    seen = [max(end - row.offsets[key], 0) for key, end in row.log_ends.items() if key in row.offsets]
    return sum(seen) if seen else None


def _can_differ(before: FenceRow, after: FenceRow) -> bool:
    """Return whether a difference says it all: the same run continued, and no partition left a map."""
    same = all(getattr(before, name) == getattr(after, name) for name in ("epoch", *_TEXTS))
    return same and all(set(getattr(before, name)) <= set(getattr(after, name)) for name in MAPS)


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in after.items() if before.get(key) != value}
