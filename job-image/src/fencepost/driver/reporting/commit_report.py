"""What the loop reports about each committed batch, and the stopwatch that times it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fencepost.batch import EventTime, Range, SinkWork

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSize:
    """Bytes of the files of a stateful pipeline's state, and how many every worker has room for."""

    used: int
    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One committed batch, for the log. Times in ms; `lag` is what the log held beyond it, None when not known.

    `size` is what the batch read, in bytes; `limit` is how many records the next one may have.  `unavailable` names the
    partitions that Kafka did not answer for, and that the batches leave out.  `dead_letter` is the batch's one record
    when it was set aside.  `event_time` is a stateful query's, see `FenceRow`.
    """

    epoch: int
    version: int
    records: int
    size: int
    limit: int
    phases: Mapping[str, int]
    lag: int | None
    unavailable: tuple[str, ...] = ()
    clock_skew_ms: int | None = None
    dead_letter: str | None = None
    event_time: EventTime | None = None
    state: StateSize | None = None
    work: Mapping[str, SinkWork] = field(default_factory=dict)
    """By sink."""
    ranges: tuple[Range, ...] = ()
    """What the batch read."""
    starts: Mapping[str, int] = field(default_factory=dict)
    """When a phase began, in ms since the batch did; not of the phases within `write`."""
    seconds: float = 0.0
    """Since the batch began, with the plan where this run made it."""
    committed_at: float = field(default_factory=time.time)
    """Seconds since 1970."""


def log_committed(report: Report) -> None:
    """Log a committed batch."""
    fields = {
        "epoch": report.epoch,
        "version": report.version,
        "records": report.records,
        "bytes": report.size,
        "limit": report.limit,
        "rows": {sink: work.rows for sink, work in report.work.items()},
        "ms": report.phases,
        "lag": report.lag,
        "clock_skew_ms": report.clock_skew_ms,
        **({"unavailable": list(report.unavailable)} if report.unavailable else {}),
        **({"dead_letter": report.dead_letter} if report.dead_letter else {}),
        **({"late_rows": report.event_time.late_rows} if report.event_time else {}),
        **({"state_bytes": report.state.used} if report.state else {}),
    }
    log.info("committed", extra={"fields": fields})


class Stopwatch:
    """Milliseconds by phase of one batch, and when each began, since `started` (monotonic seconds; now, by default)."""

    def __init__(self, now: Callable[[], float], started: float | None = None) -> None:
        self._now = now
        self.started = now() if started is None else started
        self.phases: dict[str, int] = {}
        self.starts: dict[str, int] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block."""
        before = self._now()
        try:
            yield
        finally:
            self.passed(name, before, self._now())

    def passed(self, name: str, began: float, ended: float) -> None:
        """Note a phase, in monotonic seconds."""
        self.starts[name] = round((began - self.started) * 1000)
        self.phases[name] = round((ended - began) * 1000)

    def total(self) -> int:
        """Milliseconds since the batch began."""
        return round((self._now() - self.started) * 1000)
