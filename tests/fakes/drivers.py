"""A driver in memory: it claims its epoch, commits batches behind the real fence, and ends as the real one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fencepost.contract import DriverConfig, ExitCode, Reason, Verdict
from fencepost.fence import Fence, Fenced, FenceRow, FenceUnavailable, Starting

WARM_UP = timedelta(seconds=4)
STOPPING = timedelta(seconds=1)
EXECUTOR_LIMIT = timedelta(seconds=120)


@dataclass(slots=True)
class Driver:
    """One process. `step` lets it do what it would have done by now."""

    config: DriverConfig
    uid: str
    fence: Fence
    ends: Callable[[], Mapping[str, int] | None]
    """The log ends, or None while Kafka is down."""
    started_at: datetime | None = None
    row: FenceRow | None = None
    frozen: bool = False
    asked_at: datetime | None = None
    exit_code: int | None = None
    finished_at: datetime | None = None
    verdict: Verdict | None = None
    committed_at: datetime | None = None
    lonely_since: datetime | None = None
    """Since when it has had no executor."""
    fails_with: ExitCode | None = None
    batch_takes: timedelta = timedelta(0)
    """From the start of a batch to its commit; it reports progress at each step in between."""
    batch_since: datetime | None = None
    hangs: bool = False
    """Its batches neither end nor report progress."""
    commits: list[tuple[int, Mapping[str, int], Mapping[str, int]]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether the process exists, frozen or not."""
        return self.exit_code is None

    def step(self, now: datetime, *, executors: bool) -> None:
        """Do what is due."""
        if not self.alive or self.frozen or self.started_at is None:
            return
        self.lonely_since = None if executors else self.lonely_since or now
        if self.lonely_since is not None and now - self.lonely_since > EXECUTOR_LIMIT:
            self.end(now, ExitCode.NO_EXECUTORS)
            return
        try:
            self._work(now, executors=executors)
        except Fenced:
            self.end(now, ExitCode.FENCED)
        except FenceUnavailable:
            return

    def end(self, now: datetime, code: int, message: str = "") -> None:
        """End the process."""
        self.exit_code, self.finished_at = int(code), now
        self.verdict = Verdict(
            exit_code=int(code), reason=Reason.RUN_ENDED, message=message or f"exit {code}", remedy=""
        )

    def _work(self, now: datetime, *, executors: bool) -> None:
        if self.row is None and (self.started_at is None or now - self.started_at < WARM_UP or not executors):
            if self.asked_at is not None:
                self.end(now, ExitCode.STOPPED)
            return
        if self.fails_with is not None:
            self.end(now, self.fails_with)
            return
        ends = self.ends()
        if self.row is None:
            if ends is None:
                return
            self.row = self.fence.claim(
                epoch=self.config.epoch, driver=self.uid, code="code", start=self._start, owner=self.config.owner
            )
        elif ends is not None and self._due(now):
            self._batch(now, ends)
        if self.asked_at is not None and now - self.asked_at >= STOPPING:
            self.end(now, ExitCode.STOPPED)

    def _start(self, row: FenceRow) -> Starting:
        ends = self.ends() or {}
        offsets = {key: row.offsets.get(key, 0) for key in ends}
        return Starting(offsets=offsets, planned=offsets, topic_ids={})

    def _due(self, now: datetime) -> bool:
        interval = timedelta(seconds=self.config.batch_interval)
        return self.committed_at is None or now - self.committed_at >= interval or self.asked_at is not None

    def _batch(self, now: datetime, ends: Mapping[str, int]) -> None:
        if self.hangs:
            return
        if self.batch_since is None:
            self.batch_since = now
            if self.batch_takes and self.row is not None:
                planned = self._after(self.row, ends)
                self.row = self.fence.plan(self.row, offsets=self.row.offsets, planned=planned)
        taken = now - self.batch_since
        if taken >= self.batch_takes:
            self.batch_since = None
            self._commit(now, ends)
        elif self.row is not None:
            self.fence.report_progress(self.row, int(taken.total_seconds()))

    def _after(self, row: FenceRow, ends: Mapping[str, int]) -> dict[str, int]:
        limit = self.config.source.max_records_per_batch
        return {key: min(ends.get(key, offset), offset + limit) for key, offset in row.offsets.items()}

    def _commit(self, now: datetime, ends: Mapping[str, int]) -> None:
        row = self.row
        assert row is not None
        after = self._after(row, ends)
        if after == row.offsets:
            return
        records = sum(after.values()) - sum(row.offsets.values())
        self.row = self.fence.commit(row, offsets=after, planned=after, records=records, duration_ms=200)
        self.commits.append((self.config.epoch, row.offsets, after))
        self.committed_at = now
