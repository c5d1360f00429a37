"""Sizes of a pipeline from what its history says that it took: each with the figure that it rests on.

A few commits are enough to raise a size.  To lower it, the history must have a day, because load differs by the hour,
and a backlog, which needs most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Final

from fencepost.fence.figures import Figure
from fencepost_cli.history.usage import RECORDS, SIZE, TIME, Bounds, Usage
from fencepost_cli.readable import bytes_shown
from fencepost_operator.api import Spec
from fencepost_operator.api.quantities import (
    MEBIBYTE,
    bytes_text,
    duration_text,
    format_duration,
    parse_bytes,
    parse_quantity,
)
from fencepost_operator.api.spec.pods import ResourceRequirements
from fencepost_operator.desired.jobs.driver_config import batch_bytes
from fencepost_operator.desired.resources import (
    driver_memory,
    driver_resources,
    master_resources,
    tasks_memory,
    worker_resources,
)

FEW: Final = 10
"""Commits below which nothing is advised."""
FEW_FULL: Final = 5
"""Batches of a backlog, below which its rate is not known: the first ones of a run are small."""
SHORT: Final = timedelta(hours=1)
"""Of history, below which the rate at which records arrive is not known."""
LONG: Final = timedelta(days=1)
"""Of history, before something is lowered."""
TIGHT: Final = 0.85
"""Of a limit. FencepostWorkerMemory and FencepostDriverMemory warn at 95 %."""
LOOSE: Final = 0.5
"""Of a limit: docs/sizing.md."""
SPARE: Final = 1.4
"""Memory that is advised, for each byte of the largest that was seen."""
STATE_SPARE: Final = 2
"""Room for a state, for each byte of its largest size: docs/sizing.md."""
GROWTH: Final = 10
"""Largest factor by which a batch is to grow at once."""
_ROOM: Final = 0.7
"""Of a worker's limit: above it, a larger batch may not fit."""
_NEAR_ROOM: Final = 0.8
"""Of spec.state.maxBytes: where StateNearLimit warns."""
STEP: Final = 256 * MEBIBYTE
SMALLEST_WORKER: Final = 1024 * MEBIBYTE
SMALLEST_HEAP: Final = 512 * MEBIBYTE
SMALLEST_STATE: Final = 64 * MEBIBYTE
"""What the CRD allows."""
MOST_WORKERS: Final = 100
MOST_RECORDS: Final = 10_000_000
_DAY: Final = 86_400.0
_MILLION: Final = 1_000_000


class Kind(StrEnum):
    """What is advised of a field."""

    CHANGE = "change"
    KEEP = "keep"
    NOT_ENOUGH_HISTORY = "not enough history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What is advised of a field of the spec, which is `now` this, and the figure that it rests on.

    `value` is the new value of one that should change.
    """

    field: str
    kind: Kind
    now: str
    value: str | None = None
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How long it takes to work off the records of one day, while new ones arrive as fast; None: it never ends."""

    arriving: float
    """Records per second."""
    rate: float
    """Records per second of work on a backlog."""
    takes: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Requested resources per million rows, or records where no rows are counted: as it ran, and on a backlog."""

    unit: str
    core_hours: float
    gib_hours: float
    backlog_core_hours: float | None
    backlog_gib_hours: float | None


def bounds(spec: Spec) -> Bounds:
    """Return what bounds a batch of the pipeline."""
    return Bounds(records=spec.source.kafka.max_records_per_batch, size=batch_bytes(spec))


def advised(spec: Spec, usage: Usage, *, catch_up: timedelta) -> Sequence[Advice]:
    """Return what to do about each size; a backlog of one day is to take at most `catch_up`."""
    found = [_memory(one, usage) for one in _containers(spec)]
    found += [_workers(spec, usage, catch_up), _batches(spec, usage)]
    return [*found, *_state(spec, usage)]


def backlog(usage: Usage) -> Backlog | None:
    """Return how long a day of backlog takes; None where the history does not show it."""
    seen = usage.backlog
    if seen is None or seen.batches < FEW_FULL or usage.span < SHORT:
        return None
    arriving, spare = usage.per_second, seen.per_second - usage.per_second
    takes = timedelta(seconds=_DAY * arriving / spare) if spare > 0 else None
    return Backlog(arriving=arriving, rate=seen.per_second, takes=takes)


def cost(spec: Spec, usage: Usage) -> Cost | None:
    """Return what a million rows cost of what the pods request; None without time or records, or by load."""
    done = usage.rows or usage.records
    if not done or not usage.span or spec.cluster.autoscale is not None:
        return None
    workers = spec.cluster.workers
    requests = [
        (1, driver_resources(spec)["requests"]),
        (1 if spec.cluster.exists else 0, master_resources(spec.cluster.master)["requests"]),
        (workers, worker_resources(spec.cluster.worker)["requests"]),
    ]
    cores = float(sum(number * parse_quantity(each["cpu"]) for number, each in requests))
    gib = float(sum(number * parse_quantity(each["memory"]) for number, each in requests)) / 1024**3
    hours = usage.span.total_seconds() / 3600 / done * _MILLION
    seen = usage.backlog
    busy = None if seen is None else _MILLION / (seen.per_second * done / usage.records) / 3600
    return Cost(
        unit="rows" if usage.rows else "records",
        core_hours=cores * hours,
        gib_hours=gib * hours,
        backlog_core_hours=None if busy is None else cores * busy,
        backlog_gib_hours=None if busy is None else gib * busy,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Container:
    """A kind of container: the field that sizes it, which is `now` so many bytes, and its limit by the spec.

    `fitting` returns the value of the field for a container of so many bytes.
    """

    name: str
    field: str
    now: int
    limit: int
    peak: Figure
    measured: Figure
    fitting: Callable[[int], int]


def _containers(spec: Spec) -> Iterator[_Container]:
    worker, job = spec.cluster.worker, spec.job
    of_worker, of_driver = (
        parse_bytes(each["limits"]["memory"]) for each in (worker_resources(worker), driver_resources(spec))
    )
    given = [_gives_memory(each) for each in (worker.resources, job.resources)]
    if spec.cluster.exists:
        yield _Container(
            name="the largest worker",
            field="spec.cluster.worker" + (_GIVEN if given[0] else ".memory"),
            now=of_worker if given[0] else worker.memory,
            limit=of_worker,
            peak=Figure.WORKER_CONTAINER,
            measured=Figure.WORKER_LIMIT,
            fitting=lambda need: max(_rounded(need), SMALLEST_WORKER),
        )
    yield _Container(
        name="the driver",
        field="spec.job" + (_GIVEN if given[1] else ".memory"),
        now=of_driver if given[1] else job.memory,
        limit=of_driver,
        peak=Figure.DRIVER_CONTAINER,
        measured=Figure.DRIVER_LIMIT,
        fitting=_rounded if given[1] else lambda need: _heap(need - tasks_memory(spec)),
    )


_GIVEN: Final = ".resources.limits.memory"


def _gives_memory(given: ResourceRequirements | None) -> bool:
    return given is not None and "memory" in {*(given.requests or {}), *(given.limits or {})}


def _rounded(size: int) -> int:
    return -(-size // STEP) * STEP


def _heap(need: int) -> int:
    """Return the smallest heap whose driver's pod has so many bytes."""
    heap = SMALLEST_HEAP
    while driver_memory(heap) < need:
        heap += STEP
    return heap


