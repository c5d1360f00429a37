"""The fence: one row a pipeline, changed by compare-and-swap alone, so that at most one driver can commit.

The protocol (docs/design.md §3).  A row carries an epoch, a version and the driver that claimed it.  Every change is
one conditional update on all three and moves the version by one, so a change is applied once or not at all:

- the operator creates the row at epoch 0 and takes it over (epoch + 1, no driver) before each run;
- the driver claims the epoch it was told, once; its twin finds another driver there;
- the driver commits, once a batch; after a takeover the condition fails and it is fenced.

A request that times out may have been applied, now or later.  `Fence` never guesses: it reads at SERIAL, which settles
what was in flight, and finds exactly one of applied, unchanged (try again) or lost.

FenceError
├── FenceUnavailable         no answer for as long as `patience`: the outcome is not known
├── FenceCredentialsRejected the database refused the user
│   └── FenceUnauthorized    … or a permission: it may pass, so it is also a FenceUnavailable and tried again
├── FenceSchemaMissing       the keyspace or the table does not exist, as Cassandra's schema says
├── FenceSchemaInvalid       the table is of another shape, or the request was refused
├── FenceMissing             the row is not there
└── Fenced                   somebody else holds the row: stop at once
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Protocol

from fencepost.fence.progress import BatchProgress

UNCLAIMED: Final = None
RETRY_PAUSE: Final = 0.25
"""Seconds between two looks at a database that does not answer; it doubles up to two seconds."""


class FenceError(Exception):
    """Base of the fence's errors."""


class FenceUnavailable(FenceError):
    """The database gave no answer in time; whether the last change was applied is not known."""


class FenceCredentialsRejected(FenceError):
    """The database refused the credentials, or the permission for the statement."""


class FenceUnauthorized(FenceCredentialsRejected, FenceUnavailable):
    """The account lacks a permission, or no replica of the permissions answers: Cassandra does not say which.

    The statement was not applied.  It is tried again like one without an answer.
    """


class FenceSchemaMissing(FenceError):
    """The fence's keyspace or table does not exist: a read of Cassandra's schema says so."""


class FenceSchemaInvalid(FenceError):
    """The request does not fit the table as it is: a column is missing or of another type. Nothing was changed."""


class FenceMissing(FenceError):
    """The pipeline has no fence row."""


class Fenced(FenceError):
    """The row has moved on: another run or another pod holds it. `seen` is the row as it is now."""

    def __init__(self, message: str, *, seen: FenceRow | None) -> None:
        super().__init__(message)
        self.seen = seen


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceRow:
    """The only authority on a pipeline's progress.

    `clock` is the row's time in µs since 1970: the wall time of its last change, and always ahead of the change
    before.  A batch begun on this row writes its output at `clock + 1`.
    `offsets` and `planned` map 'topic/partition' to the next offset to read: committed, and the end of the batch
    that comes next (a successor repeats exactly that batch).  `committed_at`, `duration_ms` and `records` are of the
    last batch.
    `leader_epochs` maps a partition to the leader epoch of its last planned offset: with it a reader finds where a
    truncated log diverges.  `growth_barrier` maps the old partitions of a topic that grew to their ends at the time of
    discovery: the new partitions are not in `offsets` before `offsets` has reached every one of them.  `log_ends` are
    the ends of the log as the driver last saw them, for a reader that cannot ask Kafka itself.
    """

    pipeline: str
    owner: str
    epoch: int = 0
    driver: str | None = UNCLAIMED
    version: int = 0
    clock: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[str, int] = field(default_factory=dict)
    growth_barrier: Mapping[str, int] = field(default_factory=dict)
    log_ends: Mapping[str, int] = field(default_factory=dict)
    code: str | None = None
    committed_at: datetime | None = None
    records: int | None = None
    duration_ms: int | None = None

    def is_held_as(self, other: FenceRow) -> bool:
        """Return whether both rows are the same change: all that a change sets but times of day agree."""
        return self._change_identity() == other._change_identity()

    def _change_identity(self) -> tuple[object, ...]:
        return (self.epoch, self.version, self.driver, self.owner, self.clock, self.offsets, self.planned)

    @property
    def write_timestamp(self) -> int:
        """The `USING TIMESTAMP` of output written by the batch that starts from this row, in µs."""
        return self.clock + 1


