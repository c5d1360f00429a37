"""The table of snapshots: rows are inserted once and deleted, never changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session

from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.cassandra.session import is_applied
from fencepost.fence.errors import FenceSchemaInvalid, FenceSchemaMissing
from fencepost.fence.sealed_epochs import sealed
from fencepost.fence.snapshots import Snapshot
from fencepost.fence.stored_rows import is_checkpoint
from fencepost.fence.stored_snapshots import is_sound, snapshot

MOST: Final = 2_000
"""Snapshots of one pipeline that a list reads; retention keeps at most a thousand."""
CHECKPOINTS: Final = 20
"""Checkpoints of one page, of up to a MiB each."""
_FACTS: Final = ("id", "reason", "epoch", "version", "name", "code")
_CONTENT: Final = ("offsets", "topic_ids", "leader_epochs", "growth_barrier", "checkpoint")


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """The snapshots in one keyspace. Every method raises FenceError."""

    session: Session
    keyspace: str

    def insert(self, pipeline: str, snapshot: Snapshot) -> bool:
        """Insert the snapshot unless one with its id is there; return whether it was inserted.

        Columns that an older schema lacks are left out.  Raises FenceSchemaInvalid where that is the state's.
        """
        epochs = sealed(snapshot.leader_epochs, snapshot.offsets, snapshot.topic_ids)
        values: dict[str, Any] = {
            "pipeline": pipeline,
            "id": snapshot.id,
            "reason": snapshot.trigger,
            "epoch": snapshot.epoch,
            "version": snapshot.version,
            "offsets": dict(snapshot.offsets),
            "topic_ids": dict(snapshot.topic_ids),
            "name": snapshot.name,
            "code": snapshot.code,
            "leader_epochs": epochs,
            "growth_barrier": dict(snapshot.growth_barrier),
        }
        if snapshot.checkpoint is not None:
            values["checkpoint"] = snapshot.checkpoint
        there = [name for name in self._columns() if name in values]
        if snapshot.checkpoint is not None and "checkpoint" not in there:
            raise FenceSchemaInvalid(f"table {self._table} lacks the column checkpoint, so a snapshot has no state")
        marks = ", ".join("?" * len(there))
        insert = f"INSERT INTO {self._table} ({', '.join(there)}) VALUES ({marks}) IF NOT EXISTS"
        with translated(self._doing):
            answer = self.session.execute(self.session.prepare(insert), [values[name] for name in there])
            return is_applied(answer)

    def newest(self, pipeline: str, *, with_offsets: bool = False) -> tuple[Snapshot, ...]:
        """Return the newest snapshots, at most MOST, the newest first; none without the table.

        Without `with_offsets` they have no maps: those of many snapshots are more than the operator reads at once.
        """
        try:
            columns = [name for name in self._columns() if name in {*_FACTS, *(("offsets",) if with_offsets else ())}]
        except FenceSchemaMissing:
            return ()
        select = f"SELECT {', '.join(columns)} FROM {self._table} WHERE pipeline = ? LIMIT {MOST}"
        rows = self._execute(select, [pipeline])[:MOST]
        return tuple(snapshot(found) for found in rows if is_sound(found))

    def read(self, pipeline: str, id: UUID) -> Snapshot | None:  # noqa: A002 - the column's name
        """Return one snapshot with its offsets and its checkpoint, or None."""
        columns = [name for name in self._columns() if name in {*_FACTS, *_CONTENT}]
        select = f"SELECT {', '.join(columns)} FROM {self._table} WHERE pipeline = ? AND id = ?"
        rows = self._execute(select, [pipeline, id])
        return next((snapshot(found) for found in rows if is_sound(found)), None)

    def checkpoints(self, pipeline: str) -> Iterator[bytes]:
        """Yield the checkpoint of every snapshot that has one, of those in flight too: what they reach is kept.

        Raises FenceSchemaInvalid where the answer may not be complete.
        """
        with translated(self._doing):
            select = self.session.prepare(f"SELECT checkpoint FROM {self._table} WHERE pipeline = ? LIMIT {MOST + 1}")
            profile = self.session.get_execution_profile(EXEC_PROFILE_DEFAULT)
            select.consistency_level = profile.serial_consistency_level  # settles an insert without an answer
            select.fetch_size = CHECKPOINTS
            for number, found in enumerate(self.session.execute(select, [pipeline])):
                if number == MOST or not is_checkpoint(found.checkpoint):
                    raise FenceSchemaInvalid(f"{self._doing} are more than {MOST}, or have other types")
                if found.checkpoint is not None:
                    yield found.checkpoint

    def delete(self, pipeline: str, ids: Sequence[UUID]) -> None:
        """Delete snapshots; nothing to do for one that is gone.

        The condition orders a deletion after the insert, whose timestamp is a Cassandra node's.
        """
        for one in ids:
            self._execute(f"DELETE FROM {self._table} WHERE pipeline = ? AND id = ? IF EXISTS", [pipeline, one])

    @property
    def _table(self) -> str:
        return f'"{self.keyspace}".{schema.SNAPSHOTS.name}'

    @property
    def _doing(self) -> str:
        return f"the snapshots in keyspace {self.keyspace}"

    def _columns(self) -> Mapping[str, str]:
        with translated(self._doing):
            found = schema.columns_of(self.session, self.keyspace, schema.SNAPSHOTS.name)
        if not found:
            raise FenceSchemaMissing(f"table {self.keyspace}.{schema.SNAPSHOTS.name} does not exist")
        return found

    def _execute(self, statement: str, values: Sequence[Any]) -> list[Any]:
        with translated(self._doing):
            return schema.first_page(self.session.execute(self.session.prepare(statement), values))