def _memory(one: _Container, usage: Usage) -> Advice:
    now, peak, measured = bytes_text(one.now), usage.peaks.get(one.peak), usage.peaks.get(one.measured)
    advice = partial(Advice, field=one.field, now=now)
    if peak is None or measured is None or usage.commits < FEW:
        return advice(kind=Kind.NOT_ENOUGH_HISTORY, because=_too_few(usage, f"the memory of {one.name}"))
    if measured != one.limit:
        return advice(
            kind=Kind.NOT_ENOUGH_HISTORY,
            because=f"the commits on record are under a limit of {bytes_shown(measured)}, and the spec's is"
            f" {bytes_shown(one.limit)}",
        )
    seen = f"{one.name} had {bytes_shown(peak)} of its {bytes_shown(measured)} ({peak / measured:.0%}) {_over(usage)}"
    value = one.fitting(math.ceil(peak * SPARE))
    if peak > TIGHT * measured and value > one.now:
        return advice(kind=Kind.CHANGE, value=bytes_text(value), because=seen)
    if peak >= LOOSE * measured or value >= one.now:
        return advice(kind=Kind.KEEP, because=seen)
    if (lacking := _lacking(usage)) is not None:
        return advice(kind=Kind.NOT_ENOUGH_HISTORY, because=f"{seen}; before memory is lowered, {lacking}")
    return advice(kind=Kind.CHANGE, value=bytes_text(value), because=seen)


def _workers(spec: Spec, usage: Usage, catch_up: timedelta) -> Advice:
    if limits := spec.cluster.autoscale:
        return Advice(
            field="spec.cluster.autoscale",
            kind=Kind.KEEP,
            now=f"{limits.min_workers} to {limits.max_workers}",
            because="the operator chooses the number; `fencepost autoscale backtest` shows other limits",
        )
    workers, found = spec.cluster.workers, backlog(usage)
    advice = partial(Advice, field="spec.cluster.workers", now=str(workers))
    if found is None or usage.backlog is None:
        return advice(kind=Kind.NOT_ENOUGH_HISTORY, because=_no_rate(usage))
    needed = found.arriving * (1 + _DAY / catch_up.total_seconds())
    value = math.ceil(needed / (found.rate / usage.backlog.cores) / spec.cluster.worker.cores)
    value = min(max(value, 1), MOST_WORKERS)
    if value == 1 and not spec.cluster.exists:
        value = 0  # the cores of one worker are enough, and the driver's pod has as many
    takes = f"takes {format_duration(found.takes.total_seconds())}" if found.takes is not None else "never ends"
    seen = (
        f"{found.arriving:,.0f} records/s arrive, and {usage.backlog.cores} cores do {found.rate:,.0f} records/s of a"
        f" backlog: one of a day {takes}, and it may take {format_duration(catch_up.total_seconds())}"
    )
    if value == workers:
        return advice(kind=Kind.KEEP, because=seen)
    if value < workers and usage.span < LONG:
        return advice(
            kind=Kind.NOT_ENOUGH_HISTORY,
            because=f"{seen}; {value} would do, but {_over(usage)} is less than the day that lowering needs",
        )
    return advice(kind=Kind.CHANGE, value=str(value), because=seen)


