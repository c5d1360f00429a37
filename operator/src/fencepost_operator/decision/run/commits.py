"""What one observation shows of reading and committing: the lag, the newest commit, its rate, and what holds it up."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from fencepost.fence import FenceRow
from fencepost_operator.api import (
    CommittedStatus,
    EventTimeStatus,
    OfflinePartition,
    OpenTransaction,
    Spec,
    Status,
    ThroughputStatus,
)
from fencepost_operator.decision.kafka.event_time import event_time_after
from fencepost_operator.decision.kafka.lag import lags, readable
from fencepost_operator.decision.kafka.throughput import throughput_after
from fencepost_operator.decision.run import heartbeats
from fencepost_operator.decision.run.batch_progress import is_transient
from fencepost_operator.observation import Known, Observation

_LARGEST: Final = 2**63 - 1
"""Of a lag: the API server takes no larger integer, and refuses the whole status."""
OPEN_TRANSACTIONS: Final = 100
"""That the status keeps."""
OFFLINE_PARTITIONS: Final = 100
"""That the status keeps."""


def lag(spec: object, row: FenceRow | None, observation: Observation) -> tuple[int | None, int | None]:
    """Return how many records are still to be read, and how many the run could read now; None for what is unknown."""
    source = observation.source
    if row is None or not isinstance(source, Known) or not isinstance(spec, Spec):
        return None, None
    return min(sum(lags(spec, row, source.value).values()), _LARGEST), readable(spec, row, source.value)


def throughput(
    status: Status, spec: object, row: FenceRow | None, lag: int | None, observation: Observation
) -> ThroughputStatus | None:
    """Return how fast the run commits, None without one; while the lag is not known, nothing changes."""
    if status.run is None or status.run.ended_at is not None:
        return None
    if row is None or lag is None or not isinstance(spec, Spec):
        return status.throughput
    offsets = status.committed.offsets if status.committed is not None else {}
    return throughput_after(
        status.throughput,
        spec=spec,
        offsets=offsets,
        row=row,
        lag=lag,
        now=observation.now,
        is_first=observation.is_first,
    )


def committed(
    before: CommittedStatus | None, row: FenceRow | None, could_read: int | None, observation: Observation
) -> CommittedStatus | None:
    """Return the newest commit, and since when nothing has moved; `could_read` is how many records the run could read.

    Of what is unknown it keeps what was seen before.  An operator that begins measures again: two clocks that
    differ by ten minutes are not ten minutes without progress.
    """
    if not isinstance(observation.fence, Known) or not isinstance(observation.source, Known):
        return replace(before, observable_since=None) if before is not None else None
    if row is None:
        return before
    now, moved = observation.now, before is None or dict(before.offsets) != dict(row.offsets)
    since = before.since if before is not None else None
    done, done_at = _progress(before, row, observation)
    signed, alive_at = (
        _life(before, row, observation, moved=moved) if observation.source.value.by_driver else (None, None)
    )
    heartbeat, heartbeat_at, heartbeat_asked = heartbeats.seen(before, row, observation)
    observable_since = before.observable_since if before is not None and not observation.is_first else None
    return CommittedStatus(
        version=row.version,
        at=row.committed_at,
        since=None if not could_read else now if moved or since is None else since,
        observable_since=None if is_transient(observation.progress) else observable_since or now,
        records=row.records,
        offsets=dict(row.offsets),
        done=done,
        done_at=done_at,
        signed=signed,
        alive_at=alive_at,
        heartbeat=heartbeat,
        heartbeat_at=heartbeat_at,
        heartbeat_asked=heartbeat_asked,
    )


def event_time(status: Status, row: FenceRow | None, observation: Observation) -> EventTimeStatus | None:
    """Return the query's event time; while the row is not known, nothing changes."""
    if row is None:
        return status.event_time
    offsets = status.committed.offsets if status.committed is not None else {}
    return event_time_after(status.event_time, row, offsets, observation.now)


def _progress(
    before: CommittedStatus | None, row: FenceRow, observation: Observation
) -> tuple[int | None, datetime | None]:
    """Return how far the batch that begins at the row's version is, and when that was first observed."""
    known = (before.done, before.done_at) if before is not None and before.version == row.version else (None, None)
    progress = observation.progress.value if isinstance(observation.progress, Known) else None
    if progress is None or (progress.epoch, progress.version) != (row.epoch, row.version):
        return known
    grown = progress.done > (known[0] or 0)
    return (progress.done, observation.now) if grown else known


def _life(
    before: CommittedStatus | None, row: FenceRow, observation: Observation, *, moved: bool
) -> tuple[datetime | None, datetime | None]:
    """Return the newest sign of life, and when the driver was last seen to work; None before its first sign.

    A driver without one is not judged by them: its reports may not be readable.
    """
    signed, alive_at = (before.signed, before.alive_at) if before is not None else (None, None)
    report = observation.progress.value if isinstance(observation.progress, Known) else None
    if report is not None and report.epoch == row.epoch and report.at != signed:
        return report.at, observation.now
    return signed, observation.now if moved and alive_at is not None else alive_at


def open_transactions(before: tuple[OpenTransaction, ...], observation: Observation) -> tuple[OpenTransaction, ...]:
    """Return where an open transaction holds the end of a partition, for the ones that are open for longest.

    While the source is unknown, nothing changes.
    """
    source, now = observation.source, observation.now
    if not isinstance(source, Known):
        return before
    since = {(found.partition, found.offset): found.since for found in before}
    ends, marks = source.value.ends, source.value.high_watermarks
    found = [
        OpenTransaction(partition=key, offset=end, since=since.get((key, end), now), records=marks[key] - end)
        for key, end in sorted(ends.items())
        if marks.get(key, end) > end
    ]
    return tuple(sorted(found, key=lambda transaction: transaction.since)[:OPEN_TRANSACTIONS])


def offline_partitions(before: tuple[OfflinePartition, ...], observation: Observation) -> tuple[OfflinePartition, ...]:
    """Return the partitions for which no leader answers, those that are so for longest.

    While the source is unknown, nothing changes.
    """
    source, now = observation.source, observation.now
    if not isinstance(source, Known):
        return before
    since = {found.partition: found.since for found in before}
    found = [OfflinePartition(partition=key, since=since.get(key, now)) for key in source.value.offline]
    return tuple(sorted(found, key=lambda each: each.since)[:OFFLINE_PARTITIONS])
