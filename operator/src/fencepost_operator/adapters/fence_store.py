"""The fence rows of all pipelines, by `fencepost.fence`, in whichever database a pipeline names.

What is done with a row is the same in each; `Fences` of one kind of database have the sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeVar, assert_never
from uuid import UUID

from fencepost.contract import Acceptance, ReportedLoss, topics_of
from fencepost.fence import BatchProgress, Fence, FenceRow
from fencepost.fence.history import NO_CHANGE, Change, first_commit, history_hours, hour_of, replayed
from fencepost.fence.snapshots import Snapshot, Trigger, snapshot_of, take
from fencepost.fence.table import FenceTable
from fencepost.state.state_check import StateCheck
from fencepost_operator.adapters.fence_errors import SchemaMissing
from fencepost_operator.api import CassandraConnection, FenceConnection, PostgresqlConnection
from fencepost_operator.api.fields import PARTITION
from fencepost_operator.errors import Conflict, Rejected
from fencepost_operator.observation import CassandraSettings, NoStart, StartingPoint

_T = TypeVar("_T")
_C_contra = TypeVar("_C_contra", bound=FenceConnection, contravariant=True)
_PATIENCE: Final = 10.0
"""Seconds that a change without an answer is pursued here; after that the loop looks again."""


class Snapshots(Protocol):
    """The table of snapshots. Methods raise FenceError."""

    def insert(self, pipeline: str, one: Snapshot) -> bool:
        """Insert a snapshot unless one with its id is there."""
        ...

    def newest(self, pipeline: str) -> tuple[Snapshot, ...]:
        """Return the facts of the newest ones, the newest first."""
        ...

    def read(self, pipeline: str, id: UUID) -> Snapshot | None:  # noqa: A002 - the column's name
        """Return one with its offsets."""
        ...

    def delete(self, pipeline: str, ids: Sequence[UUID]) -> None:
        """Delete some."""
        ...


class FencePlace(Protocol):
    """A keyspace or schema with the fence's tables, through a session. Methods block, and raise FenceError."""

    @property
    def table(self) -> FenceTable:
        """The fence rows."""
        ...

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots."""
        ...

    @property
    def changes_at_once(self) -> int:
        """How many changes of the history fit in one answer."""
        ...

    def changes_after(self, pipeline: str, hour: datetime, *, epoch: int, version: int, limit: int) -> Sequence[Change]:
        """Return the first changes of an hour that came after this one, oldest first."""
        ...

    def check_state(self, pipeline: str, checkpoint: bytes, *, start: int) -> StateCheck:
        """Return whether the next files of a checkpoint are there."""
        ...

    def forget_state(self, pipeline: str) -> None:
        """Delete the files of a stateful pipeline, as far as there are tables for them."""
        ...


Work = Callable[[FencePlace], _T]


class Fences(Protocol[_C_contra]):
    """The fences in databases of one kind."""

    async def run(self, connection: _C_contra, work: Work[_T]) -> _T:
        """Do blocking work in a thread. Raises SchemaMissing, and PortError as `fence_errors` has it."""
        ...

    async def migrate(self, connection: _C_contra) -> None:
        """Add what a later release added to the tables; without the right to do so they are used as they are."""
        ...

    async def create_schema(self, connection: _C_contra) -> None:
        """Create and add what is missing. Raises PortError."""
        ...

    async def close(self) -> None:
        """End all sessions."""
        ...


class CassandraFencesPort(Fences[CassandraConnection], Protocol):
    """Those of Cassandra, whose settings the operator reads."""

    async def settings(self, connection: CassandraConnection, keyspaces: Sequence[str]) -> CassandraSettings:
        """Return how the cluster and these keyspaces are set; `commitlog_sync` is the asked node's."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFenceStore:
    """Implements the FenceStore port; `close` ends all sessions."""

    cassandra: CassandraFencesPort
    postgresql: Fences[PostgresqlConnection]

    def _of(self, connection: FenceConnection) -> Fences[Any]:
        match connection:
            case CassandraConnection():
                return self.cassandra
            case PostgresqlConnection():
                return self.postgresql
            case _:
                assert_never(connection)

    async def _with_place(self, connection: FenceConnection, work: Work[_T]) -> _T:
        return await self._of(connection).run(connection, work)

    async def _unless_missing(self, connection: FenceConnection, work: Work[_T]) -> _T | None:
        """Do what a table is read for; None where the database says that it does not exist yet."""
        try:
            return await self._with_place(connection, work)
        except SchemaMissing:
            return None

    async def read(self, connection: FenceConnection, pipeline: str) -> FenceRow | None:
        """Return the row, or None, also when the database says that its keyspace, schema or table does not exist."""
        return await self._unless_missing(
            connection, lambda place: Fence(place.table, pipeline, patience=_PATIENCE).read()
        )

    async def read_progress(self, connection: FenceConnection, pipeline: str) -> BatchProgress | None:
        """Return the driver's newest report from inside a batch, None without one or without its table."""
        return await self._unless_missing(connection, lambda place: place.table.read_progress(pipeline))

    async def give_sign(
        self, connection: FenceConnection, key: str, *, epoch: int, version: int, number: int, note: str
    ) -> None:
        """Record that an operator works; see the port."""
        await self._with_place(
            connection,
            lambda place: place.table.report_progress(key, epoch=epoch, version=version, done=number, note=note),
        )

    async def create(self, connection: FenceConnection, pipeline: str, owner: str) -> None:
        """Insert the row at epoch 0 unless it is there, making the schema when it is missing and may be made."""

        def insert(place: FencePlace) -> None:
            Fence(place.table, pipeline, patience=_PATIENCE).create(owner)

        await self._of(connection).migrate(connection)
        try:
            await self._with_place(connection, insert)
        except SchemaMissing:
            if not connection.create_schema:
                raise
            await self._of(connection).create_schema(connection)
            await self._with_place(connection, insert)

    async def take_over(
        self, connection: FenceConnection, pipeline: str, epoch: int, version: int | None, owner: str
    ) -> FenceRow:
        """Move the row from (epoch, version) to (epoch + 1, no driver). Raises Conflict when it is elsewhere.

        Without a version, from whatever version the epoch is at: a driver that commits all the time is fenced too.
        """

        def fence(place: FencePlace) -> FenceRow:
            holder = Fence(place.table, pipeline, patience=_PATIENCE)
            if version is None:
                return holder.take_over_epoch(epoch, owner=owner)
            return holder.take_over(_expected(holder.read(), pipeline, epoch, version), owner=owner)

        await self._of(connection).migrate(connection)
        return await self._with_place(connection, fence)

    async def read_loss(
        self, connection: FenceConnection, pipeline: str, committed_ms: int, loss: str
    ) -> ReportedLoss | None:
        """Return the loss with this id, None without one or without its table."""
        return await self._unless_missing(connection, lambda place: _loss(place.table, pipeline, committed_ms, loss))

    async def accept_loss(
        self, connection: FenceConnection, pipeline: str, committed_ms: int, loss: str, *, by: str, choice: str
    ) -> None:
        """Record the acceptance, adding what the tables of an older release lack."""

        def accept(place: FencePlace) -> None:
            report = _loss(place.table, pipeline, committed_ms, loss)
            if report is None:
                raise Conflict(f"the loss {loss} of {pipeline} is not recorded any more")
            place.table.accept_loss(pipeline, report.loss, Acceptance(by=by, choice=choice, at=datetime.now(UTC)))

        await self._of(connection).migrate(connection)
        await self._with_place(connection, accept)

    async def snapshots(self, connection: FenceConnection, pipeline: str) -> tuple[Snapshot, ...]:
        """Return the facts of the pipeline's snapshots, the newest first; none without their table."""
        return await self._unless_missing(connection, lambda place: place.snapshots.newest(pipeline)) or ()

    async def take_snapshot(
        self,
        connection: FenceConnection,
        pipeline: str,
        *,
        owner: str,
        snapshot: str,
        trigger: str,
        name: str,
        of: str | None = None,
    ) -> None:
        """Copy the row, or another snapshot, into the snapshot with this id unless it is there; see the port."""
        id = UUID(snapshot)  # noqa: A001 - the column's name

        def write(place: FencePlace) -> None:
            def copy() -> Snapshot:
                row = Fence(place.table, pipeline, patience=_PATIENCE).read()
                if row is None or row.owner != owner:
                    raise Conflict(f"the fence row of {pipeline} is not this pipeline's any more")
                if trigger == Trigger.SPEC_CHANGE and row.driver is not None:
                    why = "was claimed by the run that the snapshot was to precede"
                    raise Conflict(f"the fence row of {pipeline} {why}")
                if of is None:
                    return snapshot_of(row, id=id, trigger=trigger, name=name)
                found = place.snapshots.read(pipeline, UUID(of))
                if found is None:
                    raise Rejected(f"snapshot {of} does not exist any more", remedy=_TO_ANOTHER)
                return replace(found, id=id, trigger=trigger, name=name or None)

            take(pipeline, copy, place.snapshots)

        await self._of(connection).migrate(connection)
        await self._with_place(connection, write)

    async def find_snapshot(self, connection: FenceConnection, pipeline: str, wanted: str) -> Snapshot | None:
        """Return the snapshot with this id, or the newest one of this name, with its offsets; None without one."""
        return await self._with_place(connection, lambda place: _find_snapshot(place.snapshots, pipeline, wanted))

    async def check_state(
        self, connection: FenceConnection, pipeline: str, checkpoint: bytes, *, start: int
    ) -> StateCheck:
        """Return whether the next files of a checkpoint are there, after the first `start` ones."""
        return await self._with_place(connection, lambda place: place.check_state(pipeline, checkpoint, start=start))

    async def drop_snapshots(self, connection: FenceConnection, pipeline: str, ids: Sequence[str]) -> None:
        """Delete snapshots; nothing to do for one that is gone."""
        await self._with_place(connection, lambda place: place.snapshots.delete(pipeline, [UUID(one) for one in ids]))

    async def rewind(
        self,
        connection: FenceConnection,
        pipeline: str,
        *,
        epoch: int,
        version: int,
        offsets: Mapping[str, int],
        leader_epochs: Mapping[str, int],
        growth_barrier: Mapping[str, int],
        keeps_output: bool,
        snapshot: str | None,
    ) -> None:
        """Set the offsets of an unclaimed row back, and its state; see the port.

        The snapshot is read after the row: no driver holds the row's epoch, so nothing that the snapshot reaches is
        deleted meanwhile.
        """

        def checkpoint(place: FencePlace, snapshot: str) -> bytes | None:
            found = place.snapshots.read(pipeline, UUID(snapshot))
            if found is None or dict(found.offsets) != dict(offsets):
                raise Rejected(
                    f"snapshot {snapshot} does not exist any more, or has other offsets, so its state cannot be set",
                    remedy=_TO_ANOTHER if keeps_output else _TO_AN_EARLIER,
                )
            return found.checkpoint

        def set_back(place: FencePlace) -> None:
            holder = Fence(place.table, pipeline, patience=_PATIENCE)
            row = _expected(holder.read(), pipeline, epoch, version)
            if row.driver is not None:
                raise Conflict(f"the fence row of {pipeline} was claimed by driver {row.driver}")
            holder.rewind(
                row,
                offsets=offsets,
                leader_epochs=leader_epochs,
                growth_barrier=growth_barrier,
                keeps_output=keeps_output,
                checkpoint=None if snapshot is None else checkpoint(place, snapshot),
            )

        await self._with_place(connection, set_back)

    async def first_commit(
        self, connection: FenceConnection, pipeline: str, *, epoch: int, version: int, since: datetime
    ) -> Mapping[str, int] | None:
        """Return the offsets at which the first commit after that change began; None while the history has none."""

        def look(place: FencePlace) -> Mapping[str, int] | None:
            changes: list[Change] = []
            most = min(_CHANGES, place.changes_at_once)
            for hour in _hours(since):
                changes += place.changes_after(pipeline, hour, epoch=epoch, version=version, limit=most)
                if (found := first_commit(pipeline, changes, version)) is not None or len(changes) > most:
                    return found
            return None

        return await self._with_place(connection, look)

    async def committed_at(
        self, connection: FenceConnection, pipeline: str, moment: datetime, topics: frozenset[str]
    ) -> StartingPoint | NoStart:
        """Return what was committed at a moment by the history, if that has offsets of each of these topics then."""
        clock = _clock_of(moment)

        def look(place: FencePlace) -> StartingPoint | NoStart:
            found = (_row_at(place, pipeline, hour, clock) for hour in _hours_before(moment))
            row = next((row for row in found if row is not None), None)
            if row is None or not topics <= topics_of(row.offsets):
                return NoStart(earliest=_first_with(place, pipeline, topics, moment))
            return StartingPoint(offsets=row.offsets, topic_ids=row.topic_ids, clock=row.clock)

        return await self._with_place(connection, look)

    async def release(self, connection: FenceConnection, pipeline: str, epoch: int, version: int) -> None:
        """Delete the row's history, snapshots and state, and release it. Raises Conflict when the row is elsewhere."""

        def drop(place: FencePlace) -> None:
            holder = Fence(place.table, pipeline, patience=_PATIENCE)
            row = holder.read()
            if row is not None:
                holder.release(_expected(row, pipeline, epoch, version), also=lambda: place.forget_state(pipeline))

        try:
            await self._with_place(connection, drop)
        except SchemaMissing:
            return

    async def settings(self, connection: CassandraConnection, keyspaces: Sequence[str]) -> CassandraSettings:
        """Return how a Cassandra and these keyspaces are set."""
        return await self.cassandra.settings(connection, keyspaces)

    async def close(self) -> None:
        """End all sessions."""
        await self.cassandra.close()
        await self.postgresql.close()