def _batches(spec: Spec, usage: Usage) -> Advice:
    source, most_bytes = spec.source.kafka, batch_bytes(spec)
    if usage.full < FEW_FULL:
        now = f"{source.max_records_per_batch}"
        because = f"only {usage.full} batches read as much as they were allowed to, {_over(usage)}"
        return Advice(field=_source(RECORDS), kind=Kind.NOT_ENOUGH_HISTORY, now=now, because=because)
    bound, times = max(usage.bounds.items(), key=lambda each: each[1])
    seen = (
        f"{times:,} of {usage.full:,} full batches ended at {bound}; all but a twentieth of the batches took at most"
        f" {usage.durations.most:,} ms"
    )
    if bound == TIME:
        now = duration_text(source.target_batch_duration)
        return Advice(field=_source(TIME), kind=Kind.KEEP, now=now, because=seen)
    if bound == SIZE:
        return Advice(field=_source(SIZE), kind=Kind.KEEP, now=bytes_text(most_bytes), because=seen)
    advice = partial(Advice, field=_source(RECORDS), now=str(source.max_records_per_batch))
    target = source.target_batch_duration * 1000
    peak, limit = usage.peaks.get(Figure.WORKER_CONTAINER), usage.peaks.get(Figure.WORKER_LIMIT)
    if 2 * usage.durations.most > target or peak is None or limit is None or peak > _ROOM * limit:
        return advice(kind=Kind.KEEP, because=seen)
    size = max(usage.bytes.largest / max(usage.sizes.largest, 1), 1.0)
    growth = min(target / max(usage.durations.most, 1) / 2, GROWTH)
    value = _two_digits(min(source.max_records_per_batch * growth, most_bytes / size, MOST_RECORDS))
    if value <= source.max_records_per_batch:
        return advice(kind=Kind.KEEP, because=seen)
    because = f"{seen}, and the target is {duration_text(source.target_batch_duration)}"
    return advice(kind=Kind.CHANGE, value=str(value), because=because)


def _state(spec: Spec, usage: Usage) -> Iterator[Advice]:
    if spec.stateful is None:
        return
    room, size = spec.stateful.max_bytes, usage.state_bytes
    advice = partial(Advice, field="spec.state.maxBytes", now=bytes_text(room))
    if size is None or usage.commits < FEW:
        yield advice(kind=Kind.NOT_ENOUGH_HISTORY, because=_too_few(usage, "the size of the state"))
        return
    seen = f"the state's files had at most {bytes_shown(size)} {_over(usage)}"
    value = max(_rounded(STATE_SPARE * size), SMALLEST_STATE)
    if value > room and size > _NEAR_ROOM * room:
        yield advice(kind=Kind.CHANGE, value=bytes_text(value), because=seen)
    elif value < room // 2 and usage.span < LONG:
        because = f"{seen}; before the room is lowered, a day of history is needed"
        yield advice(kind=Kind.NOT_ENOUGH_HISTORY, because=because)
    elif value < room // 2:
        yield advice(kind=Kind.CHANGE, value=bytes_text(value), because=seen)
    else:
        yield advice(kind=Kind.KEEP, because=seen)


def _source(name: str) -> str:
    return f"spec.source.kafka.{name}"


def _two_digits(number: float) -> int:
    """Return a number rounded down to two digits that are not zero."""
    step: int = 10 ** max(len(str(int(number))) - 2, 0)
    return int(number) // step * step


def _lacking(usage: Usage) -> str | None:
    """Return what the history lacks before memory is lowered."""
    if usage.span < LONG:
        return "a day of history is needed"
    if usage.full < FEW_FULL:
        return "a backlog is needed, which needs most: suspend the pipeline for some minutes"
    return None


def _too_few(usage: Usage, what: str) -> str:
    if not usage.is_measured:
        return f"no commit says {what}: a driver of this release records it, where the kernel reports it"
    return f"{usage.commits} commits say {what}, and {FEW} are needed"


def _no_rate(usage: Usage) -> str:
    if usage.span < SHORT:
        return f"the history spans {format_duration(usage.span.total_seconds())}, and an hour is needed"
    seen = usage.backlog.batches if usage.backlog else 0
    return (
        f"{seen} batches with {usage.cores or 'the newest number of'} cores read as much as they were allowed to, and"
        f" {FEW_FULL} are needed to know the rate of a backlog: suspend the pipeline for some minutes"
    )


def _over(usage: Usage) -> str:
    return f"in {usage.commits:,} commits over {format_duration(usage.span.total_seconds())}"
