"""When Kafka deletes records that are not committed yet.

By `retention.ms` that is the age of the partition's oldest uncommitted record against the setting.  By
`retention.bytes` it is an estimate: the start of the log, which deletion moves, reaches the committed offset after
(committed - start) / speed, with the speed that was measured between jumps of the start over minutes to hours.  Kafka
deletes whole segments, the active one last, so both are the earliest moment and not the exact one.

The status keeps moments instead of durations, and only what changed by more than the measurement's noise: the status
of a suspended or stalled pipeline is written once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from fencepost.contract import split_offset_key
from fencepost.fence import FenceRow
from fencepost_operator.api import DataRisk, Spec
from fencepost_operator.decision.kafka.lag import lags, unread_positions
from fencepost_operator.decision.wording import with_remedy
from fencepost_operator.observation import (
    DRIVER_ONLY,
    Backlog,
    Known,
    LogStart,
    Observation,
    Retention,
    Unknown,
    UnreadRecords,
    Watermarks,
)

BY_TIME: Final = "retention.ms"
BY_SIZE: Final = "retention.bytes"
FRESH: Final = timedelta(minutes=1)
"""Records younger than this are not worth a word in the status: any pipeline that streams has them."""
_FAR: Final = timedelta(days=36_500)
"""Estimates beyond this are discarded."""
_LATEST: Final = datetime.max.replace(tzinfo=UTC)
_NOISE: Final = 0.02
"""Of the retention: twice what the search for a record's age may be wrong by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """One partition's unread records: since when the oldest has been there, and when a limit deletes it.

    `horizon` is how long the limit keeps a record. `lost` counts records that are gone.
    """

    partition: str
    offset: int
    oldest: datetime | None
    expires: datetime | None = None
    limit: str | None = None
    horizon: timedelta = timedelta()
    retention: Retention
    lost: int = 0

    @property
    def warn_at(self) -> datetime | None:
        """From when on the status warns."""
        return None if self.expires is None else self.expires - margin(self.horizon)


def margin(horizon: timedelta) -> timedelta:
    """Return how long before the loss to warn: a day, or a quarter of the time that records are kept if that is longer.

    Never more than half of that time: records that are kept for an hour are not at risk as soon as they arrive.
    """
    return min(max(timedelta(days=1), horizon / 4), horizon / 2)


def backlog(spec: object, observation: Observation, risk: DataRisk | None) -> Backlog | None:
    """Return the figures of an observation; None while Kafka or the fence row is unknown.

    `risk` is what the status says: it stands where this observation could not look.
    """
    row = _row(observation)
    source, unread, now = observation.source, observation.unread, observation.now
    if row is None or not isinstance(source, Known) or not isinstance(spec, Spec):
        return None
    records = lags(spec, row, source.value)
    expires = risk.expires_at if risk is not None else None
    if not isinstance(unread, Known):
        left = None if expires is None else max(0.0, (expires - now).total_seconds())
        return Backlog(time_to_loss=left, lags=records)
    waiting = unread_positions(spec, row, source.value)
    oldest = [unread.value.oldest[key] for key in waiting if key in unread.value.oldest]
    moments = [each.expires for each in exposures(spec, row, source.value, unread.value, now) if each.expires]
    moments += [expires] if expires is not None else []
    return Backlog(
        time_lag=0.0 if not waiting else max(0.0, (now - min(oldest)).total_seconds()) if oldest else None,
        time_to_loss=max(0.0, (min(moments) - now).total_seconds()) if moments else None,
        lags=records,
    )


def data_risk(before: DataRisk | None, spec: object, observation: Observation) -> DataRisk | None:
    """Return what the status says about unread records; what could not be observed changes nothing."""
    source, unread, now = observation.source, observation.unread, observation.now
    if unread == DRIVER_ONLY:
        return DataRisk(unknown=with_remedy(DRIVER_ONLY.message, DRIVER_ONLY.remedy))
    if isinstance(observation.fence, Unknown) or not isinstance(source, Known) or not isinstance(unread, Known):
        return before
    row = observation.fence.value
    if not isinstance(spec, Spec):
        return before
    unknown = _unknown(unread.value)
    found = [] if row is None else list(exposures(spec, row, source.value, unread.value, now))
    worst = min(found, key=_urgency, default=None)
    if row is not None and before is not None and _outlasts(before, worst, spec, row, source.value, unread.value):
        return replace(before, unknown=unknown)
    if worst is None or not _is_material(worst, now):
        return DataRisk(unknown=unknown) if unknown else None
    return _settled(before, replace(_risk(worst, before, now), unknown=unknown))


def exposures(
    spec: Spec, row: FenceRow, source: Watermarks, unread: UnreadRecords, now: datetime
) -> Iterator[Exposure]:
    """Return the partitions whose unread records a limit deletes, may delete because it is unknown, or has deleted."""
    for key, position in unread_positions(spec, row, source).items():
        fact = unread.retention.get(split_offset_key(key)[0])
        retention = fact.value if isinstance(fact, Known) else Retention()
        oldest, start = unread.oldest.get(key), source.starts.get(key, 0)
        base = Exposure(partition=key, offset=position, oldest=oldest, retention=retention)
        if start > position:
            yield replace(base, oldest=None, expires=now, lost=start - position)
            continue
        length = max(0, source.ends[key] - start)
        by_size = _by_size(base, unread.log_starts.get(key), length)
        limits = [each for each in (_by_time(base), by_size) if each is not None]
        if limits:
            yield min(limits, key=_urgency)
        elif oldest is not None and not isinstance(fact, Known):
            yield base


def _by_time(base: Exposure) -> Exposure | None:
    time = base.retention.time
    if base.oldest is None or time is None:
        return None
    return replace(base, expires=base.oldest + time, limit=BY_TIME, horizon=time)


def _by_size(base: Exposure, start: LogStart | None, length: int) -> Exposure | None:
    """Estimate when the start of the log passes the offset; `length` is how many offsets the log holds now."""
    if base.retention.size is None or start is None or start.per_second <= 0 or base.offset < start.offset:
        return None
    seconds = (base.offset - start.offset) / start.per_second
    horizon = min(length / start.per_second, _FAR.total_seconds())
    if seconds > _FAR.total_seconds():
        return None
    expires = start.at + timedelta(seconds=seconds)
    return replace(base, expires=expires, limit=BY_SIZE, horizon=timedelta(seconds=horizon))


def _urgency(each: Exposure) -> tuple[bool, datetime, datetime, str]:
    """Return what sorts exposures: records that are gone before records that may go."""
    return not each.lost, each.expires or _LATEST, each.oldest or _LATEST, each.partition


def _is_material(each: Exposure, now: datetime) -> bool:
    if each.warn_at is not None and each.warn_at <= now:
        return True
    return each.oldest is not None and now - each.oldest >= FRESH


def _outlasts(
    before: DataRisk,
    worst: Exposure | None,
    spec: Spec,
    row: FenceRow,
    source: Watermarks,
    unread: UnreadRecords,
) -> bool:
    """Return whether what is recorded is more urgent than what was found, and could not be looked at again.

    An operator that has just started knows neither ages nor speeds yet, and a partition may have no leader now.
    """
    key = before.partition
    if key is None or before.offset is None or before.lost_records:
        return False
    waiting = unread_positions(spec, row, source)
    position = waiting.get(key, row.offsets.get(key) if key not in source.ends else None)
    if position is None or position < before.offset or source.starts.get(key, 0) > position:
        return False
    fact, stands_still = unread.retention.get(split_offset_key(key)[0]), position == before.offset
    if not isinstance(fact, Known):
        return stands_still and before.expires_at is not None
    if (_ms(fact.value), fact.value.size) != (before.retention_ms, before.retention_bytes):
        return False
    seen = key in unread.log_starts if before.limit == BY_SIZE else key in unread.oldest
    if seen or (before.limit == BY_SIZE and not stands_still):
        return False
    return worst is None or (not worst.lost and (before.expires_at or _LATEST) <= (worst.expires or _LATEST))


def _risk(worst: Exposure, before: DataRisk | None, now: datetime) -> DataRisk:
    expires, warn_at = worst.expires, worst.warn_at
    if worst.lost:
        same = before is not None and (before.partition, before.offset) == (worst.partition, worst.offset)
        known = before.expires_at if before is not None and same else None
        expires = warn_at = known if known is not None and known <= now else now
    return DataRisk(
        partition=worst.partition,
        offset=worst.offset,
        oldest_uncommitted_at=_whole_seconds(worst.oldest),
        expires_at=_whole_seconds(expires),
        warn_at=_whole_seconds(warn_at),
        limit=worst.limit,
        retention_ms=_ms(worst.retention),
        retention_bytes=worst.retention.size,
        lost_records=worst.lost or None,
    )


def _settled(before: DataRisk | None, after: DataRisk) -> DataRisk:
    """Return the recorded moments where the new ones differ by no more than they may be wrong by."""
    if before is None or _facts(before) != _facts(after):
        return after
    moments = (
        (before.oldest_uncommitted_at, after.oldest_uncommitted_at),
        (before.expires_at, after.expires_at),
        (before.warn_at, after.warn_at),
    )
    noise = _noise(before)
    if any((old is None) != (new is None) or (old and new and abs(old - new) > noise) for old, new in moments):
        return after
    return replace(before, unknown=after.unknown)


def _facts(risk: DataRisk) -> tuple[object, ...]:
    setting = (risk.limit, risk.retention_ms, risk.retention_bytes)
    return risk.partition, risk.offset, risk.lost_records, setting


def _noise(risk: DataRisk) -> timedelta:
    """Return by how much the moments may be wrong: a part of the age, or of the time until an estimated loss."""
    kept = timedelta(milliseconds=risk.retention_ms or 0)
    if risk.expires_at is not None and risk.warn_at is not None and risk.limit == BY_SIZE:
        kept = 4 * (risk.expires_at - risk.warn_at)
    return max(FRESH, min(kept, _FAR) * _NOISE)


def _unknown(unread: UnreadRecords) -> str | None:
    """Return which topic's retention cannot be known until a user acts, and the remedy."""
    for fact in unread.retention.values():
        if isinstance(fact, Unknown) and not fact.is_transient:
            return with_remedy(fact.message, fact.remedy)
    return None


def _ms(retention: Retention) -> int | None:
    return None if retention.time is None else retention.time // timedelta(milliseconds=1)


def _row(observation: Observation) -> FenceRow | None:
    return observation.fence.value if isinstance(observation.fence, Known) else None


def _whole_seconds(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(microsecond=0)
