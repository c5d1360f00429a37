"""The fence's own story, checked: contiguous commits, epochs and versions by one, no commit under an old epoch.

`fence_changes` has a record of each change of a fence row. It is appended without waiting, for people to read, so the
last change before a SIGKILL may be missing; such a gap is counted and bridged by the row after it, which holds the
offsets as they came to be. A test that killed a driver n times allows n gaps.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from fencepost.fence.cassandra import read_changes
from fencepost.fence.changes import restored


class Change(Protocol):
    """A restored record of fence_changes, or a FenceRow.

    `offsets` and `planned` map 'topic/partition' to the next offset.
    """

    @property
    def epoch(self) -> int: ...
    @property
    def driver(self) -> str | None: ...
    @property
    def version(self) -> int: ...
    @property
    def clock(self) -> int: ...
    @property
    def offsets(self) -> Mapping[str, int]: ...
    @property
    def planned(self) -> Mapping[str, int]: ...
    @property
    def records(self) -> int | None: ...


_Kind = TypeVar("_Kind", bound=Change)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One change as read from the table. `written_at` is when its writer appended it, in µs since 1970."""

    epoch: int
    driver: str | None
    version: int
    clock: int
    offsets: Mapping[str, int] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    committed_at: datetime | None = None
    records: int | None = None
    duration_ms: int | None = None
    written_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the changes of one fence row come to."""

    changes: int
    commits: int
    plans: int
    """Changes that record where the next batch ends and move nothing: made before a batch that begins after a pause."""
    takeovers: int
    first_epoch: int
    last_epoch: int
    committed: Mapping[str, int]
    """The newest offsets, by 'topic/partition'."""
    gaps: int
    """Changes that the history does not have, between two that it has."""
    overlaps: int
    """Records that two commits took."""
    violations: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no invariant is broken."""
        return not self.violations

    def lines(self) -> list[str]:
        """For a human."""
        epochs = f"{self.first_epoch} to {self.last_epoch}" if self.changes else "none"
        story = (
            f"{self.commits} commits, {self.takeovers} takeovers, epochs {epochs}, {self.gaps} changes not on record"
        )
        return [story, *(f"broken: {violation}" for violation in self.violations)]


def check_history(rows: Iterable[Change]) -> History:
    """Check the changes of one pipeline, in any order.

    Epochs grow by one, at a takeover, and never shrink; versions grow by one; the clock by one or more at a commit, by
    two or more at a takeover; a commit is made by the driver that claimed its epoch, ends where the change before it
    planned, holds as many records as the offsets moved (the topics are neither compacted nor transactional), and moves
    no offset back; a planned batch is committed or cut, never enlarged.
    """
    changes = sorted(rows, key=lambda change: change.version)
    tally = _Tally()
    for before, after in pairwise(changes):
        tally.step(before, after)
    return History(
        changes=len(changes),
        commits=tally.commits,
        plans=tally.plans,
        takeovers=tally.takeovers,
        first_epoch=changes[0].epoch if changes else 0,
        last_epoch=changes[-1].epoch if changes else 0,
        committed=dict(changes[-1].offsets) if changes else {},
        gaps=tally.gaps,
        overlaps=tally.overlaps,
        violations=tuple(tally.violations),
    )


def commits(rows: Iterable[_Kind]) -> list[tuple[_Kind, _Kind]]:
    """(change before, commit) for each batch's commit whose change before is on record, oldest first."""
    changes = sorted(rows, key=lambda change: change.version)
    return [
        (before, after)
        for before, after in pairwise(changes)
        if after.version == before.version + 1 and _is_commit(before, after) and _moved(before, after) > 0
    ]


