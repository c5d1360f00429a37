"""How many workers a pipeline needs: pure arithmetic over its lag, what arrives, and what one worker does.

A worker costs as long as it is there, and to add or to remove one costs little: the driver stays, a new worker takes
part after some seconds, and a removed one repeats the tasks that it had begun.  So the number follows the load, by
three rules:

- More, at once, where the time lag will pass the target before new workers could prevent it: as many as are needed for
  what arrives, and to work off the rest within one target.  The lag below the target is a buffer: while it does not
  grow, there is nothing to do.
- More as well where the unread records would be deleted before half of the time until then has passed.
- Fewer, where fewer have been enough at each look for some minutes: the most that were needed in that time, for what
  arrives and for the backlog.  A few records that wait for long, as while one request is slow, need no worker.

What one worker does is known from batches of a backlog.  Before there was one, the number is lowered one by one until
there is: a small batch says little, because most of its time does not depend on its size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.api.quantities import format_duration
from fencepost_operator.api.spec.cluster import AutoscaleSpec
from fencepost_operator.api.status.runs import AutoscaleStatus

START: Final = timedelta(seconds=20)
"""Until a new worker takes part, and its effect is seen."""
FEWER_AFTER: Final = timedelta(minutes=4)
"""How long fewer workers must have been enough."""
SETTLED: Final = timedelta(seconds=75)
"""Until the mean over a minute has nothing of what came before."""
UNMEASURED_AFTER: Final = timedelta(minutes=10)
"""The same where it is not known what a worker does."""
NEAR: Final = 0.7
"""Of the target: where the time lag will be past it within START, workers are added."""
KEPT: Final = 0.2
"""Of the target: the part of the backlog that stays; the rest is worked off in the time of one target."""
CALM: Final = 0.65
"""Of the target: the time lag below which workers are removed where it is not known what one does."""
BURST: Final = 1.25
"""Of the usual rate: what arrives above it is a burst, and counts as it is; below it is noise, and the mean counts."""
SPARE: Final = 1.02
"""Capacity, for what arrives: without any, a backlog never ends."""
SPARE_OF_FEWER: Final = 1.03
"""The same for fewer workers, so that noise does not bring one back."""
NEW: Final = 0.2
"""Weight of a new batch in the rate."""
_FEW: Final = 0.01
"""Of the lag: a partition with less does not count; its few records say little about time."""
_UNKNOWN: Final = 0.0
"""The time lag of records that do not arrive any more, where their age is not known."""
_SIGNIFICANT: Final = 3
"""Digits of the rate in the status, so that it is not written again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is known of a pipeline at a moment; rates are in records per second, durations in seconds.

    `arriving` is over the last seconds and `usual` over the last minute, None before that was measured.  `time_lag` is
    that of the partition that is furthest behind.  `rate` is what one worker did in the newest batch of a backlog, and
    `measured` identifies what did it.  `most_useful` is a number of workers beyond which further ones have no task, and
    `lacking` whether not all that were chosen are ready.
    """

    now: datetime
    lag: int
    arriving: float | None
    usual: float | None
    time_lag: float
    time_to_loss: float | None = None
    rate: float | None = None
    measured: str = ""
    most_useful: int | None = None
    lacking: bool = False


def scaled(before: AutoscaleStatus, limits: AutoscaleSpec, load: Load) -> AutoscaleStatus:
    """Return the number of workers after one more look, and what the next look needs to know."""
    status = _measured(before, load)
    most = min(limits.max_workers, load.most_useful or limits.max_workers)
    least = min(limits.min_workers, most)
    if not least <= status.workers <= most:
        nearest = min(max(status.workers, least), most)
        return _changed(status, load, nearest, f"it was {status.workers}, and {least} to {most} are allowed and of use")
    if load.arriving is None or load.usual is None:
        return replace(status, fewer=None, fewer_since=None)  # the window before a restart of the operator is not known
    needed, why = _needed(status, limits, load)
    status = _limited(status, limits, load, is_short=needed > most or load.lacking)
    if needed > status.workers:
        more = min(needed, most)
        steady = replace(status, fewer=None, fewer_since=None)
        return _changed(status, load, more, why) if more > status.workers else steady
    return _lowered(status, limits, load, least)


def time_lag(lags: Mapping[str, int], arriving: Mapping[str, float], oldest: float | None) -> float:
    """Return for how many seconds the records of the partition that is furthest behind have waited.

    That is how long they took to arrive, at the rates of now.  `oldest` is the age of the oldest one as Kafka has it,
    which is at least the age that it has, and may be 20 s more.
    """
    least = sum(lags.values()) * _FEW
    waits = max(
        (
            count / rate if (rate := arriving.get(key, 0.0)) else math.inf
            for key, count in lags.items()
            if count > least
        ),
        default=0.0,
    )
    found = min(waits, math.inf if oldest is None else oldest)
    return found if math.isfinite(found) else _UNKNOWN


def first(limits: AutoscaleSpec, workers: int | None, now: datetime) -> AutoscaleStatus:
    """Return the number to begin with: those that are there already, else the least."""
    number = bounded(limits, workers or 0)
    message = f"begins with the {number} that are there" if workers else "begins with minWorkers"
    return AutoscaleStatus(workers=number, since=now, message=message)


def bounded(limits: AutoscaleSpec, workers: int) -> int:
    """Return the allowed number that is nearest."""
    return min(max(workers, limits.min_workers), limits.max_workers)


def _measured(before: AutoscaleStatus, load: Load) -> AutoscaleStatus:
    """Return the status with the rate after the newest batch of a backlog."""
    known = before.records_per_second if before.measured == load.measured else None
    if load.rate:
        known = load.rate if known is None else known + NEW * (load.rate - known)
    rate = None if known is None else _rounded(known)
    if (rate, load.measured) == (before.records_per_second, before.measured):
        return before
    return replace(before, records_per_second=rate, measured=load.measured)


def _rounded(number: float) -> float:
    return float(f"{number:.{_SIGNIFICANT}g}")


def _needed(status: AutoscaleStatus, limits: AutoscaleSpec, load: Load) -> tuple[int, str]:
    """Return how many workers are needed now, at least those that are there unless fewer do, and why."""
    arriving, usual = load.arriving or 0.0, load.usual or 0.0
    arriving = arriving if arriving > BURST * usual else usual
    target, rate, settling = limits.target_time_lag, status.records_per_second, load.now - status.since < START
    waits = f"unread records wait for {format_duration(load.time_lag)}, {format_duration(target)} are the target"
    if rate is None:
        late = load.time_lag > NEAR * target and not settling and not load.lacking
        return (status.workers + max(1, status.workers // 2) if late else status.workers), waits
    facts = f"{arriving:,.0f} records/s arrive, and one worker does {rate:,.0f}"
    lost = _for_loss(load, arriving, rate)
    if lost > status.workers:
        left = format_duration(load.time_to_loss or 0)
        return lost, f"Kafka may delete unread records in {left}, {load.lag:,} wait, {facts}"
    if _expected(status, load, arriving, rate) <= NEAR * target:
        return min(status.workers, math.ceil(arriving * SPARE / rate)), facts
    excess = 0.0 if settling else _excess(limits, load)
    return math.ceil((arriving * SPARE + excess / target) / rate), f"{waits}, {facts}"


def _excess(limits: AutoscaleSpec, load: Load) -> float:
    """Return how many records are to be worked off in the time of one target, beside those that arrive."""
    return max(0.0, load.time_lag - KEPT * limits.target_time_lag) / max(load.time_lag, 1.0) * load.lag


def _expected(status: AutoscaleStatus, load: Load, arriving: float, rate: float) -> float:
    """Return the time lag when new workers could take part."""
    grows = max(0.0, 1 - status.workers * rate / arriving) if arriving > 0 else 0.0
    return load.time_lag + grows * START.total_seconds()


def _for_loss(load: Load, arriving: float, rate: float) -> int:
    """Return how many workers work the backlog off in half of the time until Kafka deletes some of it."""
    if load.time_to_loss is None:
        return 0
    return math.ceil((arriving + 2 * load.lag / max(load.time_to_loss, 1.0)) / rate)


def _limited(status: AutoscaleStatus, limits: AutoscaleSpec, load: Load, *, is_short: bool) -> AutoscaleStatus:
    """Return the status with whether the target is missed for lack of workers."""
    late = load.time_lag > limits.target_time_lag
    if late and is_short:
        return status if status.limited_since else replace(status, limited_since=load.now)
    return status if late or not status.limited_since else replace(status, limited_since=None)


def _lowered(status: AutoscaleStatus, limits: AutoscaleSpec, load: Load, least: int) -> AutoscaleStatus:
    """Return the status with fewer workers, or how long fewer have been enough."""
    enough, after = _enough(status, limits, load), FEWER_AFTER
    if status.records_per_second is None:
        after = UNMEASURED_AFTER
    enough = max(enough, least)
    if enough >= status.workers:
        return status if status.fewer is None else replace(status, fewer=None, fewer_since=None)
    since = status.fewer_since or load.now
    most = enough if load.now - since < SETTLED else max(enough, status.fewer or 0)
    if load.now - since < after:
        return (
            status
            if (most, since) == (status.fewer, status.fewer_since)
            else replace(status, fewer=most, fewer_since=since)
        )
    lasted = format_duration(after.total_seconds())
    return _changed(status, load, most, f"for {lasted} no more were needed: {load.usual or 0:,.0f} records/s arrive")


def _enough(status: AutoscaleStatus, limits: AutoscaleSpec, load: Load) -> int:
    target, usual = limits.target_time_lag, load.usual or 0.0
    is_late = load.time_lag > CALM * target
    if status.records_per_second is None:
        return status.workers if is_late else status.workers - 1
    excess = _excess(limits, load) if is_late else 0.0
    return math.ceil((usual * SPARE_OF_FEWER + excess / target) / status.records_per_second)


def _changed(status: AutoscaleStatus, load: Load, workers: int, why: str) -> AutoscaleStatus:
    return replace(status, workers=workers, since=load.now, message=why, fewer=None, fewer_since=None)
