"""The event time of a stateful pipeline: a watermark that is stuck, and rows that were dropped as older than it.

Spark reports one watermark of a query, and no event time of a partition.  The fence row has the largest timestamp that
Kafka has of each partition's records.  A message shows these, and infers from them which partition is quiet, or so far
ahead that the records of the others are late.  Where the query takes its event time from another column, the two may
differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from fencepost.contract import split_offset_key
from fencepost.contract.guidance import remedy_of
from fencepost.fence import FenceRow
from fencepost_operator.api import EventTimeStatus, Reason, Spec, Status, condition_of
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.wording import listed, with_remedy
from fencepost_operator.observation import Known

WATERMARK_STUCK: Final = "WatermarkStuck"
LATE_ROWS_DROPPED: Final = "LateRowsDropped"
STUCK_AFTER: Final = timedelta(minutes=15)
"""From the first to the last of the commits that leave the watermark where it is, or ahead of most records."""
LATE_FOR: Final = timedelta(minutes=30)
"""How long dropped rows are reported after the last of them."""
_BEGIN: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 253_402_300_799_999
"""The last ms of the year 9999. The fence row is in the tenant's Cassandra: its numbers may be anything."""


def event_time_after(
    before: EventTimeStatus | None, row: FenceRow, offsets: Mapping[str, int], now: datetime
) -> EventTimeStatus | None:
    """Return the event time after one more look; `offsets` are those of the look before.

    None for a pipeline without event time.  A look at which nothing new is committed lets nothing last longer.
    """
    if row.watermark is None and not row.late_rows:
        return None
    known = before or EventTimeStatus(late_rows=row.late_rows)
    watermark = None if row.watermark is None else _moment(row.watermark)
    is_still, read = watermark is not None and watermark == known.watermark, _read(offsets, row)
    since = known.held_since if is_still or read else None
    if read:
        since = (since or now) if is_still or _runs_ahead(row, read) else None
    held = known.held_seconds if since is not None else 0
    return EventTimeStatus(
        watermark=watermark,
        held_since=since,
        held_seconds=max(0, int((now - since).total_seconds())) if since is not None and read else held,
        late_rows=row.late_rows,
        late_at=now if row.late_rows > known.late_rows else known.late_at,
    )


def watermark_stuck(context: Context, status: Status) -> str:
    """Return why the watermark does not move, or runs away, '' when it is as it should be or nothing runs.

    What a look at which nothing new is committed shows says nothing of the cause: then the message is as before.
    """
    figures, spec, fence = status.event_time, context.pipeline.spec, context.observation.fence
    if figures is None or not context.is_streaming or figures.held_seconds < STUCK_AFTER.total_seconds():
        return ""
    before, reported = context.pipeline.status, condition_of(context.pipeline.status.conditions, WATERMARK_STUCK)
    row = fence.value if isinstance(fence, Known) else None
    read = _read(before.committed.offsets, row) if row is not None and before.committed is not None else frozenset()
    if row is None or not read or not isinstance(spec, Spec):
        return reported.message if reported is not None else ""
    return with_remedy(
        f"Since {_shown(figures.held_since)} records are committed, and the watermark is {_shown(figures.watermark)}: "
        f"{_cause(row, read, spec.source.kafka.topics)}",
        remedy_of(Reason.WATERMARK_STUCK),
    )


def late_rows_dropped(status: Status, now: datetime) -> str:
    """Return how many rows were dropped as late, '' when none was for a while."""
    figures = status.event_time
    if figures is None or figures.late_at is None or now - figures.late_at >= LATE_FOR:
        return ""
    rows = "1 row was" if figures.late_rows == 1 else f"{figures.late_rows} rows were"
    return with_remedy(
        f"{rows} dropped as older than the watermark since the pipeline began, the last ones at "
        f"{_shown(figures.late_at)}",
        remedy_of(Reason.LATE_ROWS_DROPPED),
    )


def _read(offsets: Mapping[str, int], row: FenceRow) -> frozenset[str]:
    """Return the partitions of which records were committed since the offsets were these."""
    return frozenset(key for key, offset in row.offsets.items() if offset > offsets.get(key, offset))


def _runs_ahead(row: FenceRow, read: Collection[str]) -> bool:
    """Return whether half of the partitions that are read have no record as new as the watermark, and another has one.

    Where no partition has one, event times are not what the timestamps are: those of departures are in the future.
    """
    times, watermark = row.record_times, row.watermark or 0
    known = [key for key in read if key in times]
    behind = [key for key in known if times[key] < watermark]
    return bool(behind) and 2 * len(behind) >= len(known) and bool(_ahead(row, times))


def _ahead(row: FenceRow, keys: Collection[str]) -> list[str]:
    """Return the partitions with a record as new as the watermark, the newest first."""
    times, watermark = row.record_times, row.watermark or 0
    return sorted((key for key in keys if times.get(key, -1) >= watermark), key=lambda key: (-times[key], key))


def _cause(row: FenceRow, read: Collection[str], topics: Collection[str]) -> str:
    times, wanted = row.record_times, {key for key in row.offsets if split_offset_key(key)[0] in topics}
    ahead = _ahead(row, wanted)
    if _runs_ahead(row, read):
        names = listed([f"{key} up to {_shown(_moment(times[key]))}" for key in ahead])
        return f"half of the partitions that are read have only older records, by Kafka's timestamps; ahead is {names}"
    if not ahead:
        return "no record has a timestamp as new, so an event time in the future may have moved it"
    recent = times[ahead[0]] - STUCK_AFTER // timedelta(milliseconds=1)
    quiet = sorted((key for key in wanted if times.get(key, -1) <= recent), key=lambda key: (times.get(key, -1), key))
    if not quiet:
        return "each partition has records with new timestamps, so their event times do not rise"
    names = listed([f"{key} up to {_shown(_moment(times[key]))}" if key in times else f"{key}" for key in quiet])
    return f"without newer records, by Kafka's timestamps, are {names}"


def _moment(milliseconds: int) -> datetime:
    return _BEGIN + timedelta(milliseconds=min(milliseconds, _LATEST))


def _shown(moment: datetime | None) -> str:
    return "unknown" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
