"""The fence rows of all pipelines, by `fencepost.fence` on sessions that one tenant cannot use up for another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar
from uuid import UUID

from fencepost.contract import Acceptance, ReportedLoss, topics_of
from fencepost.fence import (
    BatchProgress,
    Fence,
    FenceRow,
    FenceUnavailable,
)
from fencepost.fence.cassandra.history import changes_after
from fencepost.fence.cassandra.snapshots import SnapshotTable
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema, is_current, new_replication
from fencepost.fence.history import NO_CHANGE, Change, first_commit, history_hours, hour_of, replayed
from fencepost.fence.snapshots import Snapshot, Trigger, snapshot_of, take
from fencepost.state.cassandra import CassandraChunks, CassandraFileIndex
from fencepost.state.collector import forget
from fencepost.state.state_check import StateCheck, check_files
from fencepost_operator.adapters.cassandra.durability_settings import read_settings
from fencepost_operator.adapters.cassandra.fence_errors import SchemaMissing, translated
from fencepost_operator.adapters.cassandra.login import login_of
from fencepost_operator.adapters.cassandra.sessions import Limits, Sessions, Work
from fencepost_operator.api import CassandraConnection
from fencepost_operator.api.fields import PARTITION
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.errors import Conflict, Denied, Rejected, Unreachable
from fencepost_operator.observation import CassandraSettings, NoStart, StartingPoint
from fencepost_operator.ports import SecretReader

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_PATIENCE: Final = 10.0
"""Seconds that a change without an answer is pursued here; after that the loop looks again."""
_ANSWER_WITHIN: Final = 40.0
_SCHEMAS: Final = 1000
"""How many keyspaces are remembered as migrated."""


class CassandraFenceStore:
    """Implements the FenceStore port; `close` ends all sessions."""

    def __init__(
        self, secrets: SecretReader, limits: Limits | None = None, *, policy: EndpointPolicy | None = None
    ) -> None:
        self._secrets = secrets
        self._sessions = Sessions(limits, policy=policy)
        self._creating: dict[_Schema, asyncio.Task[None]] = {}
        self._current: set[_Schema] = set()

    async def read(self, connection: CassandraConnection, pipeline: str) -> FenceRow | None:
        """Return the row at SERIAL, or None, also when Cassandra says that its keyspace or table does not exist."""
        try:
            return await self._with_table(connection, lambda table: Fence(table, pipeline, patience=_PATIENCE).read())
        except SchemaMissing:
            return None

    async def read_progress(self, connection: CassandraConnection, pipeline: str) -> BatchProgress | None:
        """Return the driver's newest report from inside a batch, None without one or without its table."""
        return await self._with_table(connection, lambda table: table.read_progress(pipeline))

    async def create(self, connection: CassandraConnection, pipeline: str, owner: str) -> None:
        """Insert the row at epoch 0 unless it is there, making the schema when it is missing and may be made."""

        def insert(table: CassandraFenceTable) -> None:
            Fence(table, pipeline, patience=_PATIENCE).create(owner)

        await self._migrate(connection)
        try:
            await self._with_table(connection, insert)
        except SchemaMissing:
            if not connection.create_schema:
                raise
            await self._create_schema(connection)
            await self._with_table(connection, insert)

    async def take_over(
        self, connection: CassandraConnection, pipeline: str, epoch: int, version: int | None, owner: str
    ) -> FenceRow:
        """Move the row from (epoch, version) to (epoch + 1, no driver). Raises Conflict when it is elsewhere.

        Without a version, from whatever version the epoch is at: a driver that commits all the time is fenced too.
        """

        def fence(table: CassandraFenceTable) -> FenceRow:
            holder = Fence(table, pipeline, patience=_PATIENCE)
            if version is None:
                return holder.take_over_epoch(epoch, owner=owner)
            return holder.take_over(_expected(holder.read(), pipeline, epoch, version), owner=owner)

        await self._migrate(connection)
        return await self._with_table(connection, fence)

    async def read_loss(
        self, connection: CassandraConnection, pipeline: str, committed_ms: int, loss: str
    ) -> ReportedLoss | None:
        """Return the loss with this id, None without one or without its table."""
        return await self._with_table(connection, lambda table: _loss(table, pipeline, committed_ms, loss))

    async def accept_loss(
        self, connection: CassandraConnection, pipeline: str, committed_ms: int, loss: str, *, by: str, choice: str
    ) -> None:
        """Record the acceptance, adding what the tables of an older release lack."""

        def accept(table: CassandraFenceTable) -> None:
            report = _loss(table, pipeline, committed_ms, loss)
            if report is None:
                raise Conflict(f"the loss {loss} of {pipeline} is not recorded any more")
            table.accept_loss(pipeline, report.loss, Acceptance(by=by, choice=choice, at=datetime.now(UTC)))

        await self._migrate(connection)
        await self._with_table(connection, accept)

    async def snapshots(self, connection: CassandraConnection, pipeline: str) -> tuple[Snapshot, ...]:
        """Return the facts of the pipeline's snapshots, the newest first; none without their table."""
        return await self._with_table(connection, lambda table: _snapshots(table).newest(pipeline))

    async def take_snapshot(
        self,
        connection: CassandraConnection,
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

        def write(table: CassandraFenceTable) -> None:
            def copy() -> Snapshot:
                row = Fence(table, pipeline, patience=_PATIENCE).read()
                if row is None or row.owner != owner:
                    raise Conflict(f"the fence row of {pipeline} is not this pipeline's any more")
                if trigger == Trigger.SPEC_CHANGE and row.driver is not None:
                    why = "was claimed by the run that the snapshot was to precede"
                    raise Conflict(f"the fence row of {pipeline} {why}")
                if of is None:
                    return snapshot_of(row, id=id, trigger=trigger, name=name)
                found = _snapshots(table).read(pipeline, UUID(of))
                if found is None:
                    raise Rejected(f"snapshot {of} does not exist any more", remedy=_TO_ANOTHER)
                return replace(found, id=id, trigger=trigger, name=name or None)

            take(pipeline, copy, _snapshots(table))

        await self._migrate(connection)
        await self._with_table(connection, write)

    async def find_snapshot(self, connection: CassandraConnection, pipeline: str, wanted: str) -> Snapshot | None:
        """Return the snapshot with this id, or the newest one of this name, with its offsets; None without one."""
        return await self._with_table(connection, lambda table: _find_snapshot(_snapshots(table), pipeline, wanted))

    async def check_state(
        self, connection: CassandraConnection, pipeline: str, checkpoint: bytes, *, start: int
    ) -> StateCheck:
        """Return whether the next files of a checkpoint are there, after the first `start` ones."""

        def check(table: CassandraFenceTable) -> StateCheck:
            return check_files(checkpoint, CassandraChunks(table.session, table.keyspace, pipeline), start=start)

        return await self._with_table(connection, check)

    async def drop_snapshots(self, connection: CassandraConnection, pipeline: str, ids: Sequence[str]) -> None:
        """Delete snapshots; nothing to do for one that is gone."""
        await self._with_table(connection, lambda table: _snapshots(table).delete(pipeline, [UUID(one) for one in ids]))

    async def rewind(
        self,
        connection: CassandraConnection,
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

        def checkpoint(table: CassandraFenceTable, snapshot: str) -> bytes | None:
            found = _snapshots(table).read(pipeline, UUID(snapshot))
            if found is None or dict(found.offsets) != dict(offsets):
                raise Rejected(
                    f"snapshot {snapshot} does not exist any more, or has other offsets, so its state cannot be set",
                    remedy=_TO_ANOTHER if keeps_output else _TO_AN_EARLIER,
                )
            return found.checkpoint

        def set_back(table: CassandraFenceTable) -> None:
            holder = Fence(table, pipeline, patience=_PATIENCE)
            row = _expected(holder.read(), pipeline, epoch, version)
            if row.driver is not None:
                raise Conflict(f"the fence row of {pipeline} was claimed by driver {row.driver}")
            holder.rewind(
                row,
                offsets=offsets,
                leader_epochs=leader_epochs,
                growth_barrier=growth_barrier,
                keeps_output=keeps_output,
                checkpoint=None if snapshot is None else checkpoint(table, snapshot),
            )

        await self._with_table(connection, set_back)

    async def first_commit(
        self, connection: CassandraConnection, pipeline: str, *, epoch: int, version: int, since: datetime
    ) -> Mapping[str, int] | None:
        """Return the offsets at which the first commit after that change began; None while the history has none."""

        def look(table: CassandraFenceTable) -> Mapping[str, int] | None:
            changes: list[Change] = []
            for hour in _hours(since):
                changes += changes_after(
                    table.session, table.keyspace, pipeline, hour, epoch=epoch, version=version, limit=_CHANGES
                )
                if (found := first_commit(pipeline, changes, version)) is not None or len(changes) > _CHANGES:
                    return found
            return None

        return await self._with_table(connection, look)

    async def committed_at(
        self, connection: CassandraConnection, pipeline: str, moment: datetime, topics: frozenset[str]
    ) -> StartingPoint | NoStart:
        """Return what was committed at a moment by the history, if that has offsets of each of these topics then."""
        clock = int(moment.timestamp() * 1_000_000)

        def look(table: CassandraFenceTable) -> StartingPoint | NoStart:
            found = (_row_at(table, pipeline, hour, clock) for hour in _hours_before(moment))
            row = next((row for row in found if row is not None), None)
            if row is None or not topics <= topics_of(row.offsets):
                return NoStart(earliest=_first_with(table, pipeline, topics, moment))
            return StartingPoint(offsets=row.offsets, topic_ids=row.topic_ids, clock=row.clock)

        return await self._with_table(connection, look)

    async def release(self, connection: CassandraConnection, pipeline: str, epoch: int, version: int) -> None:
        """Delete the row's history, snapshots and state, and release it. Raises Conflict when the row is elsewhere."""

        def drop(table: CassandraFenceTable) -> None:
            holder = Fence(table, pipeline, patience=_PATIENCE)
            row = holder.read()
            if row is not None:
                holder.release(_expected(row, pipeline, epoch, version), also=lambda: _forget_state(table, pipeline))

        try:
            await self._with_table(connection, drop)
        except SchemaMissing:
            return

    async def settings(self, connection: CassandraConnection, keyspaces: Sequence[str]) -> CassandraSettings:
        """Return how the cluster and these keyspaces are set; `commitlog_sync` is the asked node's."""
        return await self._with_table(connection, lambda table: read_settings(table.session, keyspaces))

    async def close(self) -> None:
        """End all sessions."""
        for attempt in self._creating.values():
            attempt.cancel()
        await self._sessions.close()

    async def _migrate(self, connection: CassandraConnection) -> None:
        """Add what a later release added to the tables; without the right to do so they are used as they are."""
        schema = _schema(connection)
        if not connection.create_schema or schema in self._current:
            return
        try:
            if not await self._with_table(connection, lambda table: is_current(table.session, connection.keyspace)):
                await self._create_schema(connection)
        except (Denied, Rejected) as error:
            log.warning("keyspace %s keeps its older tables: %s", connection.keyspace, error)
            return
        if len(self._current) >= _SCHEMAS:
            self._current.clear()
        self._current.add(schema)

    async def _create_schema(self, connection: CassandraConnection) -> None:
        """Create and add what is missing, one attempt at a time for each keyspace of a cluster.

        Other callers wait.  They share a success; after a failure, which may be due to that attempt's account, each
        makes its own attempt.  An attempt ends when Cassandra has answered each statement, not when its caller times
        out: concurrent attempts are the race that this prevents.
        """
        schema = _schema(connection)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                while (other := self._creating.get(schema)) is not None:
                    if await _succeeded(other):
                        return
                attempt = self._creating[schema] = asyncio.create_task(self._apply_schema(connection))
                attempt.add_done_callback(lambda done: self._created(schema, done))
                await asyncio.shield(attempt)
        except TimeoutError as error:
            raise Unreachable(
                f"creating the tables in keyspace {connection.keyspace} takes longer than {_ANSWER_WITHIN:.0f} s",
                remedy="wait: the attempt continues; or check the load of Cassandra",
            ) from error

    async def _apply_schema(self, connection: CassandraConnection) -> None:
        login, keyspace = await login_of(connection, self._secrets), connection.keyspace

        def create(table: CassandraFenceTable) -> None:
            strategy, factor = connection.replication_class, connection.replication_factor
            create_schema(table.session, keyspace, new_replication(table.session, strategy=strategy, factor=factor))

        with translated(login, keyspace):
            await self._sessions.run(login, keyspace, create, namespace=connection.namespace)
        self._sessions.forget(login, keyspace)

    def _created(self, schema: _Schema, attempt: asyncio.Task[None]) -> None:
        del self._creating[schema]
        if not attempt.cancelled():
            attempt.exception()  # retrieved, because no caller may wait for it any more

    async def _with_table(self, connection: CassandraConnection, work: Work[_T]) -> _T:
        login, keyspace = await login_of(connection, self._secrets), connection.keyspace
        with translated(login, keyspace):
            try:
                async with asyncio.timeout(_ANSWER_WITHIN):
                    return await self._sessions.run(login, keyspace, work, namespace=connection.namespace)
            except TimeoutError as error:
                raise FenceUnavailable(f"no answer in {_ANSWER_WITHIN:.0f} s") from error


_CHANGES: Final = 100
"""Changes that are read to find a first commit: a run claims, plans and commits."""
_HOURS: Final = 48


def _hours(since: datetime) -> Sequence[datetime]:
    """Return the hours from a moment to now, a little earlier for clocks that differ, and at most the first ones."""
    first, last = hour_of(since - timedelta(minutes=5)), hour_of(datetime.now(UTC))
    count = min(_HOURS, int((last - first).total_seconds()) // 3600 + 2)
    return [first + timedelta(hours=ahead) for ahead in range(count)]


_LONGEST_HOUR: Final = 100_000
"""Changes of one hour that are read: ten batches per second take 72,000. A tenant's own Cassandra could return more."""
_CHANGES_AT_ONCE: Final = 2_000
_HOUR: Final = timedelta(hours=1)
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _hours_before(moment: datetime) -> Sequence[datetime]:
    """Return the hour of a moment, and those before it that the history may hold, the newest first."""
    return [hour for hour in history_hours() if hour <= moment]


def _row_at(table: CassandraFenceTable, pipeline: str, hour: datetime, clock: int) -> FenceRow | None:
    """Return the row as its last change of an hour up to a clock left it, None without one. Raises Rejected."""
    found: FenceRow | None = None
    for _, row in replayed(pipeline, _changes_of(table, pipeline, hour)):
        if row.clock > clock:
            break
        found = row
    return found


def _first_with(table: CassandraFenceTable, pipeline: str, topics: frozenset[str], after: datetime) -> datetime | None:
    """Return the first moment after this one of which the history has offsets of each topic. Raises Rejected.

    It is that of the record: a claim keeps the row's clock, which may be of an earlier hour.
    """
    for hour in (hour for hour in reversed(history_hours()) if hour + _HOUR > after):
        for record, row in replayed(pipeline, _changes_of(table, pipeline, hour)):
            at = _UNIX_EPOCH + timedelta(microseconds=max(row.clock, record.written_at or 0))
            if at > after and topics <= topics_of(row.offsets):
                return at
    return None


def _changes_of(table: CassandraFenceTable, pipeline: str, hour: datetime) -> Iterator[Change]:
    epoch, version = NO_CHANGE
    for _ in range(_LONGEST_HOUR // _CHANGES_AT_ONCE):
        page = changes_after(
            table.session, table.keyspace, pipeline, hour, epoch=epoch, version=version, limit=_CHANGES_AT_ONCE
        )
        yield from page
        if len(page) < _CHANGES_AT_ONCE:
            return
        epoch, version = page[-1].epoch, page[-1].version
    raise Rejected(
        f"the history of {hour:%Y-%m-%d %H:%M} UTC has more than {_LONGEST_HOUR} changes",
        remedy="name a snapshot in spec.since of another PipelineTrial",
    )


def _forget_state(table: CassandraFenceTable, pipeline: str) -> None:
    """Delete the files of a stateful pipeline, as far as there are tables for them."""
    place = table.session, table.keyspace, pipeline
    index = CassandraFileIndex(*place)
    if index.is_there():
        forget(CassandraChunks(*place), index)


def _find_snapshot(snapshots: SnapshotTable, pipeline: str, wanted: str) -> Snapshot | None:
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


def _snapshots(table: CassandraFenceTable) -> SnapshotTable:
    return SnapshotTable(table.session, table.keyspace)


_Schema = tuple[frozenset[str], int, str]


def _schema(connection: CassandraConnection) -> _Schema:
    """Return what identifies a keyspace, whoever logs in."""
    return frozenset(connection.contact_points), connection.port, connection.keyspace


async def _succeeded(attempt: asyncio.Task[None]) -> bool:
    """Wait for an attempt of another pipeline, and return whether it succeeded."""
    await asyncio.wait({attempt})
    return not attempt.cancelled() and attempt.exception() is None


def _expected(row: FenceRow | None, pipeline: str, epoch: int, version: int | None) -> FenceRow:
    if row is None:
        raise Conflict(f"the fence row of {pipeline} is gone (epoch {epoch} was expected)")
    if row.epoch != epoch or version not in {None, row.version}:
        wanted = f"epoch {epoch}" + (f" version {version}" if version is not None else "")
        raise Conflict(f"the fence row of {pipeline} is at epoch {row.epoch} version {row.version}, not at {wanted}")
    return row


def _loss(table: CassandraFenceTable, pipeline: str, committed_ms: int, loss: str) -> ReportedLoss | None:
    reports = table.read_losses(pipeline, committed_ms)
    return next((report for report in reports if report.loss.id == loss), None)