@dataclass(slots=True)
class _Tally:
    commits: int = 0
    plans: int = 0
    takeovers: int = 0
    gaps: int = 0
    overlaps: int = 0
    violations: list[str] = field(default_factory=list)

    def step(self, before: Change, after: Change) -> None:
        missing = after.version - before.version - 1
        if missing < 0:
            self._broken(after, f"version {after.version} is there twice, in epochs {before.epoch} and {after.epoch}")
            return
        self.gaps += missing
        self._check_offsets(before, after)
        if not 0 <= after.epoch - before.epoch <= missing + 1:
            self._broken(after, f"the epoch went from {before.epoch} to {after.epoch}")
        self.takeovers += max(0, after.epoch - before.epoch)
        if missing:
            if after.clock < before.clock:
                self._broken(after, "the clock went back")
            # What kind of change the last one was cannot be told without the one before it, but for what it moved.
            self.commits += _moved(before, after) > 0
        elif after.epoch != before.epoch:
            self._check_takeover(before, after)
        elif _is_commit(before, after):
            self._check_commit(before, after)
        else:
            self._check_claim(before, after)

    def _check_takeover(self, before: Change, after: Change) -> None:
        if after.driver is not None:
            self._broken(after, f"epoch {after.epoch} began with a driver, {after.driver}")
        if after.clock < before.clock + 2:
            self._broken(after, "a takeover moved the clock by less than two")
        if dict(after.offsets) != dict(before.offsets):
            self._broken(after, "a takeover moved the offsets")

    def _check_claim(self, before: Change, after: Change) -> None:
        if before.driver is not None or after.driver is None or after.clock != before.clock:
            self._broken(after, f"neither takeover, claim nor commit (driver {before.driver} to {after.driver})")
        skipped = sorted(key for key, offset in before.offsets.items() if after.offsets.get(key, offset) > offset)
        if skipped:
            self._broken(after, f"a claim skipped records of {', '.join(skipped)}")

    def _check_commit(self, before: Change, after: Change) -> None:
        moved = _moved(before, after)
        if moved:
            self.commits += 1
        else:
            self.plans += 1
        if after.clock < before.clock + 1:
            self._broken(after, f"a commit moved the clock by {after.clock - before.clock}")
        if moved and after.records is not None and moved != after.records:
            self._broken(after, f"a commit of {after.records} records moved the offsets by {moved}")
        unlike = {key for key, end in before.planned.items() if after.offsets.get(key, end) != end}
        if unlike and not moved and _is_cut(before, after):
            return  # a batch that failed is tried in pieces
        if unlike:
            self._broken(after, f"a commit did not end where it was planned: {', '.join(sorted(unlike))}")

    def _check_offsets(self, before: Change, after: Change) -> None:
        for key, offset in before.offsets.items():
            now = after.offsets.get(key)
            if now is None:
                self._broken(after, f"{key} is gone from the offsets")
            elif now < offset:
                self.overlaps += offset - now
                self._broken(after, f"{key} went back from {offset} to {now}")

    def _broken(self, change: Change, what: str) -> None:
        self.violations.append(f"epoch {change.epoch}, version {change.version}: {what}")


def _moved(before: Change, after: Change) -> int:
    """Records between the offsets of two changes; a partition that is new began at 0."""
    return sum(offset - before.offsets.get(key, 0) for key, offset in after.offsets.items())


def _is_cut(before: Change, after: Change) -> bool:
    """Whether a batch that was planned is to end earlier, in no partition later."""
    return all(after.planned.get(key, end) <= end for key, end in before.planned.items())


def _is_commit(before: Change, after: Change) -> bool:
    return after.epoch == before.epoch and after.driver == before.driver and after.driver is not None


def read_history(session: Any, keyspace: str, pipeline: str) -> Sequence[HistoryRow]:
    """Every change of a pipeline that the table holds, oldest first. `session` is the Cassandra driver's."""
    return [
        HistoryRow(
            epoch=row.epoch,
            driver=row.driver,
            version=row.version,
            clock=row.clock,
            offsets=row.offsets,
            planned=row.planned,
            committed_at=row.committed_at,
            records=row.records,
            duration_ms=row.duration_ms,
            written_at=record.written_at,
        )
        for record, row in restored(pipeline, read_changes(session, keyspace, pipeline))
    ]
