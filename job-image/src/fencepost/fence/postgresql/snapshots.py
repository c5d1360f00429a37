"""The table of snapshots: rows are inserted once and deleted, never changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from fencepost.fence.postgresql.schema import bound, name_of
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.table import named
from fencepost.fence.sealed_epochs import sealed
from fencepost.fence.snapshots import Snapshot
from fencepost.fence.stored_snapshots import is_sound, snapshot

MOST: Final = 2_000
"""Snapshots of one pipeline that a list reads; retention keeps at most a thousand."""
_FACTS: Final = ("id", "reason", "epoch", "version", "name", "code")
_CONTENT: Final = ("offsets", "topic_ids", "leader_epochs", "growth_barrier", "checkpoint")


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """The snapshots in one schema. Every method raises FenceError."""

    session: Session
    schema: str

    def insert(self, pipeline: str, one: Snapshot) -> bool:
        """Insert the snapshot unless one with its id is there; return whether it was inserted."""
        values: dict[str, Any] = {
            "pipeline": pipeline,
            "id": one.id,
            "at": one.at,
            "reason": one.trigger,
            "name": one.name,
            "epoch": one.epoch,
            "version": one.version,
            "code": one.code,
            "offsets": dict(one.offsets),
            "topic_ids": dict(one.topic_ids),
            "leader_epochs": sealed(one.leader_epochs, one.offsets, one.topic_ids),
            "growth_barrier": dict(one.growth_barrier),
            "checkpoint": one.checkpoint,
        }
        statement = f"INSERT INTO {self._table} ({', '.join(values)}) VALUES ({', '.join(['%s'] * len(values))})"
        sent = [bound(value) for value in values.values()]
        return bool(self.session.run(self._doing, f"{statement} ON CONFLICT DO NOTHING RETURNING id", sent))

    def newest(self, pipeline: str, *, with_offsets: bool = False) -> tuple[Snapshot, ...]:
        """Return the newest snapshots, at most MOST, the newest first.

        Without `with_offsets` they have no maps: those of many snapshots are more than the operator reads at once.
        """
        columns = (*_FACTS, "offsets") if with_offsets else _FACTS
        return self._select(columns, f"WHERE pipeline = %s ORDER BY at DESC, id LIMIT {MOST}", (pipeline,))

    def read(self, pipeline: str, id: UUID) -> Snapshot | None:  # noqa: A002 - the column's name
        """Return one snapshot with its offsets, or None."""
        return next(iter(self._select((*_FACTS, *_CONTENT), "WHERE pipeline = %s AND id = %s", (pipeline, id))), None)

    def delete(self, pipeline: str, ids: Sequence[UUID]) -> None:
        """Delete snapshots; nothing to do for one that is gone."""
        self.session.run(
            self._doing, f"DELETE FROM {self._table} WHERE pipeline = %s AND id = ANY(%s)", (pipeline, list(ids))
        )

    @property
    def _table(self) -> str:
        return name_of(self.schema, "snapshots")

    @property
    def _doing(self) -> str:
        return f"the snapshots in schema {self.schema}"

    def _select(self, columns: Sequence[str], where: str, values: Sequence[object]) -> tuple[Snapshot, ...]:
        found = self.session.run(self._doing, f"SELECT {', '.join(columns)} FROM {self._table} {where}", values)
        rows = (named(columns, row) for row in found[:MOST])
        return tuple(snapshot(row) for row in rows if is_sound(row))
