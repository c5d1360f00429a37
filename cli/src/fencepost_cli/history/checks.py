"""The fence's own story, checked: contiguous commits, epochs and versions by one, no commit under an old epoch.

`fence_changes` has a record of each change of a fence row. It is appended without waiting, for people to read, so the
last change before a SIGKILL may be missing; such a gap is counted and bridged by the row after it, which holds the
offsets as they came to be. A test that killed a driver n times allows n gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from fencepost_cli.accepted_loss import AcceptedLoss


class Change(Protocol):
    """A restored record of fence_changes, or a FenceRow.

    `offsets` and `planned` map 'topic/partition' to the next offset.
    """

    @property
    def epoch(self) -> int:
        """The epoch of the change."""
        ...

    @property
    def driver(self) -> str | None:
        """The pod that held the epoch; None before a claim."""
        ...

    @property
    def version(self) -> int:
        """One more than that of the change before."""
        ...

    @property
    def clock(self) -> int:
        """The write timestamp of the row, in µs."""
        ...

    @property
    def offsets(self) -> Mapping[str, int]:
        """What was committed."""
        ...

    @property
    def planned(self) -> Mapping[str, int]:
        """Where the next batch ends."""
        ...

    @property
    def records(self) -> int | None:
        """Records of the batch that ended with this change."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the changes of one fence row come to."""

    changes: int
    commits: int
    plans: int
    """Changes that record where the next batch ends and move nothing: made before a batch that begins after a pause."""
    takeovers: int
    rewinds: int
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


def check_history(
    rows: Iterable[Change], *, counts_records: bool = True, accepted: Iterable[AcceptedLoss] = ()
) -> History:
    """Check the changes of one pipeline, in any order; see `check_in_order`."""
    changes = sorted(rows, key=lambda change: change.version)
    return check_in_order(changes, counts_records=counts_records, accepted=accepted)


def check_in_order(
    changes: Iterable[Change], *, counts_records: bool = True, accepted: Iterable[AcceptedLoss] = ()
) -> History:
    """Check the changes of one pipeline, which come by version; two of them are held at a time.

    Epochs grow by one, at a takeover, and never shrink; versions grow by one; the clock by one or more at a commit, by
    two or more at a takeover; a commit is made by the driver that claimed its epoch, ends where the change before it
    planned, holds no more records than the offsets moved, and moves no offset back. With `counts_records` it holds
    exactly as many: the topics are neither compacted nor transactional. A planned batch is committed or cut, never
    enlarged. A rewind, which is made while no driver runs, moves offsets only backwards, and plans nothing.
    What is `accepted` as lost is skipped, gone back over or dropped by a claim; a driver skips it as well where the
    acceptance is open.
    """
    tally = _Tally(counts_records=counts_records, accepted=tuple(accepted))
    first: Change | None = None
    last: Change | None = None
    for change in changes:
        if last is not None:
            tally.step(last, change)
        first, last = first or change, change
        tally.changes += 1
    return History(
        changes=tally.changes,
        commits=tally.commits,
        plans=tally.plans,
        takeovers=tally.takeovers,
        rewinds=tally.rewinds,
        first_epoch=first.epoch if first else 0,
        last_epoch=last.epoch if last else 0,
        committed=dict(last.offsets) if last else {},
        gaps=tally.gaps,
        overlaps=tally.overlaps,
        violations=tuple(tally.violations),
    )


