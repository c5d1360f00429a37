"""What a run has done so far, counted beside the loop: additions under a lock, some microseconds for each batch.

Plain numbers: the library that formats them is imported when the first batches are through, and only a scrape runs it.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from fencepost.batch import SinkWork
from fencepost.driver.reporting.commit_report import Report

PHASES: Final = ("plan", "record", "transform", "job", "write", "commit")
"""Of a batch. `write` is the author's function (`transform`) and the Spark job (`job`), which reads and writes."""
SECONDS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
RECORDS: Final = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


class Spread:
    """How many values are at most as large as each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Return each bound, '+Inf' at last, with the number of values up to it."""
        found, so_far = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self._counts, strict=True):
            so_far += count
            found.append((bound, float(so_far)))
        return found


@dataclass(slots=True)
class Counts:
    """Since the run began. `newest` is the report of the last commit."""

    batches: int = 0
    records: int = 0
    size: int = 0
    dead_letters: int = 0
    late_rows: int = 0
    fence_retries: int = 0
    work: dict[str, SinkWork] = field(default_factory=dict)
    durations: Spread = field(default_factory=lambda: Spread(SECONDS))
    sizes: Spread = field(default_factory=lambda: Spread(RECORDS))
    phases: dict[str, Spread] = field(default_factory=lambda: {name: Spread(SECONDS) for name in PHASES})
    newest: Report | None = None


class RunMetrics:
    """The counts, and the lock under which they change.

    `sinks` are those of the configuration; for those in `uncounted` the number of repeated requests is unknown.
    """

    def __init__(self, sinks: Sequence[str], uncounted: Collection[str] = ()) -> None:
        self._lock = threading.Lock()
        self.uncounted = frozenset(uncounted)
        self._counts = Counts(work=dict.fromkeys(sinks, SinkWork()))

    def committed(self, report: Report) -> None:
        """Count a committed batch."""
        with self._lock:
            counts = self._counts
            counts.batches += 1
            counts.records += report.records
            counts.size += report.size
            counts.dead_letters += report.dead_letter is not None
            if report.event_time is not None:
                counts.late_rows += report.event_time.late_rows
            counts.sizes.add(report.records)
            counts.durations.add(report.phases.get("total", 0) / 1000)
            for name, spread in counts.phases.items():
                if name in report.phases:
                    spread.add(report.phases[name] / 1000)
            for sink in counts.work:
                counts.work[sink] += report.work.get(sink, SinkWork())
            counts.newest = report

    def pausing(self, sleep: Callable[[float], object]) -> Callable[[float], None]:
        """Return `sleep`, counted as a repeated request to the fence: it pauses between two of them."""

        def pause(seconds: float) -> None:
            with self._lock:
                self._counts.fence_retries += 1
            sleep(seconds)

        return pause

    @contextmanager
    def still(self) -> Iterator[Counts]:
        """Give the counts while nothing changes them."""
        with self._lock:
            yield self._counts
