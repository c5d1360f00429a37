"""The stateless loop: plan, write, commit. It knows only protocols, so that every failure can be tested in memory.

What holds at each step:

- a batch's end is in the fence row (`planned`) before its first row is written, so a successor repeats that batch, or
  a part of it that its claim records first;
- the offsets move only after all its rows are written, in one conditional update; so a crash anywhere repeats the
  batch, and the repetition overwrites every row that the first try left;
- a run that is asked to stop leaves nothing planned of which nothing is written, so other code can continue at once;
- any exception leaves the loop, and nothing after it is written or committed, except that a run with an isolator tries
  smaller pieces of a batch that failed for what is in its records.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from fencepost.batch import EMPTY, Batch, Written
from fencepost.contract import DriverConfig, Reason, split_offset_key
from fencepost.driver.loss_report import recorded
from fencepost.driver.planning import plan
from fencepost.driver.planning.awaiting import (
    EXERCISE,
    FIRST_EXERCISED,
    MOST_EXERCISED_BYTES,
    await_epoch,
    exercised_next,
)
from fencepost.driver.planning.claiming import Claiming
from fencepost.driver.planning.leader_epochs import LeaderEpochs
from fencepost.driver.planning.log_polling import LogPolling, Stopping
from fencepost.driver.planning.plan import Plan
from fencepost.driver.planning.planner import Planner
from fencepost.driver.ports import Engine, Log, Records
from fencepost.driver.recovery.bisection import Piece
from fencepost.driver.recovery.poison import Isolator
from fencepost.driver.reporting.commit_figures import Measure, of_batch, unmeasured
from fencepost.driver.reporting.commit_report import Report, Stopwatch
from fencepost.driver.sizing.batch_limit import Limit
from fencepost.driver.stopping import check_held
from fencepost.errors import DataLoss, DependencyDown, DriverError, replaced, suspects_record
from fencepost.fence import Fence, FenceError, FenceRow
from fencepost.fence.figures import Figure

log = logging.getLogger(__name__)

LOOK_AHEAD: Final = 0.25
"""Seconds that a finished batch waits for the plan of the next one, which saves an update of the fence row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InProgress:
    """The batch that is being written, the row on which it began, and when (monotonic seconds)."""

    batch: Batch
    row: FenceRow
    since: float


def nothing_left(row: FenceRow) -> None:
    """Remove nothing: no run before this one left anything but output."""


def ignore(offsets: Mapping[str, int]) -> None:
    """Mirror the offsets to nothing."""


