"""A fence table in memory: the test double of `fencepost.fence.cassandra`, held to the same contract suite.

Faults are injected per call: a function of the call's name that may raise before the effect or after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fencepost.fence import BatchProgress, FenceRow
from fencepost.fence.clock import wall_clock


def no_fault(_call: str) -> None:
    """Let every call pass."""


@dataclass(slots=True)
class MemoryFenceTable:
    """Rows in a dict, linearizable by a lock. `before` and `after` see each call's name and may raise.

    `now` is the database's own time in µs.
    """

    rows: dict[str, FenceRow] = field(default_factory=dict)
    history: list[FenceRow] = field(default_factory=list)
    progress: dict[str, BatchProgress] = field(default_factory=dict)
    now: Callable[[], int] = wall_clock
    before: Callable[[str], None] = no_fault
    after: Callable[[str], None] = no_fault
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, pipeline: str) -> FenceRow | None:
        """Return the row, or None."""
        self.before("read")
        with self._lock:
            row = self.rows.get(pipeline)
        self.after("read")
        return row

    def insert(self, row: FenceRow) -> bool:
        """Insert unless there is a row."""
        self.before("insert")
        with self._lock:
            fresh = row.pipeline not in self.rows
            if fresh:
                self._put(row)
        self.after("insert")
        return fresh

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Replace on condition of epoch, version and driver."""
        self.before("swap")
        with self._lock:
            applied = self._matches(before)
            if applied:
                self._put(after)
        self.after("swap")
        return applied

    def forget(self, pipeline: str) -> None:
        """Delete history and progress."""
        self.before("forget")
        with self._lock:
            self.history = [row for row in self.history if row.pipeline != pipeline]
            self.progress.pop(pipeline, None)
        self.after("forget")

    def report_progress(self, pipeline: str, *, epoch: int, version: int, done: int) -> None:
        """Keep the newest report."""
        self.before("report_progress")
        at = datetime.fromtimestamp(self.now() // 1000 / 1e3, UTC)
        with self._lock:
            self.progress[pipeline] = BatchProgress(epoch=epoch, version=version, done=done, at=at)
        self.after("report_progress")

    def read_progress(self, pipeline: str) -> BatchProgress | None:
        """Return the newest report."""
        self.before("read_progress")
        with self._lock:
            found = self.progress.get(pipeline)
        self.after("read_progress")
        return found

    def server_time(self) -> int:
        """Return the time of `now`, as precise as a millisecond."""
        self.before("server_time")
        now = self.now() // 1000 * 1000
        self.after("server_time")
        return now

    def _put(self, row: FenceRow) -> None:
        self.rows[row.pipeline] = row
        self.history.append(row)

    def _matches(self, row: FenceRow) -> bool:
        seen = self.rows.get(row.pipeline)
        return seen is not None and (seen.epoch, seen.version, seen.driver) == (row.epoch, row.version, row.driver)
