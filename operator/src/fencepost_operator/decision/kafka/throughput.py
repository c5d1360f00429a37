"""How fast a pipeline commits, and when it will have caught up: figures over windows of a minute and more.

The producers' rate counts: a lag of a million records at 5,000 records/s takes 200 s if nothing arrives, and does not
end if 5,000 arrive per second.  So the estimate follows from how the lag itself changed over the window.

A window begins and ends with a commit, because rates over parts of batches say little: one batch may take minutes.
The first one begins with the run's first commit: the start of the cluster and of the driver does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost.fence import FenceRow
from fencepost_operator.api import Spec, ThroughputStatus
from fencepost_operator.api.quantities import parse_duration

WINDOW: Final = timedelta(seconds=60)
"""Shortest time over which a rate is taken."""
FALLING_BEHIND_AFTER: Final = timedelta(minutes=5)
"""How long the lag has to grow from window to window until that is reported: a burst is over by then."""
KEPT_UP: Final = 2
"""Intervals between batches, or target durations, whose records may wait without being a backlog."""
LONGEST: Final = 365 * 24 * 3600
"""Seconds; what would take longer has no end in sight."""
LARGEST: Final = 2**53
"""Of a figure in the status. The fence row is in the tenant's Cassandra: its offsets may be anything."""


def throughput_after(
    before: ThroughputStatus | None,
    *,
    spec: Spec,
    offsets: Mapping[str, int],
    row: FenceRow,
    lag: int,
    now: datetime,
) -> ThroughputStatus | None:
    """Return the figures after one more look; `offsets` are those of the look before, `lag` is that of now.

    None before the run's first commit, unless there is nothing to commit.
    Nothing changes while the pipeline is idle, so that nothing is written then.
    """
    moved = _moved(offsets, row.offsets)
    if before is None and lag and not moved:
        return None
    if before is None or (_is_idle(before, now) and (moved or lag)):
        return ThroughputStatus(since=now, lag=min(lag, LARGEST))
    if not moved and not lag and not before.records:
        return replace(before, records_per_second=0, estimated_catch_up="0s", lag=0, growing_since=None)
    records, elapsed = min(before.records + moved, LARGEST), (now - before.since).total_seconds()
    is_over = elapsed >= WINDOW.total_seconds() and (moved or not lag)
    return _closed(before, spec, row, records, lag, elapsed, now) if is_over else replace(before, records=records)


def catch_up_seconds(throughput: ThroughputStatus | None) -> float | None:
    """Return the estimate; None without one, or while the lag does not shrink."""
    if throughput is None or throughput.estimated_catch_up is None:
        return None
    try:
        return parse_duration(throughput.estimated_catch_up)
    except ValueError:  # someone else wrote it
        return None


def is_falling_behind(throughput: ThroughputStatus | None, now: datetime) -> bool:
    """Return whether the lag has grown for long although each batch was full."""
    if throughput is None or throughput.growing_since is None:
        return False
    return now - throughput.growing_since >= FALLING_BEHIND_AFTER


def _closed(
    before: ThroughputStatus, spec: Spec, row: FenceRow, records: int, lag: int, elapsed: float, now: datetime
) -> ThroughputStatus:
    """Return the figures of the window that ends now, and begin the next one."""
    rate = records / elapsed
    waiting = rate * KEPT_UP * max(spec.batch_interval, spec.source.kafka.target_batch_duration)
    full = min(lag, before.lag) > (row.records or 0)
    grows = lag > before.lag and lag > waiting and full
    return ThroughputStatus(
        records_per_second=round(rate),
        estimated_catch_up="0s" if lag <= waiting else _estimate(lag, (before.lag - lag) / elapsed),
        since=now,
        lag=min(lag, LARGEST),
        growing_since=(before.growing_since or before.since) if grows else None,
    )


def _estimate(lag: int, falls: float) -> str | None:
    """Return how long a lag lasts that falls by so many records per second."""
    if falls <= 0 or lag > LONGEST * falls:
        return None
    return _rounded(lag / falls)


def _rounded(seconds: float) -> str:
    """Return a duration as coarse as an estimate is: '40s', '12m', '3h20m', '50h'."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{max(10, round(seconds, -1)):.0f}s"
    minutes = round(seconds / 60)
    if minutes < 60:  # noqa: PLR2004 - an hour
        return f"{minutes}m"
    hours, rest = divmod(round(minutes, -1), 60)
    return f"{hours}h{rest}m" if rest and hours < 24 else f"{hours}h"  # noqa: PLR2004 - a day


def _moved(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Return how many records were committed; a partition that is new in the row has nothing to count from."""
    moved = sum(max(0, offset - before[key]) for key, offset in after.items() if key in before)
    return min(moved, LARGEST)


def _is_idle(window: ThroughputStatus, now: datetime) -> bool:
    """Return whether nothing has happened for so long that the window would dilute the rate of what happens now."""
    return now - window.since >= WINDOW and window.records_per_second == 0 and not window.records and not window.lag
