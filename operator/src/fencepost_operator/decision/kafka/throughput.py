"""How fast a pipeline commits, and when it will have caught up: figures over windows of a minute and more.

The producers' rate counts: a lag of a million records at 5,000 records/s takes 200 s if nothing arrives, and does not
end if 5,000 arrive per second.  So the estimate follows from how the lag itself changed over the window.

A window begins and ends with a commit, because rates over parts of batches say little: one batch may take minutes.
The first one begins with the run's first commit: the start of the cluster and of the driver does not count.

An operator that begins drops the window of the one before: the length of it is not known, as it began by another clock.
How long the lag grows is the sum of the windows' lengths.
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
    is_first: bool,
) -> ThroughputStatus | None:
    """Return the figures after one more look; `offsets` are those of the look before, `lag` is that of now.

    None before the run's first commit, unless there is nothing to commit.
    Nothing changes while the pipeline is idle, so that nothing is written then.
    """
    moved = _moved(offsets, row.offsets)
    if before is None or before.since is None or is_first:
        return _begun(before, lag, now) if moved or not lag else _unbegun(before)
    elapsed = now - before.since
    if elapsed >= WINDOW and _is_idle(before) and (moved or lag):
        return _begun(None, lag, now)
    if not moved and not lag and not before.records:
        return replace(before, records_per_second=0, estimated_catch_up="0s", lag=0, growing_seconds=0)
    before = replace(before, records=min(before.records + moved, LARGEST))
    is_over = elapsed >= WINDOW and (moved or not lag)
    return _closed(before, spec, row, lag, elapsed.total_seconds(), now) if is_over else before


def catch_up_seconds(throughput: ThroughputStatus | None) -> float | None:
    """Return the estimate; None without one, or while the lag does not shrink."""
    if throughput is None or throughput.estimated_catch_up is None:
        return None
    try:
        return parse_duration(throughput.estimated_catch_up)
    except ValueError:  # someone else wrote it
        return None


def is_falling_behind(throughput: ThroughputStatus) -> bool:
    """Return whether the lag has grown for long although each batch was full."""
    return throughput.growing_seconds >= FALLING_BEHIND_AFTER.total_seconds()


def _begun(before: ThroughputStatus | None, lag: int, now: datetime) -> ThroughputStatus:
    """Begin a window; the figures of the last complete one stay until this one is over."""
    return replace(before or ThroughputStatus(), since=now, records=0, lag=min(lag, LARGEST))


def _unbegun(before: ThroughputStatus | None) -> ThroughputStatus | None:
    """Drop the window in progress; the next commit begins another one."""
    return before and replace(before, since=None, records=0, lag=0)


def _closed(
    before: ThroughputStatus, spec: Spec, row: FenceRow, lag: int, elapsed: float, now: datetime
) -> ThroughputStatus:
    """Return the figures of the window that ends now, and begin the next one."""
    rate = before.records / elapsed
    waiting = rate * KEPT_UP * max(spec.batch_interval, spec.source.kafka.target_batch_duration)
    full = min(lag, before.lag) > (row.records or 0)
    grows = lag > before.lag and lag > waiting and full
    return ThroughputStatus(
        records_per_second=round(rate),
        estimated_catch_up="0s" if lag <= waiting else _estimate(lag, (before.lag - lag) / elapsed),
        since=now,
        lag=min(lag, LARGEST),
        growing_seconds=min(before.growing_seconds + int(elapsed), LARGEST) if grows else 0,
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


def _is_idle(window: ThroughputStatus) -> bool:
    """Return whether nothing happens: a long window would dilute the rate of what happens next."""
    return window.records_per_second == 0 and not window.records and not window.lag
