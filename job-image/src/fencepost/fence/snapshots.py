"""Snapshots: immutable copies of what a fence row had committed, and why each was taken.

A snapshot's id is a time UUID that follows from its moment and its purpose.  So whoever dies between the decision and
the write, or gets no answer, writes the same row again, and `IF NOT EXISTS` keeps the first one.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

from fencepost.fence.errors import FenceError, FenceUnavailable
from fencepost.fence.row import FenceRow

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
"""What a snapshot may be called."""
WRITTEN_WITHIN: Final = 60.0
"""Seconds from the read of a row or a snapshot to the write of its copy; a driver keeps the files of it for longer."""
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_GREGORIAN: Final = 0x01B21DD213814000
"""Steps of 100 ns from the start of a time UUID's calendar, 1582, to 1970."""


class Trigger(StrEnum):
    """Why a snapshot was taken."""

    SCHEDULE = "Schedule"
    SPEC_CHANGE = "SpecChange"
    ON_DEMAND = "OnDemand"
    TRIAL = "Trial"
    REWIND = "Rewind"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One snapshot. `trigger` is a Trigger's value, or another text in a row that was written by hand.

    Of a list only the facts are read, not the maps.
    """

    id: UUID
    trigger: str
    name: str | None = None
    epoch: int = 0
    version: int = 0
    code: str | None = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[str, int] = field(default_factory=dict)
    growth_barrier: Mapping[str, int] = field(default_factory=dict)
    checkpoint: bytes | None = None

    @property
    def at(self) -> datetime:
        """When it was decided on, in UTC."""
        return moment_of(self.id)


def snapshot_of(row: FenceRow, *, id: UUID, trigger: str, name: str | None) -> Snapshot:  # noqa: A002 - the column's name
    """Return the snapshot of a fence row."""
    return Snapshot(
        id=id,
        trigger=trigger,
        name=name or None,
        epoch=row.epoch,
        version=row.version,
        code=row.code,
        offsets=row.offsets,
        topic_ids=row.topic_ids,
        leader_epochs=row.leader_epochs,
        growth_barrier=row.growth_barrier,
        checkpoint=row.checkpoint,
    )


class SnapshotStore(Protocol):
    """Where snapshots are kept. Every method raises FenceError."""

    def insert(self, pipeline: str, snapshot: Snapshot) -> bool:
        """Insert the snapshot unless one with its id is there; return whether it was inserted."""
        ...

    def delete(self, pipeline: str, ids: Sequence[UUID]) -> None:
        """Delete snapshots; nothing to do for one that is gone."""
        ...


def take(
    pipeline: str,
    copy: Callable[[], Snapshot],
    store: SnapshotStore,
    *,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Write the snapshot that `copy` makes of the row, or of another snapshot, unless one with its id is there.

    A process that is frozen between read and write deletes what it may have written too late: the files of its state
    may be gone.
    Raises FenceError, FenceUnavailable where it took longer than WRITTEN_WITHIN.
    """
    began = monotonic()
    made = copy()
    if (took := monotonic() - began) > WRITTEN_WITHIN:
        raise FenceUnavailable(f"snapshot {made.id} is not written: what it copies was read {took:.0f} s ago")
    try:
        is_inserted = store.insert(pipeline, made)
    except FenceError:
        if monotonic() - began > WRITTEN_WITHIN:
            store.delete(pipeline, [made.id])
        raise
    if is_inserted and (took := monotonic() - began) > WRITTEN_WITHIN:
        store.delete(pipeline, [made.id])
        raise FenceUnavailable(
            f"snapshot {made.id} was written {took:.0f} s after what it copies was read; it is deleted"
        )


def snapshot_id(at: datetime, *purpose: str) -> UUID:
    """Return the time UUID of a moment, to the microsecond, that no other purpose has."""
    ticks = (at - _UNIX_EPOCH) // timedelta(microseconds=1) * 10 + _GREGORIAN
    digest = hashlib.sha256("\0".join(purpose).encode()).digest()
    sequence, node = (
        int.from_bytes(digest[:2]) & 0x3FFF,
        int.from_bytes(digest[2:8]) | 1 << 40,  # the bit that no interface's address has
    )
    version_1 = 1 << 12
    return UUID(
        fields=(
            ticks & 0xFFFF_FFFF,
            ticks >> 32 & 0xFFFF,
            ticks >> 48 & 0x0FFF | version_1,
            sequence >> 8 | 0x80,
            sequence & 0xFF,
            node,
        )
    )


def moment_of(id: UUID) -> datetime:  # noqa: A002 - the column's name
    """Return the moment of a time UUID, in UTC."""
    return _UNIX_EPOCH + timedelta(microseconds=(id.time - _GREGORIAN) // 10)
