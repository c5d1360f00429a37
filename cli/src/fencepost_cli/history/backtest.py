"""What the operator's choice of workers would have done with the load that a history shows, in a model of a queue."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from fencepost.fence import FenceRow
from fencepost.fence.figures import Figure
from fencepost.fence.history import Change
from fencepost.fence.rates import full_batch
from fencepost_cli.history.queueing import Costs, Queue
from fencepost_cli.history.reading import recorded_at
from fencepost_operator.api import AutoscaleSpec, AutoscaleStatus
from fencepost_operator.autoscaling.arrivals import ArrivalWindow
from fencepost_operator.autoscaling.policy import Load, first, scaled, time_lag

STEP: Final = 5.0
"""Seconds of the model."""
_ALL: Final = "all"
"""Partitions are taken as one: the history has the lag of all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a history shows: records that arrived in each STEP from `since` on, and records per second of one core.

    What waited at the begin counts as arrived in the first step.

    The rate is that of batches that read as much as they were allowed to; None without one.
    """

    since: datetime
    arrived: Sequence[float]
    per_core: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A number of workers, from when on, and why."""

    at: datetime
    workers: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Hours of all workers, and for how long the time lag was above the target."""

    worker_hours: float
    over_target: timedelta
    chosen: Sequence[Chosen] = ()


def past(changes: Iterable[tuple[Change, FenceRow]], *, since: datetime | None) -> Past | None:
    """Return what changes show, which come oldest first; None where they are of less than a minute."""
    ends: list[tuple[datetime, int]] = []
    waiting, records, seconds, limit = 0, 0, 0.0, 0
    for record, row in changes:
        at = recorded_at(record)
        if at is not None and (since is None or at >= since) and record.lag is not None:
            waiting = waiting if ends else record.lag
            ends.append((at, sum(row.offsets.values()) + record.lag))
            done = full_batch(row, limit)
            if done is not None and done.cores and record.committed:
                records, seconds = records + done.records, seconds + done.seconds * done.cores
        limit = row.figures.get(Figure.LIMIT, 0)
    if not ends or ends[-1][0] - ends[0][0] < timedelta(minutes=1):
        return None
    return Past(
        since=ends[0][0], arrived=list(_by_step(ends, waiting)), per_core=records / seconds if seconds else None
    )


def _by_step(ends: Sequence[tuple[datetime, int]], waiting: int) -> Iterator[float]:
    """Yield what arrived in each step: evenly between two commits; a rewind takes nothing back."""
    begin, left, until = ends[0][0], float(waiting), STEP
    for (since, before), (at, after) in pairwise(ends):
        start, end = (since - begin).total_seconds(), (at - begin).total_seconds()
        rate = max(0, after - before) / (end - start) if end > start else 0.0
        while until <= end:
            yield left + rate * (until - max(start, until - STEP))
            left, until = 0.0, until + STEP
        left += rate * max(0.0, end - max(start, until - STEP))


def autoscaled(seen: Past, limits: AutoscaleSpec, *, rate: float, batch: float) -> Outcome:
    """Return what the policy would have done; `rate` is a worker's, `batch` the seconds of a full batch."""
    queue = Queue(rate=rate, partitions=[_ALL], workers=limits.min_workers, costs=Costs(batch=batch))
    status: AutoscaleStatus = first(limits, None, seen.since)
    chosen = [Chosen(at=seen.since, workers=status.workers, message=status.message)]
    window, end, hours, late = ArrivalWindow(), 0.0, 0.0, 0.0
    for arrived in seen.arrived:
        queue.step([arrived], STEP)
        end, hours = end + arrived, hours + status.workers * STEP / 3600
        late += STEP if queue.time_lag > limits.target_time_lag else 0.0
        before, status = status, scaled(status, limits, _load(queue, window, end, seen.since))
        if status.workers != before.workers:
            chosen.append(Chosen(at=status.since, workers=status.workers, message=status.message))
            queue.scale(status.workers)
    return Outcome(worker_hours=hours, over_target=timedelta(seconds=late), chosen=chosen)


def fixed(seen: Past, workers: int, *, target: float, rate: float, batch: float) -> Outcome:
    """Return what a number of workers would have done that never changes, in the same model."""
    queue = Queue(rate=rate, partitions=[_ALL], workers=workers, costs=Costs(batch=batch))
    late = 0.0
    for arrived in seen.arrived:
        queue.step([arrived], STEP)
        late += STEP if queue.time_lag > target else 0.0
    return Outcome(worker_hours=workers * len(seen.arrived) * STEP / 3600, over_target=timedelta(seconds=late))


def _load(queue: Queue, window: ArrivalWindow, end: float, since: datetime) -> Load:
    arrivals, lags = window.seen(queue.at, {_ALL: math.floor(end)}), queue.lags
    return Load(
        now=since + timedelta(seconds=queue.at),
        lag=sum(lags.values()),
        arriving=None if arrivals is None else sum(arrivals.recent.values()),
        usual=None if arrivals is None else sum(arrivals.usual.values()),
        time_lag=0.0 if arrivals is None else time_lag(lags, arrivals.usual, queue.time_lag),
        rate=queue.done if queue.is_full else None,
    )
