"""The driver as an actor: it plans, writes its rows and commits behind the real fence; each step may be its last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from fakes.drivers import Driver, _log
from fencepost.contract import ExitCode, Reason
from fencepost.driver import losses, watches
from fencepost.errors import DataLoss
from fencepost.fence import Fenced, FenceRow, FenceUnavailable, Starting
from simulation.invariants import Output

FENCE_CHECK = timedelta(seconds=watches.FENCE_CHECK)
PATIENCE = timedelta(seconds=30)
"""How long a driver waits for Cassandra before it ends."""


@dataclass(slots=True)
class SimulatedDriver(Driver):
    """A driver that writes rows, notices losses, and gives up on a Cassandra that stays away."""

    output: Output = field(default_factory=Output)
    skips: Callable[[str], None] = lambda _uid: None
    """Told before a claim that takes an accepted loss out."""
    generation: int = 0
    dies_before_commit: int | None = None
    """The exit code with which it ends once its next batch is written."""
    unanswered_since: datetime | None = None
    looked_at: datetime | None = None

    def step(self, now: datetime, *, executors: bool) -> None:
        """Do what is due."""
        if self.exit_code is not None or self.frozen:
            return
        waits = self.unanswered_since
        self.unanswered_since = None
        Driver.step(self, now, executors=executors)
        if self._is_unanswered():
            self.unanswered_since = waits or now
            if now - self.unanswered_since > PATIENCE:
                self.end(now, ExitCode.DEPENDENCY_DOWN, reason=Reason.CASSANDRA_UNREACHABLE)
        self._watch_fence(now)

    def _watch_fence(self, now: datetime) -> None:
        """End once the fence is another's, as an idle driver finds out: see `fencepost.driver.watches`."""
        since = self.looked_at or self.started_at
        if self.exit_code is not None or since is None or now - since < FENCE_CHECK:
            return
        self.looked_at = now
        try:
            row = self.fence.read()
        except FenceUnavailable:
            return
        if row is not None and (row.epoch != self.config.epoch or row.driver not in {None, self.uid}):
            self.end(now, ExitCode.FENCED)

    def _is_unanswered(self) -> bool:
        return self.unanswered_since is not None

    def _work(self, now: datetime, *, executors: bool) -> None:
        try:
            Driver._work(self, now, executors=executors)
        except FenceUnavailable:
            self.unanswered_since = now
        except Fenced:
            if self.row is not None and self.dies_before_commit is None:
                self._write(self.row, self.row.planned)  # executors may be a moment behind their driver
            raise

    def _start(self, row: FenceRow) -> Starting:
        found = Driver._start(self, row)
        if self.accepted:
            self.skips(self.uid)
        return found

    def _batch(self, now: datetime, ends: Mapping[str, int]) -> None:
        if self.lost and self.row is not None:
            row, log = self.row, replace(_log(ends), **self.lost)
            topics = self.config.source.topics
            try:
                losses.check_topics(row.offsets, row.log_ends, row.topic_ids, log, topics)
                losses.check_ranges(row.offsets, row.topic_ids, log, topics)
            except DataLoss as error:
                self.claiming = row
                self._lose(now, error)
                return
        Driver._batch(self, now, ends)
        if self.row is not None and self.batch_since == now:
            self._write(self.row, _halves(self.row))

    def _commit(self, now: datetime, ends: Mapping[str, int]) -> None:
        assert self.row is not None
        if self.row.planned == self.row.offsets:
            after = self._after(self.row, ends)
            if after == self.row.offsets:
                return
            self.row = self.fence.plan(self.row, offsets=self.row.offsets, planned=after)
        self._write(self.row, self.row.planned)
        if self.dies_before_commit is not None:
            self.end(now, self.dies_before_commit)
            return
        Driver._commit(self, now, ends)

    def _write(self, row: FenceRow, until: Mapping[str, int]) -> None:
        ranges = {key: (row.offsets.get(key, 0), end) for key, end in until.items() if end > row.offsets.get(key, 0)}
        self.output.write(row, self.uid, self.config.code, ranges)


def _halves(row: FenceRow) -> dict[str, int]:
    """Return how far the rows of a batch are written soon after it began."""
    return {key: offset + (row.planned.get(key, offset) - offset + 1) // 2 for key, offset in row.offsets.items()}