_CHANGES: Final = 100
"""Changes that are read to find a first commit: a run claims, plans and commits."""
_HOURS: Final = 48


def _hours(since: datetime) -> Sequence[datetime]:
    """Return the hours from a moment to now, a little earlier for clocks that differ, and at most the first ones."""
    first, last = hour_of(since - timedelta(minutes=5)), hour_of(datetime.now(UTC))
    count = min(_HOURS, int((last - first).total_seconds()) // 3600 + 2)
    return [first + timedelta(hours=ahead) for ahead in range(count)]


_LONGEST_HOUR: Final = 100_000
"""Changes of one hour that are read: ten batches per second take 72,000. A tenant's own database could return more."""
_HOUR: Final = timedelta(hours=1)
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _hours_before(moment: datetime) -> Sequence[datetime]:
    """Return the hour of a moment, and those before it that the history may hold, the newest first."""
    return [hour for hour in history_hours() if hour <= moment]


def _row_at(place: FencePlace, pipeline: str, hour: datetime, clock: int) -> FenceRow | None:
    """Return the row as its last change of an hour up to a clock left it, None without one. Raises Rejected."""
    found: FenceRow | None = None
    for _, row in replayed(pipeline, _changes_of(place, pipeline, hour)):
        if row.clock > clock:
            break
        found = row
    return found


def _first_with(place: FencePlace, pipeline: str, topics: frozenset[str], after: datetime) -> datetime | None:
    """Return the first moment after this one of which the history has offsets of each topic. Raises Rejected.

    It is that of the record: a claim keeps the row's clock, which may be of an earlier hour.  A clock after the hour of
    its record is taken as its end: a tenant's own database may return one that no date has.
    """
    for hour in (hour for hour in reversed(history_hours()) if hour + _HOUR > after):
        for record, row in replayed(pipeline, _changes_of(place, pipeline, hour)):
            clock = max(row.clock, record.written_at or 0)
            at = _UNIX_EPOCH + timedelta(microseconds=min(clock, _clock_of(hour + _HOUR)))
            if at > after and topics <= topics_of(row.offsets):
                return at
    return None


def _clock_of(moment: datetime) -> int:
    """Return a moment as the rows have it, in µs since 1970."""
    return int(moment.timestamp() * 1_000_000)


def _changes_of(place: FencePlace, pipeline: str, hour: datetime) -> Iterator[Change]:
    (epoch, version), at_once = NO_CHANGE, place.changes_at_once
    for _ in range(_LONGEST_HOUR // at_once):
        page = place.changes_after(pipeline, hour, epoch=epoch, version=version, limit=at_once)
        yield from page
        if len(page) < at_once:
            return
        epoch, version = page[-1].epoch, page[-1].version
    raise Rejected(
        f"the history of {hour:%Y-%m-%d %H:%M} UTC has more than {_LONGEST_HOUR} changes",
        remedy="name a snapshot in spec.since of another PipelineTrial",
    )


def _find_snapshot(snapshots: Snapshots, pipeline: str, wanted: str) -> Snapshot | None:
    """Return the snapshot; its maps are checked, because other clients may have written them."""
    found = _snapshot_id(wanted)
    if found is None:
        found = next((each.id for each in snapshots.newest(pipeline) if each.name == wanted), None)
    snapshot = snapshots.read(pipeline, found) if found is not None else None
    if snapshot is None:
        return None
    numbers = (snapshot.offsets, snapshot.leader_epochs, snapshot.growth_barrier)
    right = all(PARTITION.fullmatch(str(key)) and isinstance(end, int) for part in numbers for key, end in part.items())
    if not right or not all(isinstance(text, str) for pair in snapshot.topic_ids.items() for text in pair):
        raise Rejected(
            f"snapshot {snapshot.id} does not hold offsets of partitions and ids of topics",
            remedy="name another snapshot, or the offsets themselves",
        )
    return snapshot


_TO_ANOTHER: Final = "delete this PipelineRewind with its finalizer, and create one to another snapshot"
_TO_AN_EARLIER: Final = (
    "delete this PipelineRewind with its finalizer, and create one to an earlier snapshot, because the output beyond"
    " the target is already deleted"
)


def _snapshot_id(wanted: str) -> UUID | None:
    """Return the id that a text is, None where it is a name."""
    try:
        found = UUID(wanted)
    except ValueError:
        return None
    return found if found.version == 1 else None


def _expected(row: FenceRow | None, pipeline: str, epoch: int, version: int | None) -> FenceRow:
    if row is None:
        raise Conflict(f"the fence row of {pipeline} is gone (epoch {epoch} was expected)")
    if row.epoch != epoch or version not in {None, row.version}:
        wanted = f"epoch {epoch}" + (f" version {version}" if version is not None else "")
        raise Conflict(f"the fence row of {pipeline} is at epoch {row.epoch} version {row.version}, not at {wanted}")
    return row


def _loss(table: FenceTable, pipeline: str, committed_ms: int, loss: str) -> ReportedLoss | None:
    reports = table.read_losses(pipeline, committed_ms)
    return next((report for report in reports if report.loss.id == loss), None)
