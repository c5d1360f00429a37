"""A fence table in memory: the test double of `fencepost.fence.cassandra.table`, held to the same contract suite.

Faults are injected per call: a function of the call's name that may raise before the effect or after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from fencepost.contract import Acceptance, Loss, ReportedLoss
from fencepost.fence import BatchProgress, FenceRow
from fencepost.fence.clock import wall_clock
from fencepost.fence.table import MOST_LOSSES


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
    losses: dict[tuple[str, str], ReportedLoss] = field(default_factory=dict)
    skipped: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """Of each accepted range its end, by pipeline, partition and start."""
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

    def read_epoch(self, pipeline: str) -> int | None:
        """Return the row's epoch."""
        self.before("read_epoch")
        with self._lock:
            row = self.rows.get(pipeline)
        self.after("read_epoch")
        return None if row is None else row.epoch

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
        """Delete history, progress and losses."""
        self.before("forget")
        with self._lock:
            self.history = [row for row in self.history if row.pipeline != pipeline]
            for key in [key for key in self.progress if key == pipeline or key.startswith(f"{pipeline}#")]:
                del self.progress[key]
            self.losses = {key: report for key, report in self.losses.items() if key[0] != pipeline}
        self.after("forget")

    def report_progress(self, pipeline: str, *, epoch: int, version: int, done: int, note: str = "") -> None:
        """Keep the newest report."""
        self.before("report_progress")
        at = datetime.fromtimestamp(self.now() // 1000 / 1e3, UTC)
        with self._lock:
            self.progress[pipeline] = BatchProgress(epoch=epoch, version=version, done=done, note=note, at=at)
        self.after("report_progress")

    def read_progress(self, pipeline: str) -> BatchProgress | None:
        """Return the newest report."""
        self.before("read_progress")
        with self._lock:
            found = self.progress.get(pipeline)
        self.after("read_progress")
        return found

    def report_loss(self, pipeline: str, report: ReportedLoss) -> None:
        """Keep the loss; one that is known keeps its acceptance."""
        self.before("report_loss")
        with self._lock:
            known = self.losses.get((pipeline, report.loss.id))
            accepted = None if known is None else known.acceptance
            self.losses[pipeline, report.loss.id] = replace(report, acceptance=accepted)
        self.after("report_loss")

    def read_losses(self, pipeline: str, committed_ms: int | None) -> tuple[ReportedLoss, ...]:
        """Return the losses of that commit, or the newest ones."""
        self.before("read_losses")
        with self._lock:
            found = [
                report
                for (owner, _), report in sorted(self.losses.items())
                if owner == pipeline and committed_ms in {None, report.loss.committed_ms}
            ]
            found.sort(key=lambda report: report.loss.committed_ms, reverse=True)
        self.after("read_losses")
        return tuple(found[:MOST_LOSSES])

    def accept_loss(self, pipeline: str, loss: Loss, acceptance: Acceptance) -> None:
        """Mark the loss as accepted."""
        self.before("accept_loss")
        with self._lock:
            report = self.losses[pipeline, loss.id]
            self.losses[pipeline, loss.id] = replace(report, acceptance=acceptance)
            self.skipped |= {(pipeline, key, start): until for key, (start, until) in loss.ranges.items()}
        self.after("accept_loss")

    def record_skipped(self, pipeline: str, report: ReportedLoss, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Keep the ranges of an acceptance."""
        self.before("record_skipped")
        if report.acceptance is None:
            raise ValueError(f"loss {report.loss.id} is not accepted")
        with self._lock:
            self.skipped |= {(pipeline, key, start): until for key, (start, until) in ranges.items()}
        self.after("record_skipped")

    def server_time(self) -> int:
        """Return the time of `now`, as precise as a millisecond."""
        self.before("server_time")
        now = self.now() // 1000 * 1000
        self.after("server_time")
        return now

    def _put(self, row: FenceRow) -> None:
        self.rows[row.pipeline] = row
        if not row.is_released:
            self.history.append(row)

    def _matches(self, row: FenceRow) -> bool:
        seen = self.rows.get(row.pipeline)
        return seen is not None and (seen.epoch, seen.version, seen.driver) == (row.epoch, row.version, row.driver)
