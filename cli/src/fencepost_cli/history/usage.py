"""What a pipeline took, from the commits in its history: time, records, memory, and how fast it works off a backlog."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from fencepost.fence import FenceRow
from fencepost.fence.figures import Figure
from fencepost.fence.history import Change
from fencepost.fence.rates import Rate, full_batch
from fencepost_cli.history.checks import is_commit, moved
from fencepost_cli.history.reading import recorded_at

_SETTING: Final = (Figure.WORKER_LIMIT, Figure.DRIVER_LIMIT)
"""With other limits a JVM takes another part of its container."""
_PEAKS: Final = tuple(figure for figure in Figure if figure.startswith(("driver_", "worker_", "state_")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of some values, what all but a twentieth of them are at most, and the largest."""

    median: int
    most: int
    largest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the commits of one code under one set of memory limits took, `since` and `until` when they were recorded.

    `peaks` has the largest of each figure of memory and state.  `backlog` is of the batches that read as much as they
    were allowed to, with the newest number of cores: None without such a batch.  `bounds` says how many of these ended
    at which field of the spec.
    """

    code: str | None
    since: datetime
    until: datetime
    commits: int
    runs: int
    records: int
    rows: int
    busy: timedelta
    sizes: Spread
    bytes: Spread
    durations: Spread
    """In ms."""
    peaks: Mapping[str, int]
    state_bytes: int | None
    cores: int
    backlog: Rate | None
    full: int
    """Batches in `bounds`."""
    bounds: Mapping[str, int]
    lag: int | None
    """The largest that was seen."""
    is_measured: bool
    """Whether a commit has figures: an older driver records none."""

    @property
    def span(self) -> timedelta:
        """How long the history is."""
        return self.until - self.since

    @property
    def per_second(self) -> float:
        """Records that were committed per second; 0 where all were at one moment."""
        seconds = self.span.total_seconds()
        return self.records / seconds if seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What bounds a batch by the spec."""

    records: int
    size: int


def usage(changes: Iterable[tuple[Change, FenceRow]], bounds: Bounds, *, since: datetime | None) -> Usage | None:
    """Return what the newest code took, of changes that come oldest first; None without a commit of it.

    A change before `since` counts as the begin of the next one alone.
    """
    found = _Sum()
    before: FenceRow | None = None
    for record, row in changes:
        at = recorded_at(record)
        if before is not None and at is not None and (since is None or at >= since) and _commits(before, row):
            found = found.following(row)
            found.add(before, row, at, record.lag, bounds)
        before = row
    return found.usage()


def _commits(before: FenceRow, row: FenceRow) -> bool:
    """Return whether a batch ended with the second row; one of a stateful pipeline may move nothing."""
    is_next = row.version == before.version + 1
    return is_next and is_commit(before, row) and (moved(before, row) > 0 or row.committed_at != before.committed_at)


@dataclass(slots=True)
class _Sum:
    """Numbers of one code; 24 bytes for each commit."""

    code: str | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    first: datetime | None = None
    last: datetime | None = None
    epochs: set[int] = field(default_factory=set)
    rows: int = 0
    sizes: array[int] = field(default_factory=lambda: array("q"))
    bytes: array[int] = field(default_factory=lambda: array("q"))
    durations: array[int] = field(default_factory=lambda: array("q"))
    peaks: dict[str, int] = field(default_factory=dict)
    state_bytes: int | None = None
    cores: int = 0
    full: dict[int, list[int]] = field(default_factory=dict)
    """Batches, records and ms by cores."""
    bounds: Counter[str] = field(default_factory=Counter)
    lag: int | None = None
    is_measured: bool = False

    def following(self, row: FenceRow) -> _Sum:
        """Return itself, or an empty one where the row's batch ran other code or under other limits."""
        limits = {str(name): row.figures[name] for name in _SETTING if name in row.figures}
        is_same = row.code == self.code and all(self.limits.get(name, limit) == limit for name, limit in limits.items())
        if self.first is not None and not is_same:
            return _Sum(code=row.code, limits=limits)
        self.code, self.limits = row.code, {**self.limits, **limits}
        return self

    def add(self, before: FenceRow, row: FenceRow, at: datetime, lag: int | None, bounds: Bounds) -> None:
        """Add a commit."""
        self.first, self.last = self.first or at, at
        self.epochs.add(row.epoch)
        records, took, size = row.records or 0, row.duration_ms or 0, row.figures.get(Figure.BYTES, 0)
        self.sizes.append(records)
        self.durations.append(took)
        self.bytes.append(size)
        self.rows += row.figures.get(Figure.ROWS, 0)
        self.is_measured = self.is_measured or bool(row.figures)
        for name in _PEAKS:
            if name in row.figures:
                self.peaks[name] = max(row.figures[name], self.peaks.get(name, 0))
        if row.state_bytes is not None:
            self.state_bytes = max(row.state_bytes, self.state_bytes or 0)
        if lag is not None:
            self.lag = max(lag, self.lag or 0)
        self.cores = row.figures.get(Figure.CORES, self.cores)
        if full_batch(row, before.figures.get(Figure.LIMIT, 0)):
            one = self.full.setdefault(self.cores, [0, 0, 0])
            for place, number in enumerate((1, records, took)):
                one[place] += number
            self.bounds[_bound(records, size, bounds)] += 1

    def usage(self) -> Usage | None:
        """Return what was added, None of nothing."""
        if self.first is None or self.last is None:
            return None
        batches, records, took = self.full.get(self.cores, (0, 0, 0))
        return Usage(
            code=self.code,
            since=self.first,
            until=self.last,
            commits=len(self.sizes),
            runs=len(self.epochs),
            records=sum(self.sizes),
            rows=self.rows,
            busy=timedelta(milliseconds=sum(self.durations)),
            sizes=_spread(self.sizes),
            bytes=_spread(self.bytes),
            durations=_spread(self.durations),
            peaks=self.peaks,
            state_bytes=self.state_bytes,
            cores=self.cores,
            backlog=Rate(batches=batches, records=records, seconds=took / 1000, cores=self.cores) if batches else None,
            full=self.bounds.total(),
            bounds=self.bounds,
            lag=self.lag,
            is_measured=self.is_measured,
        )


RECORDS: Final = "maxRecordsPerBatch"
SIZE: Final = "maxBytesPerBatch"
TIME: Final = "targetBatchDuration"
"""The fields of `spec.source.kafka` that bound a batch."""
_NEAR: Final = 0.8
"""A batch ends at a bound of bytes by the mean size of the records before it, so rarely exactly there."""


def _bound(records: int, size: int, bounds: Bounds) -> str:
    if records >= bounds.records:
        return RECORDS
    return SIZE if size >= _NEAR * bounds.size else TIME


def _spread(values: Sequence[int]) -> Spread:
    ordered = sorted(values)
    return Spread(median=ordered[len(ordered) // 2], most=ordered[-1 - len(ordered) // 20], largest=ordered[-1])