@dataclass(slots=True)
class _Tally:
    counts_records: bool
    accepted: tuple[AcceptedLoss, ...] = ()
    changes: int = 0
    commits: int = 0
    plans: int = 0
    takeovers: int = 0
    rewinds: int = 0
    gaps: int = 0
    overlaps: int = 0
    violations: list[str] = field(default_factory=list)

    def step(self, before: Change, after: Change) -> None:
        missing = after.version - before.version - 1
        if missing < 0:
            self._broken(after, f"version {after.version} is there twice, in epochs {before.epoch} and {after.epoch}")
            return
        self.gaps += missing
        if is_rewind(before, after):
            self._check_rewind(before, after)
            return
        self._check_offsets(before, after)
        if not 0 <= after.epoch - before.epoch <= missing + 1:
            self._broken(after, f"the epoch went from {before.epoch} to {after.epoch}")
        self.takeovers += max(0, after.epoch - before.epoch)
        if missing:
            if after.clock < before.clock:
                self._broken(after, "the clock went back")
            # Without the change before it, the kind of the last change is unknown, except for what it moved.
            self.commits += moved(before, after) > 0
        elif after.epoch != before.epoch:
            self._check_takeover(before, after)
        elif is_commit(before, after):
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

    def _check_rewind(self, before: Change, after: Change) -> None:
        self.rewinds += 1
        if after.clock < before.clock + 2:
            self._broken(after, "a rewind moved the clock by less than two")
        if dict(after.planned) != dict(after.offsets):
            self._broken(after, "a rewind planned a batch")
        if on := sorted(key for key, offset in after.offsets.items() if before.offsets.get(key, -1) < offset):
            self._broken(after, f"a rewind moved {', '.join(on)} on")

    def _check_claim(self, before: Change, after: Change) -> None:
        if before.driver is not None or after.driver is None or after.clock != before.clock:
            self._broken(after, f"neither takeover, claim nor commit (driver {before.driver} to {after.driver})")
        skipped = sorted(
            key
            for key, offset in before.offsets.items()
            if after.offsets.get(key, offset) > offset and not self._is_accepted(key, before, after)
        )
        if skipped:
            self._broken(after, f"a claim skipped records of {', '.join(skipped)}")

    def _check_commit(self, before: Change, after: Change) -> None:
        count = moved(before, after)
        if count and self._is_skip(before, after):
            return
        if count:
            self.commits += 1
        else:
            self.plans += 1
        if after.clock < before.clock + 1:
            self._broken(after, f"a commit moved the clock by {after.clock - before.clock}")
        read = after.records
        if count and read is not None and (read != count if self.counts_records else read > count):
            self._broken(after, f"a commit of {read} records moved the offsets by {count}")
        unlike = {key for key, end in before.planned.items() if after.offsets.get(key, end) != end}
        if unlike and not count and _is_cut(before, after):
            return  # a batch that failed is tried in pieces
        if unlike:
            self._broken(after, f"a commit did not end where it was planned: {', '.join(sorted(unlike))}")

    def _is_skip(self, before: Change, after: Change) -> bool:
        """Return whether a driver moved past what is accepted as lost, and past nothing else."""
        keys = [key for key, offset in before.offsets.items() if after.offsets.get(key) != offset]
        return bool(keys) and all(self._is_accepted(key, before, after) for key in keys)

    def _check_offsets(self, before: Change, after: Change) -> None:
        for key, offset in before.offsets.items():
            now = after.offsets.get(key)
            if (now is None or now < offset) and self._is_accepted(key, before, after):
                continue
            if now is None:
                self._broken(after, f"{key} is gone from the offsets")
            elif now < offset:
                self.overlaps += offset - now
                self._broken(after, f"{key} went back from {offset} to {now}")

    def _is_accepted(self, key: str, before: Change, after: Change) -> bool:
        offset, now = before.offsets[key], after.offsets.get(key)
        return any(loss.partition == key and loss.explains(offset, now) for loss in self.accepted)

    def _broken(self, change: Change, what: str) -> None:
        self.violations.append(f"epoch {change.epoch}, version {change.version}: {what}")


def moved(before: Change, after: Change) -> int:
    """Records between the offsets of two changes; a partition that is new began at 0."""
    return sum(offset - before.offsets.get(key, 0) for key, offset in after.offsets.items())


def _is_cut(before: Change, after: Change) -> bool:
    """Return whether a batch that was planned is to end earlier, in no partition later."""
    return all(after.planned.get(key, end) <= end for key, end in before.planned.items())


def is_rewind(before: Change, after: Change) -> bool:
    """Return whether the second of two changes set the offsets back, or the state alone, while no driver held the row.

    An adoption leaves the clock as it is.
    """
    follows = (after.epoch, after.version) == (before.epoch, before.version + 1)
    unheld = before.driver is None and after.driver is None
    return follows and unheld and (dict(after.offsets) != dict(before.offsets) or after.clock != before.clock)


def is_commit(before: Change, after: Change) -> bool:
    """Return whether the second of two changes was made by the driver that held the first."""
    return after.epoch == before.epoch and after.driver == before.driver and after.driver is not None
