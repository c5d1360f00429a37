"""The port to the database that holds fence rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from fencepost.contract import Acceptance, Loss, ReportedLoss
from fencepost.fence.batch_progress import BatchProgress
from fencepost.fence.row import FenceRow

MOST_LOSSES: Final = 100
"""Losses between two commits that are read: each one must be accepted by a user, so they are few."""


class FenceTable(Protocol):
    """Where rows live.

    Any method may raise FenceUnavailable; for `insert`, `swap` and `forget` the effect is then open.
    """

    def read(self, pipeline: str) -> FenceRow | None:
        """Return the row by a linearizable read: it has each change that was acknowledged.

        A change in flight may be applied after it only where its condition still holds then.
        """
        ...

    def read_epoch(self, pipeline: str) -> int | None:
        """Return the row's epoch by a read that costs little; it may miss the newest change for a moment."""
        ...

    def insert(self, row: FenceRow) -> bool:
        """Insert the row if the pipeline has none; return whether it was inserted."""
        ...

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        """Replace the row on condition of `before`'s epoch, version and driver; return whether it was replaced.

        `before` is the row as it was read: what `after` has in common with it is not written again.  The change is
        added to the history, unless it releases the row.
        """
        ...

    def forget(self, pipeline: str) -> None:
        """Delete the pipeline's history, snapshots, progress and losses; the row itself stays."""
        ...

    def report_progress(self, pipeline: str, *, epoch: int, version: int, done: int, note: str = "") -> None:
        """Record, unconditionally and for an hour, how many records of the batch in progress are finished.

        `note` is of an operator's sign of life.
        """
        ...

    def read_progress(self, pipeline: str) -> BatchProgress | None:
        """Return the newest report, of whichever epoch and version."""
        ...

    def report_loss(self, pipeline: str, report: ReportedLoss) -> None:
        """Record a loss, unless it is recorded; an acceptance that is there stays."""
        ...

    def read_losses(self, pipeline: str, committed_ms: int | None) -> tuple[ReportedLoss, ...]:
        """Return the losses of the row's last commit (see `commit_ms`), or of the newest ones; MOST_LOSSES at most."""
        ...

    def accept_loss(self, pipeline: str, loss: Loss, acceptance: Acceptance) -> None:
        """Record who accepted a loss: each range in accepted_losses, then the loss as accepted."""
        ...

    def record_skipped(self, pipeline: str, report: ReportedLoss, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Record in accepted_losses exactly what an acceptance was used for; a longer range replaces a shorter one."""
        ...

    def server_time(self) -> int:
        """Return the database's own wall time in µs since 1970."""
        ...