class Loop:
    """One run of one pipeline. `stop` ends it after the batch in progress; `hand` and `row` say where it is.

    `claimed` removes what earlier runs left of records that this one reads again, before anything is written.
    `report` gets each committed batch, `mirror` the committed offsets, after the claim and each commit; both
    return at once.  `memory` measures the driver for the figures of each commit.
    """

    def __init__(
        self,
        *,
        config: DriverConfig,
        driver: str,
        fence: Fence,
        source: Log,
        records: Records,
        engine: Engine,
        stop: threading.Event,
        report: Callable[[Report], None],
        isolator: Isolator | None = None,
        claimed: Callable[[FenceRow], None] = nothing_left,
        mirror: Callable[[Mapping[str, int]], None] = ignore,
        memory: Measure = unmeasured,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        look_ahead: float = LOOK_AHEAD,
    ) -> None:
        self._config = config
        self._driver = driver
        self._fence = fence
        self._records = records
        self._engine = engine
        self._stop = stop
        self._report = report
        self._epochs = LeaderEpochs(records)
        self._isolator = isolator
        self._claimed = claimed
        self._mirror = mirror
        self._memory = memory
        self._now = now
        self._wait = wait or stop.wait
        self._look_ahead = look_ahead
        self._polling = LogPolling(source, stop)
        self._limit = Limit(config.source, reduced=config.first_batch_limit, now=now)
        self._planner = Planner(config, self._polling, self._limit)
        self._claiming = Claiming(
            config=config, fence=fence, polling=self._polling, limit=self._limit.records, wait=self._wait, now=now
        )
        self._row: FenceRow | None = None
        self._seen_epochs: Mapping[str, int] = {}
        self._exercised = now()
        self._in_progress: InProgress | None = None
        self._looks_in_vain = 0
        self._exercised_records = FIRST_EXERCISED

    @property
    def life(self) -> tuple[FenceRow, int] | None:
        """The row, and how often Kafka had nothing to read: one moves while the run works. From any thread."""
        return None if self._row is None else (self._row, self._looks_in_vain)

    @property
    def row(self) -> FenceRow:
        """The fence row as last changed by this run."""
        if self._row is None:
            raise RuntimeError("nothing is claimed yet")
        return self._row

    @property
    def version(self) -> int | None:
        """The row's version, None before the claim."""
        return None if self._row is None else self._row.version

    @property
    def in_progress(self) -> InProgress | None:
        """The batch that is being written. From any thread."""
        return self._in_progress

    @property
    def hand(self) -> Batch:
        """The batch that is being written, for the verdict; an empty one between batches."""
        return EMPTY if self._in_progress is None else self._in_progress.batch

    def claim(self) -> None:
        """Bind the epoch to this driver. Raises Fenced, DataLoss, BadSpec, FenceClockSkew, FenceUnavailable."""
        self._row = self._fence.claim(
            epoch=self._config.epoch,
            driver=self._driver,
            code=self._config.code,
            start=self._claiming.start,
            owner=self._config.owner,
        )
        self._seen_epochs = self._claiming.leader_epochs
        self._claimed(self._row)
        self._show()

    def exercise(self, row: FenceRow | None = None) -> None:
        """Read and transform the newest committed records, and write nothing: a first batch needs all that this loads.

        `row` says which these are; None asks the fence.  An empty batch reads nothing.  It is enough where there are no
        such records, or one of them fails: a run that waits continues then, for the run that works has passed or set
        aside all of them.  The epoch is not looked for meanwhile, so it takes about a second at most.
        """
        began = self._now()
        try:
            batch = self._newest(row or self._fence.read())
            if not batch.is_empty:
                self._engine.rehearse(batch)
                self._exercised_records = exercised_next(self._exercised_records, self._now() - began)
                return
        except Stopping:
            return
        except (FenceError, DriverError) as error:
            self._exercised_records = 0
            log.warning("committed records are not read beside the run that works: %s", error)
        self._engine.keep_warm()

    def _newest(self, row: FenceRow | None) -> Batch:
        """Return what is exercised: few records, of few bytes by the last batch; none once they took too long."""
        if row is None or not self._exercised_records:
            return EMPTY
        size = row.figures.get(Figure.BYTES, 0) // max(1, row.records or 1)
        limit = min(self._exercised_records, MOST_EXERCISED_BYTES // size if size else FIRST_EXERCISED)
        if not limit:
            return EMPTY
        return plan.newest(row, self._polling.now(), self._config.source.topics, limit)

    def run(self) -> None:
        """Claim once the epoch has begun, then batch after batch until `stop`; whatever goes wrong is raised."""
        try:
            with replaced(self._recorded):
                with suppress(Stopping):
                    self._await_epoch()
                    self.claim()
                    self._stream()
                check_held(self._fence, self._row, self._config)
        finally:
            self._polling.end()

    def _await_epoch(self) -> None:
        await_epoch(
            self._fence,
            self._config,
            stop=self._stop,
            exercise=self.exercise,
            wait=self._wait,
            now=self._now,
        )

    def _recorded(self, error: Exception) -> Exception:
        return recorded(
            error,
            self._row or self._claiming.row,
            is_claimed=self._row is not None,
            epoch=self._config.epoch,
            fence=self._fence,
            polling=self._polling,
            records=self._records,
            topics=self._config.source.topics,
        )

    def _stream(self) -> None:
        batch, is_begun = self._planned(), True  # a predecessor may have written a part of it
        while not self._stop.is_set() and not self._planner.is_finished(self.row):
            try:
                batch, is_begun = self._step(batch), False
            except DataLoss as lost:
                self._skip_expired(lost)
                batch, is_begun = self._planned(), True
        if not batch.is_empty and not is_begun:
            self._row = self._fence.withdraw(self.row)

    def _step(self, batch: Batch) -> Batch:
        """Do a batch, or plan and do one, or wait; return the next one when there is a full one, else an empty one."""
        watch = Stopwatch(self._now)
        self._limit.rise()
        if batch.is_empty:
            batch = self._plan(watch)
        if batch.is_empty:
            self._idle()
            return EMPTY
        self._epochs.before(batch)  # a leader that was elected uncleanly, or lost its disk, has another log
        full = batch.records >= self._limit.records
        following = self._do(batch, watch)
        if following.is_empty and not full:
            self._pause(watch)
        return following

    def _skip_expired(self, lost: DataLoss) -> None:
        """Move past what retention deleted where that was accepted. Raises `lost` where it was not."""
        if lost.reason is not Reason.OFFSET_OUT_OF_RANGE:
            raise lost
        self._polling.forget()
        found = self._claiming.without_expired(self.row, self._polling.now())
        if found is None:
            raise lost
        self._in_progress = None
        self._row = self._fence.skip(self.row, offsets=found.offsets, growth_barrier=found.growth_barrier)
        self._show()

    def _planned(self) -> Batch:
        """Return the batch that the row says comes next."""
        return plan.recorded(
            self.row,
            self._config.source.topics,
            leader_epochs=self._seen_epochs,
            written_until=self._claiming.written_until,
        )

    def _plan(self, watch: Stopwatch) -> Batch:
        """Plan the next batch and record its end at the fence, before anything of it is written."""
        with watch.phase("plan"):
            found = self._planner.next(self.row)
        self._planner.note(found)
        offsets = found.position.offsets
        if found.batch.is_empty and offsets.keys() == self.row.offsets.keys():
            return EMPTY
        with watch.phase("record"):
            self._row = self._fence.plan(
                self.row,
                offsets=offsets,
                planned={**offsets, **found.batch.until},
                growth_barrier=found.position.barrier,
                log_ends=found.log_ends,
            )
        self._seen_epochs = found.batch.leader_epochs
        return self._planned()

    def _do(self, batch: Batch, watch: Stopwatch) -> Batch:
        """Do one batch, without the records that fail alone; return the next one when there is a full one."""
        try:
            following = self._whole(batch, watch)
        except DriverError as error:
            if self._isolator is None or not suspects_record(error):
                raise
            self._polling.forget()
            self._isolator.isolate(batch, error, self)
            return EMPTY
        if self._isolator is not None:
            self._isolator.passed(batch)
        return following

    def begin(self, piece: Piece) -> Batch:
        """Record ranges as the planned batch, and return it: a piece of a batch that failed, or ranges without records.

        The row's `begun` keeps the end of the whole batch, of which rows may exist, until all of it is committed.
        """
        until = {part.key: part.until for part in piece}
        self._row = self._fence.plan(self.row, offsets=self.row.offsets, planned={**self.row.offsets, **until})
        batch = self._planned()
        self._in_progress = InProgress(batch=batch, row=self.row, since=self._now())
        return batch

    @property
    def may_reach_further(self) -> bool:
        """Whether this run may begin more than the batch that failed: not if it only finishes what its code began."""
        return not self._config.finish_until

    def commit(self, part: Batch, written: Written, *, dead_letter: str | None = None) -> None:
        """Move the offsets past a piece."""
        epochs = self._epochs.after(part, written.epochs)
        watch = Stopwatch(self._now, self._in_progress.since if self._in_progress else None)
        with watch.phase("commit"):
            self._row = self._fence.commit(
                self.row,
                offsets=part.until,
                planned=part.until,
                records=part.records,
                duration_ms=watch.total(),
                leader_epochs=epochs.leader_epochs,
                epoch_starts=epochs.epoch_starts,
                dead_letter=dead_letter,
                figures=self._figures(written) if written.work else None,
                has_output=bool(written.work),
            )
        self._after_commit(part, written, watch, dead_letter=dead_letter)

    def _whole(self, batch: Batch, watch: Stopwatch) -> Batch:
        """Write and commit one batch; return the next one when there is a full one, else an empty batch."""
        self._in_progress = InProgress(batch=batch, row=self.row, since=self._now())
        # While this is written, Kafka is asked what comes next.
        self._polling.begin()
        with watch.phase("write"):
            written = self._engine.write(batch, self.row)
        self._limit.measure(batch, written, seconds=watch.phases["write"] / 1000)
        epochs = self._epochs.after(batch, written.epochs)
        gap = self._without_records(batch, written)
        following, trouble = (None, None) if gap else self._looked_ahead(batch.until)
        offsets = batch.until if following is None else following.position.offsets
        ahead = EMPTY if following is None or following.batch.records < self._limit.records else following.batch
        with watch.phase("commit"):
            self._row = self._fence.commit(
                self.row,
                offsets=offsets,
                planned={**offsets, **ahead.until},
                records=batch.records,
                duration_ms=watch.total(),
                leader_epochs=epochs.leader_epochs,
                epoch_starts=epochs.epoch_starts,
                growth_barrier=None if following is None else following.position.barrier,
                log_ends=None if following is None else following.log_ends,
                figures=self._figures(written),
            )
        if following is not None:
            self._planner.note(following)
            self._seen_epochs = following.batch.leader_epochs
        self._after_commit(batch, written, watch, lag=None if following is None else following.lag)
        if gap:
            self.commit(self.begin(gap), Written({}))
        if trouble is not None:
            if isinstance(trouble, DependencyDown):
                self._polling.check_stop()
            raise trouble  # after the commit: what was written is complete
        return self._planned()

    def _figures(self, written: Written) -> dict[str, int]:
        return of_batch(written, limit=self._limit.records, driver=self._memory())

    def _without_records(self, batch: Batch, written: Written) -> Piece:
        """Return what follows a batch and has no record, where that is as long as a batch; a finishing run ends before.

        Each further batch would read such a stretch again, up to the next record: aborted transactions and compaction
        leave it.  Not beyond the end that the log had when the batch was planned: the leader epochs are of that moment.
        """
        ends: Mapping[str, int] = {} if self._config.finish_until else self.row.log_ends
        found = [
            replace(
                part, start=part.until, until=min(each.get(part.key, part.until) for each in (written.reached, ends))
            )
            for part in batch.ranges
        ]
        return tuple(part for part in found if part.records >= self._limit.records)

    def _after_commit(
        self,
        batch: Batch,
        written: Written,
        watch: Stopwatch,
        *,
        lag: int | None = None,
        dead_letter: str | None = None,
    ) -> None:
        """End the batch in progress: report its commit, and mirror it."""
        self._in_progress = None
        self._exercised = self._now()
        total = watch.total()
        self._show()
        self._report(
            Report(
                epoch=self.row.epoch,
                version=self.row.version,
                records=batch.records,
                size=written.size,
                limit=self._limit.records,
                work=written.work,
                phases={**watch.phases, **written.phases, "total": total},
                lag=lag,
                ranges=batch.ranges,
                starts=watch.starts,
                seconds=total / 1000,
                unavailable=self._planner.unavailable,
                clock_skew_ms=self._fence.clock_skew_ms,
                dead_letter=dead_letter,
            )
        )

    def _show(self) -> None:
        """Mirror the committed offsets of the topics that are read; those that left the spec stay in the row."""
        topics = set(self._config.source.topics)
        self._mirror({key: at for key, at in self.row.offsets.items() if split_offset_key(key)[0] in topics})

    def _looked_ahead(self, offsets: Mapping[str, int]) -> tuple[Plan | None, DriverError | None]:
        """Return the plan after `offsets` when Kafka has answered, or why not: the finished batch comes first."""
        if self._stop.is_set():
            return None, None
        try:
            state = self._polling.within(self._look_ahead)
            return None if state is None else self._planner.after(self.row, offsets, state), None
        except DriverError as error:
            return None, error

    def _idle(self) -> None:
        """Wait a little; exercise the workers now and then."""
        self._looks_in_vain += 1
        now = self._now()
        if now - self._exercised >= EXERCISE:
            self._engine.keep_warm()
            self._exercised = self._now()
        self._wait(self._planner.idle_interval)

    def _pause(self, watch: Stopwatch) -> None:
        """Let the interval between two batches' starts pass."""
        left = watch.started + self._config.batch_interval - self._now()
        if left > 0:
            self._wait(left)