class FenceTable(Protocol):
    """Where rows live.

    Any method may raise FenceUnavailable; for `insert`, `swap` and `delete` the effect is then open.
    """

    def read(self, pipeline: str) -> FenceRow | None:
        """Return the row by a linearizable read, which also settles changes in flight."""
        ...

    def insert(self, row: FenceRow) -> bool:
        """Insert the row if the pipeline has none; return whether it was inserted."""
        ...

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Replace the row on condition of `before`'s epoch, version and driver; return whether it was replaced."""
        ...

    def delete(self, row: FenceRow) -> bool:
        """Delete the row, its history and its snapshots, on the same condition; return whether it was deleted."""
        ...

    def report_progress(self, pipeline: str, *, epoch: int, version: int, done: int) -> None:
        """Record, unconditionally and for an hour, how many records of the batch in progress are finished."""
        ...

    def read_progress(self, pipeline: str) -> BatchProgress | None:
        """Return the newest report, of whichever epoch and version."""
        ...

    def server_time(self) -> int:
        """Return the database's time in µs since 1970."""
        ...


def wall_clock() -> int:
    """Return the wall time in µs since 1970."""
    return time.time_ns() // 1000


class Fence:
    """One pipeline's fence. `patience` is in seconds: how long an unanswered change is pursued before giving up."""

    def __init__(
        self,
        table: FenceTable,
        pipeline: str,
        *,
        patience: float = 120.0,
        now: Callable[[], int] = wall_clock,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._table = table
        self._pipeline = pipeline
        self._patience = patience
        self._now = now
        self._monotonic = monotonic
        self._sleep = sleep

    def read(self) -> FenceRow | None:
        """Return the row, or None. Raises FenceUnavailable at the first failure: the caller looks again."""
        return self._table.read(self._pipeline)

    def create(self, owner: str) -> FenceRow:
        """Make the row at epoch 0 unless there is one; return the row that is there."""
        fresh = FenceRow(pipeline=self._pipeline, owner=owner)
        deadline = _Deadline(self)
        while True:
            try:
                if self._table.insert(fresh):
                    return fresh
                seen = self._table.read(self._pipeline)
            except FenceUnavailable as error:
                deadline.pause_or_raise(error)
                continue
            if seen is not None:
                return seen

    def take_over(self, before: FenceRow, *, owner: str) -> FenceRow:
        """Start a new epoch: no driver of an older one can commit from here on. Raises Fenced if the row moved."""
        after = replace(
            before,
            owner=owner,
            epoch=before.epoch + 1,
            driver=UNCLAIMED,
            version=before.version + 1,
            clock=max(before.clock + 2, self._now()),
        )
        return self._change(before, after)

    def claim(  # the first claim also pins where the pipeline starts
        self,
        *,
        epoch: int,
        driver: str,
        code: str,
        start: Callable[[FenceRow], Starting],
    ) -> FenceRow:
        """Bind the epoch to this driver.

        `start` is asked, with the row as it is, for what the claim records (see Starting); it runs before
        anything is written, so an exception of its own leaves the row untouched.
        Raises FenceMissing without a row, Fenced when the epoch is over or another driver claimed it.
        """
        before = open_to(self._read_patiently(), self._pipeline, epoch=epoch, driver=driver)
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
            topic_ids=dict(starting.topic_ids),
        )
        return self._change(before, after)

    def plan(self, before: FenceRow, *, offsets: Mapping[str, int], planned: Mapping[str, int]) -> FenceRow:
        """Record where the next batch ends, before anything of it is written; the last batch's figures stay.

        `offsets` differs from `before`'s by new partitions only.  Raises Fenced, as `commit` does.
        """
        return self._change(before, self._next(before, offsets, planned))

    def commit(
        self,
        before: FenceRow,
        *,
        offsets: Mapping[str, int],
        planned: Mapping[str, int],
        records: int,
        duration_ms: int,
    ) -> FenceRow:
        """Move the offsets, in the epoch, by the driver and from the version of `before`; return the new row.

        Raises Fenced when the row is no longer ours: the caller must end its process at once.
        """
        after = replace(
            self._next(before, offsets, planned),
            committed_at=datetime.fromtimestamp(self._now() / 1e6, UTC),
            records=records,
            duration_ms=duration_ms,
        )
        return self._change(before, after)

    def _next(self, before: FenceRow, offsets: Mapping[str, int], planned: Mapping[str, int]) -> FenceRow:
        """Return the driver's next row.

        Its clock keeps up with the wall time, so that a later batch overrules what others wrote to the sinks since the
        run began: a DELETE by hand, a backfill.
        """
        return replace(
            before,
            version=before.version + 1,
            clock=max(before.clock + 1, self._now()),
            offsets=dict(offsets),
            planned=dict(planned),
        )

    def delete(self, before: FenceRow) -> None:
        """Delete the pipeline's rows. Raises Fenced when the row moved; nothing to do when it is gone."""
        deadline = _Deadline(self)
        while True:
            try:
                if self._table.delete(before):
                    return
                seen = self._table.read(self._pipeline)
            except FenceUnavailable as error:
                deadline.pause_or_raise(error)
                continue
            if seen is None:
                return
            if not seen.is_held_as(before):
                raise Fenced(_who_holds(seen, epoch=before.epoch, driver=before.driver), seen=seen)

    def _change(self, before: FenceRow, after: FenceRow) -> FenceRow:
        """Apply one swap, whatever happens to the request; return `after` once it is known to be applied."""
        deadline = _Deadline(self)
        while True:
            try:
                if self._table.swap(before, after):
                    return after
                # Refused: by a rival, or because an earlier try of this very change was applied late.
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

    def _read_patiently(self) -> FenceRow | None:
        deadline = _Deadline(self)
        while True:
            try:
                return self._table.read(self._pipeline)
            except FenceUnavailable as error:
                deadline.pause_or_raise(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starting:
    """What a claim records: where reading starts, the end of the first batch, and the topics' ids.

    Recording the resolved start makes 'latest' mean one moment, not another one at each restart before a commit.
    """

    offsets: Mapping[str, int]
    planned: Mapping[str, int]
    topic_ids: Mapping[str, str]


class _Deadline:
    """Doubling pauses until the fence's patience ends."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._end = fence._monotonic() + fence._patience  # noqa: SLF001 - one module, one idea
        self._pause = RETRY_PAUSE

    def pause_or_raise(self, error: FenceUnavailable) -> None:
        if self._fence._monotonic() + self._pause > self._end:  # noqa: SLF001
            raise error
        self._fence._sleep(self._pause)  # noqa: SLF001
        self._pause = min(self._pause * 2, 2.0)


def open_to(row: FenceRow | None, pipeline: str, *, epoch: int, driver: str) -> FenceRow:
    """Return the row if this driver holds its epoch, or may still claim it. Raises FenceMissing, Fenced."""
    if row is None:
        raise FenceMissing(f"no fence row for {pipeline!r}")
    if row.epoch != epoch or row.driver not in {UNCLAIMED, driver}:
        raise Fenced(_who_holds(row, epoch=epoch, driver=driver), seen=row)
    return row


def _who_holds(seen: FenceRow | None, *, epoch: int, driver: str | None) -> str:
    if seen is None:
        return f"the fence row is gone (this was epoch {epoch})"
    if seen.epoch != epoch:
        return f"epoch {epoch} is over: the fence is at epoch {seen.epoch}"
    if seen.driver != driver:
        return f"epoch {epoch} is held by driver {seen.driver}, not by {driver}"
    return f"the fence row of epoch {epoch} moved to version {seen.version}"
