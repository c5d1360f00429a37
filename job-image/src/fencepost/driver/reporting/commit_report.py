"""What the loop reports about each committed batch, and the stopwatch that times it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fencepost.batch import EventTime, SinkWork

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
    """Milliseconds by phase of one batch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.started = now()
        self.phases: dict[str, int] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block."""
        before = self._now()
        try:
            yield
        finally:
            self.phases[name] = round((self._now() - before) * 1000)

    def total(self) -> int:
        """Milliseconds since the batch began."""
        return round((self._now() - self.started) * 1000)
