"""The snapshots of the committed offsets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fencepost_operator.api.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStatus(Model):
    """One snapshot: `code` is the image and what ran of it."""

    id: str
    """Its id; a time UUID."""
    trigger: str
    """Why it was taken: Schedule, SpecChange, OnDemand, Trial or Rewind."""
    at: datetime
    """When it was taken."""
    name: str = ""
    """The name that was asked for."""
    epoch: int | None = None
    """Epoch of the fence row."""
    version: int | None = None
    """Version of the fence row."""
    code: str = ""
    """Image and entrypoint of the run that had committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsStatus(Model):
    """The snapshots of the committed offsets; `fencepost snapshots list` shows all of them."""

    count: int = 0
    """How many there are."""
    pinned: int = 0
    """How many of them are only there because source.pinnedStates of a pipeline or the trial of an upgrade names
    them."""
    oldest_at: datetime | None = None
    """When the oldest one was taken, without those."""
    last: SnapshotStatus | None = None
    """The newest one."""
    recent: tuple[SnapshotStatus, ...] = ()
    """The newest ten."""
    # Recorded before it is written.
    pending: SnapshotStatus | None = None
    """One that was decided on and is not written yet."""
    requested: str = ""
    """Value of the annotation streaming.fencepost.dev/snapshot that was honoured last."""
    message: str = ""
    """Why a snapshot is not written."""
