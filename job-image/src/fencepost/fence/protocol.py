"""The fence: one row per pipeline, changed by compare-and-swap alone, so that at most one driver can commit.

The protocol (docs/fence-protocol.md).  A row carries an owner, an epoch, a version and the driver that claimed it.
Every change is one conditional update on epoch, version and driver and moves the version by one, so a change is applied
once or not at all:

- the operator creates the row at epoch 0 and takes it over (epoch + 1, no driver) before each run;
- the driver claims the epoch that it was given, once; its twin finds another driver there;
- the driver commits, once per batch; after a takeover the condition fails and it is fenced;
- a driver that hands over ends its epoch when it stops, as the operator would by a takeover;
- the operator rewinds an unclaimed row: it sets the offsets back, after the sinks' rows beyond them are deleted;
- the operator releases the row of a deleted pipeline: the row stays without an owner, so that epochs, versions and
  write timestamps never start over, and whoever creates the pipeline again adopts it.

A request that times out may have been applied, now or later.  `Fence` never guesses: it reads at SERIAL, which settles
what was in flight, and finds exactly one of applied, unchanged (try again) or lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from fencepost.batch import EventTime
from fencepost.contract import ReportedLoss, commit_ms
from fencepost.fence.batch_progress import heartbeat_key
from fencepost.fence.clock import ServerClock, wall_clock
from fencepost.fence.errors import Fenced, FenceMissing, FenceSwapRefused, FenceUnavailable
from fencepost.fence.patience import Patience
from fencepost.fence.row import EMPTY, NO_OWNER, UNCLAIMED, FenceRow
from fencepost.fence.table import FenceTable


class Fence:
    """One pipeline's fence. `patience` is in seconds: how long an unanswered change is pursued before giving up."""

    def __init__(
        self,
        table: FenceTable,
        pipeline: str,
        *,
        patience: float = 30.0,
        now: Callable[[], int] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._table = table
        self._pipeline = pipeline
        self._patience = Patience(patience, monotonic, sleep)
        self._now = now
        self._clock = ServerClock(table.server_time, now=now, monotonic=monotonic)

    def server_time(self) -> int:
        """Return the database's own wall time in µs since 1970. Raises FenceUnavailable."""
        return self._patience.ask(self._table.server_time)

    @property
    def clock_skew_ms(self) -> int | None:
        """By how many ms this node's clock is ahead of the database's; None while that is not known."""
        return self._clock.skew_ms

    def read(self) -> FenceRow | None:
        """Return the row, or None: it does not exist, or it was released.

        Raises FenceUnavailable at the first failure: the caller looks again.
        """
        row = self._table.read(self._pipeline)
        return None if row is None or row.is_released else row

    def read_epoch(self) -> int | None:
        """Return the epoch, None without a row: by a cheap read, which may miss the newest change for a moment.

        Raises FenceUnavailable at the first failure.
        """
        return self._table.read_epoch(self._pipeline)

    def check_held(self, row: FenceRow, *, seconds: float) -> None:
        """Raise Fenced or FenceMissing where the driver of `row` holds the fence no more.

        Raises FenceUnavailable where that is not known after `seconds`.
        """
        found = replace(self._patience, seconds=seconds).ask(lambda: self._table.read(self._pipeline))
        open_to(found, self._pipeline, epoch=row.epoch, driver=row.driver or "")

    def end_epoch(self, row: FenceRow, *, seconds: float) -> None:
        """Begin the next epoch in the place of the operator, as the last change of the driver of `row`.

        A driver may always give up its own epoch: what it has committed stays, and it commits nothing afterwards.
        Raises Fenced where the row moved, and FenceUnavailable where the outcome is not known after `seconds`.
        """
        self._change(row, self._taken(row, row.owner), patience=replace(self._patience, seconds=seconds))

    def create(self, owner: str) -> FenceRow:
        """Insert the row at epoch 0 unless there is one, and adopt a released one; return the row that is there.

        An adopted row keeps its epoch and clock, so that no driver of the deleted pipeline holds an epoch of the new
        one and no output of the new one is older than what the deleted one wrote.
        Raises FenceUnavailable, FenceSwapRefused, and Fenced where rivals change a released row all the time.
        """
        fresh = FenceRow(pipeline=self._pipeline, owner=owner)
        deadline = self._patience.begin()
        while True:
            try:
                if self._table.insert(fresh):
                    return fresh
                seen = self._table.read(self._pipeline)
                if seen is not None and seen.is_released:
                    return self._change(seen, replace(seen, owner=owner, version=seen.version + 1))
            except (FenceUnavailable, Fenced) as error:  # Fenced: a rival adopted it, and the next read shows the row
                deadline.pause_or_raise(error)
                continue
            if seen is not None:
                return seen
            deadline.pause_or_raise(FenceSwapRefused("the store refuses to create the fence row, and reads none"))

    def take_over(self, before: FenceRow, *, owner: str) -> FenceRow:
        """Start a new epoch: no driver of an older one can commit from here on. Raises Fenced if the row moved."""
        return self._change(before, self._taken(before, owner))

    def take_over_epoch(self, epoch: int, *, owner: str) -> FenceRow:
        """Start a new epoch whatever the driver of `epoch` commits meanwhile: only another epoch stops this.

        The condition stays epoch, version and driver, so that no commit is lost; a row that moved within the epoch is
        read and tried again for as long as the patience.
        Raises FenceMissing without a row, Fenced when the epoch is over, FenceUnavailable when the patience ends.
        """
        deadline = self._patience.begin()
        while True:
            before = self._read_patiently()
            if before is None or before.is_released:
                raise FenceMissing(f"no fence row for {self._pipeline!r}")
            if before.epoch != epoch:
                raise Fenced(_who_holds(before, epoch=epoch, driver=before.driver), seen=before)
            try:
                return self.take_over(before, owner=owner)
            except Fenced as error:
                if error.seen is None or error.seen.epoch != epoch:
                    raise
                if deadline.is_over:
                    raise FenceUnavailable(
                        f"the driver of epoch {epoch} changed the fence row before each of our requests"
                    ) from error

    def claim(  # the first claim also pins where the pipeline starts
        self,
        *,
        epoch: int,
        driver: str,
        code: str,
        start: Callable[[FenceRow], Starting],
        owner: str | None = None,
    ) -> FenceRow:
        """Bind the epoch to this driver.

        `start` is asked, with the row as it is, for what the claim records (see Starting); it runs before
        anything is written, so an exception of its own leaves the row untouched.  `owner` is whose row this must be:
        the version in the condition covers it; empty or None checks nothing.
        Raises FenceMissing without a row, Fenced when the epoch is over, another driver claimed it or the row is
        another owner's, FenceClockSkew when this node's clock or the row's is too far ahead.
        """
        before = open_to(self._read_patiently(), self._pipeline, epoch=epoch, driver=driver, owner=owner)
        self._patience.ask(lambda: self._clock.check(before.write_timestamp))
        if before.driver == driver:
            return before
        starting = start(before)
        after = replace(
            before,
            driver=driver,
            version=before.version + 1,
            code=code,
            offsets=dict(starting.offsets),
            planned=dict(starting.planned),
            begun=dict(starting.begun),
            accepted_until=dict(starting.accepted_until),
            topic_ids=dict(starting.topic_ids),
            leader_epochs=dict(starting.leader_epochs),
            epoch_starts=dict(starting.epoch_starts),
            growth_barrier=dict(starting.growth_barrier),
            growths=starting.growths,
            log_ends=dict(starting.log_ends),
        )
        return self._change(before, after)

    def plan(
        self,
        before: FenceRow,
        *,
        offsets: Mapping[str, int],
        planned: Mapping[str, int],
        growth_barrier: Mapping[str, int] | None = None,
        log_ends: Mapping[str, int] | None = None,
        planned_log: bytes | None = None,
    ) -> FenceRow:
        """Record where the next batch ends, before anything of it is written; the last batch's figures stay.

        Where `before` planned further, its output may exist, and that end stays in `begun`.
        `offsets` differs from `before`'s by new partitions only.  None leaves what the row has.
        Raises Fenced, as `commit` does.
        """
        after = self._next(before, offsets, planned, {}, growth_barrier, log_ends)
        return self._change(before, replace(after, planned_log=planned_log))

    def withdraw(self, before: FenceRow) -> FenceRow:
        """Take back a plan of which nothing is written. Raises Fenced, as `commit` does."""
        after = self._next(before, before.offsets, before.offsets, {}, None, None)
        return self._change(before, replace(after, begun=dict(before.begun)))

    def skip(self, before: FenceRow, *, offsets: Mapping[str, int], growth_barrier: Mapping[str, int]) -> FenceRow:
        """Move the offsets past records that are accepted as lost; the rest of the plan stays. Raises as `commit`."""
        planned = {**offsets, **{key: max(end, offsets.get(key, 0)) for key, end in before.planned.items()}}
        after = self._next(before, offsets, planned, {}, growth_barrier, None)
        return self._change(before, replace(after, planned_log=before.planned_log))

    def commit(
        self,
        before: FenceRow,
        *,
        offsets: Mapping[str, int],
        planned: Mapping[str, int],
        records: int,
        duration_ms: int,
        leader_epochs: Mapping[str, int] | None = None,
        epoch_starts: Mapping[str, int] | None = None,
        growth_barrier: Mapping[str, int] | None = None,
        log_ends: Mapping[str, int] | None = None,
        dead_letter: str | None = None,
        event_time: EventTime | None = None,
        record_times: Mapping[str, int] | None = None,
        checkpoint: bytes | None = None,
        state_bytes: int | None = None,
        figures: Mapping[str, int] | None = None,
        has_output: bool = True,
    ) -> FenceRow:
        """Move the offsets, in the epoch, by the driver and from the version of `before`; return the new row.

        `leader_epochs` are those of the records before `offsets`, or of leaders that had them, and `epoch_starts` the
        first records that were read of these epochs.  The row keeps them for the partitions that move, and drops what
        it had for a partition that moves without one.  None leaves `growth_barrier`, `log_ends`, the watermark,
        `checkpoint`, `state_bytes` and `figures` as the row has them.  `dead_letter` is the one record of this batch
        when it was set aside, 'topic/partition@offset'.  `record_times` are those of the batch: the row keeps the
        largest of each partition.  `has_output` is whether the batch was written to the sinks.
        Raises Fenced when another owner has the row: the caller must end its process at once.  Raises FenceClockSkew
        when the timestamp would be too far ahead of the database's time.
        """
        seen = event_time or EventTime(watermark=before.watermark)
        times = {**before.record_times}
        times |= {key: max(time, times.get(key, 0)) for key, time in (record_times or {}).items() if key in offsets}
        after = replace(
            self._next(before, offsets, planned, leader_epochs or {}, growth_barrier, log_ends, epoch_starts or {}),
            committed_at=datetime.fromtimestamp(self._now() / 1e6, UTC),
            records=records,
            duration_ms=duration_ms,
            output_token=before.write_timestamp if has_output else before.output_token,
            dead_letters=before.dead_letters + (dead_letter is not None),
            last_dead_letter=dead_letter or before.last_dead_letter,
            watermark=seen.watermark,
            late_rows=before.late_rows + seen.late_rows,
            record_times=times,
            state_bytes=before.state_bytes if state_bytes is None else state_bytes,
            figures=dict(before.figures if figures is None else figures),
            checkpoint=checkpoint or before.checkpoint,
        )
        return self._change(before, after)

    def rewind(
        self,
        before: FenceRow,
        *,
        offsets: Mapping[str, int],
        leader_epochs: Mapping[str, int],
        growth_barrier: Mapping[str, int],
        keeps_output: bool = True,
        checkpoint: bytes | None = None,
    ) -> FenceRow:
        """Set the offsets back in a row that is not claimed; nothing is planned then. Return the new row.

        A batch that was begun stays in `begun` for the partitions that do not move, unless `keeps_output` is false.
        A partition that is not in `offsets` leaves the row.  `leader_epochs` are of partitions that move, see `commit`.
        `checkpoint` is the state at `offsets`; without it a stateful pipeline starts with empty state, and its row
        still says that its commits are of a stateful one.
        The clock advances by at least 2, so that what is written from here on wins over rows, and over deletions of
        rows, that were written at the timestamp of `before`.
        Raises Fenced, as `take_over` does, ValueError for a row with a driver.
        """
        if before.driver is not UNCLAIMED:
            raise ValueError("a row that a driver has claimed is not rewound: take it over first")
        no_state = None if before.checkpoint is None else EMPTY
        after = replace(
            before,
            version=before.version + 1,
            clock=self._clock.lenient_stamp(before.clock + 2),
            offsets=dict(offsets),
            planned=dict(offsets),
            begun=before.left_open(offsets) if keeps_output else {},
            accepted_until={},
            leader_epochs=_paired(before.leader_epochs, before, offsets, leader_epochs),
            epoch_starts=_paired(before.epoch_starts, before, offsets, {}),
            growth_barrier=dict(growth_barrier),
            growths=before.growths_after(growth_barrier),
            watermark=None,
            record_times={},
            state_bytes=None,
            figures={},
            checkpoint=no_state if checkpoint is None else checkpoint,
            planned_log=None,
        )
        return self._change(before, after)

    def release(self, before: FenceRow, *, also: Callable[[], None] = lambda: None) -> None:
        """Give the row up for good: its pipeline is deleted.

        The row stays, without an owner, in a new epoch and without progress: no driver of the deleted pipeline can
        commit or claim, now or in a pipeline that is created later under the same name.

        The driver's epoch ends first, so that nothing more is written beside the row; then history, snapshots, progress
        and losses go, and what `also` deletes; the owner goes last.  Whoever is killed in between leaves a row that
        says there is more to do.
        Raises Fenced when the row moved; nothing to do when it is released already.
        """
        try:
            ended = before if before.driver is UNCLAIMED else self.take_over(before, owner=before.owner)
            self._patience.ask(lambda: self._table.forget(self._pipeline))
            self._patience.ask(also)
            after = FenceRow(
                pipeline=ended.pipeline,
                owner=NO_OWNER,
                epoch=ended.epoch + 1,
                version=ended.version + 1,
                clock=self._clock.lenient_stamp(ended.clock + 2),
                output_token=ended.output_token,
            )
            self._change(ended, after)
        except Fenced as error:
            if error.seen is None or not error.seen.is_released:
                raise

    def report_progress(self, row: FenceRow, done: int) -> None:
        """Report how far the batch that began on `row` is. Raises FenceUnavailable: the caller tries later."""
        self._table.report_progress(self._pipeline, epoch=row.epoch, version=row.version, done=done)

    def give_sign(self, row: FenceRow) -> None:
        """Say that the driver of `row` works, also while it has nothing to read. Raises FenceUnavailable."""
        self.report_progress(row, 0)

    def beat(self, row: FenceRow) -> None:
        """Say that the process that holds `row` runs, whether or not its loop works. Raises FenceUnavailable."""
        self._table.report_progress(heartbeat_key(self._pipeline), epoch=row.epoch, version=row.version, done=0)

    def report_loss(self, report: ReportedLoss) -> None:
        """Record a loss for as long as the patience; done twice, it is done once. Raises FenceError."""
        self._patience.ask(lambda: self._table.report_loss(self._pipeline, report))

    def record_skipped(self, report: ReportedLoss, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Record what an open acceptance is used for, for as long as the patience. Raises FenceError."""
        self._patience.ask(lambda: self._table.record_skipped(self._pipeline, report, ranges))

    def read_newest_losses(self) -> tuple[ReportedLoss, ...]:
        """Return the losses of the newest commits that had some, accepted or not. Raises FenceError."""
        return self._patience.ask(lambda: self._table.read_losses(self._pipeline, None))

    def read_losses(self, row: FenceRow) -> tuple[ReportedLoss, ...]:
        """Return the losses that were reported since the row's last commit, accepted or not. Raises FenceError."""
        return self._patience.ask(lambda: self._table.read_losses(self._pipeline, commit_ms(row.committed_at)))

    def _taken(self, before: FenceRow, owner: str) -> FenceRow:
        return replace(
            before,
            owner=owner,
            epoch=before.epoch + 1,
            driver=UNCLAIMED,
            version=before.version + 1,
            clock=self._clock.lenient_stamp(before.clock + 2),
        )

    def _next(
        self,
        before: FenceRow,
        offsets: Mapping[str, int],
        planned: Mapping[str, int],
        leader_epochs: Mapping[str, int],
        growth_barrier: Mapping[str, int] | None,
        log_ends: Mapping[str, int] | None,
        epoch_starts: Mapping[str, int] | None = None,
    ) -> FenceRow:
        """Return the driver's next row.

        Its clock keeps up with the wall time, so that a later batch overrules what others wrote to the sinks since the
        run began: a DELETE by hand, a backfill.
        """
        barrier = before.growth_barrier if growth_barrier is None else growth_barrier
        return replace(
            before,
            version=before.version + 1,
            clock=self._clock.stamp(before.clock + 1),
            offsets=dict(offsets),
            planned=dict(planned),
            begun=before.begun_after(offsets, planned),
            accepted_until=before.accepted_after(offsets),
            leader_epochs=_paired(before.leader_epochs, before, offsets, leader_epochs),
            epoch_starts=_paired(before.epoch_starts, before, offsets, epoch_starts or {}),
            growth_barrier=dict(barrier),
            growths=before.growths_after(barrier),
            log_ends=dict(before.log_ends if log_ends is None else log_ends),
            planned_log=None,
        )

    def _change(self, before: FenceRow, after: FenceRow, *, patience: Patience | None = None) -> FenceRow:
        """Apply one swap, whatever happens to the request; return `after` once it is known to be applied.

        Raises Fenced, FenceUnavailable, and FenceSwapRefused where the refusals do not end within the patience.
        """
        deadline = (patience or self._patience).begin()
        while True:
            is_refused = False
            try:
                if self._table.swap(before, after):
                    return after
                is_refused = True  # because of a rival, or of an earlier try of this very change that was applied late
                seen = self._table.read(self._pipeline)
            except FenceUnavailable as error:
                deadline.pause_or_raise(error)
                try:
                    seen = self._table.read(self._pipeline)
                except FenceUnavailable as still:
                    deadline.pause_or_raise(still)
                    continue
            if seen is not None and seen.is_held_as(after):
                return after
            if seen is None or not seen.is_held_as(before):
                raise Fenced(_who_holds(seen, epoch=before.epoch, driver=before.driver), seen=seen)
            if is_refused:
                deadline.pause_or_raise(FenceSwapRefused(_refusal(before)))

    def _read_patiently(self) -> FenceRow | None:
        return self._patience.ask(lambda: self._table.read(self._pipeline))


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """What a claim records: where reading starts, the end of the first batch, and the topics' ids; see FenceRow.

    Recording the resolved start makes 'latest' mean one moment, not another one at each restart before a commit.
    """

    offsets: Mapping[str, int]
    planned: Mapping[str, int]
    topic_ids: Mapping[str, str]
    begun: Mapping[str, int] = field(default_factory=dict)
    accepted_until: Mapping[str, int] = field(default_factory=dict)
    leader_epochs: Mapping[str, int] = field(default_factory=dict)
    epoch_starts: Mapping[str, int] = field(default_factory=dict)
    growth_barrier: Mapping[str, int] = field(default_factory=dict)
    growths: tuple[Mapping[str, int], ...] = ()
    log_ends: Mapping[str, int] = field(default_factory=dict)


def open_to(row: FenceRow | None, pipeline: str, *, epoch: int, driver: str, owner: str | None = None) -> FenceRow:
    """Return the row if this driver holds its epoch, or may still claim it; an empty `owner` is not checked.

    Raises FenceMissing, Fenced.
    """
    if row is None:
        raise FenceMissing(f"no fence row for {pipeline!r}")
    if row.epoch != epoch or row.driver not in {UNCLAIMED, driver}:
        raise Fenced(_who_holds(row, epoch=epoch, driver=driver), seen=row)
    if owner and row.owner != owner:
        raise Fenced(f"the fence row belongs to {row.owner!r}, not to {owner!r}", seen=row)
    return row


def _paired(
    known: Mapping[str, int], before: FenceRow, offsets: Mapping[str, int], seen: Mapping[str, int]
) -> dict[str, int]:
    """Return what belongs to `offsets`: what was `known` of those that stay, and what was `seen` of those that move.

    An epoch and an offset are a pair: an older epoch with a newer offset would look like a truncated log.
    """
    stay = {key: value for key, value in known.items() if offsets.get(key) == before.offsets.get(key)}
    moved = {key: value for key, value in seen.items() if key in offsets and offsets[key] != before.offsets.get(key)}
    return {**stay, **moved}


def _who_holds(seen: FenceRow | None, *, epoch: int, driver: str | None) -> str:
    if seen is None:
        return f"the fence row does not exist any more (this was epoch {epoch})"
    if seen.is_released:
        return f"the pipeline was deleted, and epoch {epoch} with it"
    if seen.epoch != epoch:
        return f"epoch {epoch} is over: the fence is at epoch {seen.epoch}"
    if seen.driver != driver:
        return f"epoch {epoch} is held by driver {seen.driver}, not by {driver}"
    return f"the fence row of epoch {epoch} moved to version {seen.version}"


def _refusal(row: FenceRow) -> str:
    holder = f"driver {row.driver}" if row.driver is not UNCLAIMED else "no driver"
    return (
        f"the store refuses to change the fence row, which it reads as the change expects it: epoch {row.epoch},"
        f" version {row.version}, {holder}"
    )
