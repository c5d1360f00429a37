"""The operator's policy on a trace, and what is counted of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from bench.autoscale.hindsight import RESCALE
from bench.autoscale.traces import MOST, STEP, Trace
from fencepost_cli.history.queueing import Queue
from fencepost_operator.api.spec.cluster import AutoscaleSpec
from fencepost_operator.api.status.runs import AutoscaleStatus
from fencepost_operator.autoscaling.arrivals import ArrivalWindow
from fencepost_operator.autoscaling.policy import Load, first, scaled, time_lag

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
MORE: Final = 1.1
"""Times what arrived before: a worker that comes back for that was rightly removed."""
LIMITS: Final = AutoscaleSpec(min_workers=1, max_workers=MOST, target_time_lag=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The number of workers in each step, whether the time lag was above the target, and each change."""

    workers: Sequence[int]
    late: Sequence[bool]
    changes: Sequence[tuple[float, int, str]]

    @property
    def hours(self) -> float:
        """Hours of all workers, with what their changes cost."""
        changed = sum(abs(after - before) for before, after in pairwise(self.workers))
        return (sum(self.workers) * STEP + changed * RESCALE) / 3600


def played(trace: Trace, schedule: Sequence[int]) -> Played:
    """Return what a schedule does; it begins with its first number."""
    queue = Queue(rate=trace.rate, partitions=trace.partitions, workers=schedule[0])
    late = []
    for arrived, workers in zip(trace.arrived, schedule, strict=True):
        queue.scale(workers)
        queue.step(arrived, STEP)
        late.append(queue.time_lag > LIMITS.target_time_lag)
    return Played(workers=list(schedule), late=late, changes=())


def decided(trace: Trace) -> Played:
    """Return what the policy does, which knows nothing of the trace when it begins."""
    dice, window = random.Random(trace.name), ArrivalWindow()
    status: AutoscaleStatus = first(LIMITS, None, BEGIN)
    queue = Queue(rate=trace.rate, partitions=trace.partitions, workers=status.workers)
    ends = dict.fromkeys(trace.partitions, 0.0)
    workers, late, changes = [], [], []
    for arrived in trace.arrived:
        queue.step(arrived, STEP)
        workers.append(status.workers)
        late.append(queue.time_lag > LIMITS.target_time_lag)
        ends = {key: end + count for (key, end), count in zip(ends.items(), arrived, strict=True)}
        before, status = status, scaled(status, LIMITS, _load(queue, window, ends, dice))
        if status.workers != before.workers:
            changes.append((queue.at, status.workers, status.message))
            queue.scale(status.workers)
    return Played(workers=workers, late=late, changes=changes)


def _load(queue: Queue, window: ArrivalWindow, ends: dict[str, float], dice: random.Random) -> Load:
    """Return what the operator sees: ages are up to 20 s too high, and a rate varies from batch to batch."""
    arrivals = window.seen(queue.at, {key: int(end) for key, end in ends.items()})
    load = Load(
        now=BEGIN + timedelta(seconds=queue.at),
        lag=sum(queue.lags.values()),
        arriving=None,
        usual=None,
        time_lag=0.0,
        rate=queue.done * dice.gauss(1, 0.05) if queue.is_full else None,
    )
    if arrivals is None:
        return load
    return replace(
        load,
        arriving=sum(arrivals.recent.values()),
        usual=sum(arrivals.usual.values()),
        time_lag=time_lag(queue.lags, arrivals.usual, queue.time_lag + dice.uniform(0, 20)),
    )


def undone(found: Played, trace: Trace, within: float = 900.0) -> list[tuple[float, int, int]]:
    """Return the removals of workers that were taken back although no more arrived than before: when, from, to.

    That is oscillation; workers that come back for a new burst are not.
    """
    arrived = [sum(each) for each in trace.arrived]
    wrong, before = [], found.workers[0]
    for place, (at, workers, _) in enumerate(found.changes):
        if workers < before:
            later = (each for each in found.changes[place + 1 :] if each[0] <= at + within and each[1] >= before)
            again = next(later, None)
            if again is not None and _most(arrived, at, again[0]) <= MORE * _most(arrived, at - 150, at):
                wrong.append((at, before, workers))
        before = workers
    return wrong


def _most(arrived: Sequence[float], begin: float, end: float) -> float:
    """Return the most that arrived in any half minute between two moments."""
    half, places = int(30 / STEP), range(max(0, int(begin / STEP)), min(len(arrived), int(end / STEP) + 1))
    return max((sum(arrived[each - half : each]) for each in places if each >= half), default=0.0)
