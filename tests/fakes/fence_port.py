"""The port to the fence, on a `World`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import UUID

from fakes.gate import Gate
from fakes.world import REPLICATED, World
from fencepost.contract import Acceptance, ReportedLoss, topics_of
from fencepost.fence import BatchProgress, Fenced, FenceMissing, FenceRow, FenceUnavailable
from fencepost.fence.snapshots import Snapshot, Trigger, snapshot_of
from fencepost.state.state_check import StateCheck
from fencepost_operator.api import CassandraConnection, FenceConnection
from fencepost_operator.errors import Conflict, Rejected, Unreachable
from fencepost_operator.observation import CassandraSettings, NoStart, StartingPoint


@dataclass(slots=True)
class FakeFences:
    world: World
    gate: Gate

    async def read(self, connection: FenceConnection, pipeline: str) -> FenceRow | None:
        return await self.gate.read("fence", lambda: self._read(connection, pipeline))

    def _read(self, connection: FenceConnection, pipeline: str) -> FenceRow | None:
        del connection
        return self._read_row(pipeline)

    def _read_row(self, pipeline: str) -> FenceRow | None:
        try:
            return self.world.fence(pipeline).read()
        except FenceUnavailable as error:
            raise Unreachable(str(error), remedy="check Cassandra") from error

    async def read_progress(self, connection: FenceConnection, pipeline: str) -> BatchProgress | None:
        del connection
        return await self.gate.read("progress", lambda: self._read_progress(pipeline))

    def _read_progress(self, pipeline: str) -> BatchProgress | None:
        try:
            return self.world.table.read_progress(pipeline)
        except FenceUnavailable as error:
            raise Unreachable(str(error), remedy="check Cassandra") from error

    async def give_sign(
        self, connection: FenceConnection, key: str, *, epoch: int, version: int, number: int, note: str
    ) -> None:
        del connection
        table = self.world.table
        await self._write(
            "give_sign", lambda: table.report_progress(key, epoch=epoch, version=version, done=number, note=note)
        )

    async def create(self, connection: FenceConnection, pipeline: str, owner: str) -> None:
        del connection
        await self._write("create", lambda: self.world.fence(pipeline).create(owner))

    async def take_over(
        self, connection: FenceConnection, pipeline: str, epoch: int, version: int | None, owner: str
    ) -> FenceRow:
        row = await self.read(connection, pipeline)
        if row is None or (row.epoch, row.version) != (epoch, row.version if version is None else version):
            raise Conflict("the row is elsewhere")
        fence = self.world.fence(pipeline)
        if version is None:
            await self._write("take_over", lambda: fence.take_over_epoch(epoch, owner=owner))
        else:
            await self._write("take_over", lambda: fence.take_over(row, owner=owner))
        after = await self.read(connection, pipeline)
        if after is None:
            raise Conflict("the row was deleted meanwhile")
        return after

    async def read_loss(
        self, connection: FenceConnection, pipeline: str, committed_ms: int, loss: str
    ) -> ReportedLoss | None:
        del connection
        return await self.gate.read("loss", lambda: self._read_loss(pipeline, committed_ms, loss))

    def _read_loss(self, pipeline: str, committed_ms: int, loss: str) -> ReportedLoss | None:
        try:
            reports = self.world.table.read_losses(pipeline, committed_ms)
        except FenceUnavailable as error:
            raise Unreachable(str(error), remedy="check Cassandra") from error
        return next((report for report in reports if report.loss.id == loss), None)

    async def accept_loss(
        self, connection: FenceConnection, pipeline: str, committed_ms: int, loss: str, *, by: str, choice: str
    ) -> None:
        del connection
        report = self._read_loss(pipeline, committed_ms, loss)
        if report is None:
            raise Conflict("the loss does not exist")
        found, acceptance = report.loss, Acceptance(by=by, choice=choice, at=self.world.now)
        await self._write("accept_loss", lambda: self.world.table.accept_loss(pipeline, found, acceptance))

    async def settings(self, connection: CassandraConnection, keyspaces: Sequence[str]) -> CassandraSettings:
        return await self.gate.read("cassandra_settings", lambda: self._settings(connection, keyspaces))

    def _settings(self, connection: CassandraConnection, keyspaces: Sequence[str]) -> CassandraSettings:
        del connection
        if self.world.cassandra_down:
            raise Unreachable("no node of Cassandra answers", remedy="check Cassandra")
        return CassandraSettings(
            nodes={"datacenter1": 3},
            keyspaces={name: self.world.keyspaces.get(name, REPLICATED) for name in keyspaces},
            commitlog_sync=self.world.commitlog_sync,
        )

    async def snapshots(self, connection: FenceConnection, pipeline: str) -> tuple[Snapshot, ...]:
        del connection
        return await self.gate.read("snapshots", lambda: self._snapshots(pipeline))

    def _snapshots(self, pipeline: str) -> tuple[Snapshot, ...]:
        self._read_row(pipeline)  # the same Cassandra: it answers or it does not
        found = [one for (row, _), one in self.world.snapshots.items() if row == pipeline]
        return tuple(sorted(found, key=lambda one: one.id.time, reverse=True))

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
        row = await self.read(connection, pipeline)
        if row is None or row.owner != owner:
            raise Conflict("the row is another's")
        if trigger == Trigger.SPEC_CHANGE and row.driver is not None:
            raise Conflict("the row was claimed")
        made = snapshot_of(row, id=UUID(snapshot), trigger=trigger, name=name)
        if of is not None:
            if (pipeline, of) not in self.world.snapshots:
                raise Rejected(f"snapshot {of} does not exist", remedy="")
            made = replace(self.world.snapshots[pipeline, of], id=made.id, trigger=trigger, name=None)
        await self._write("take_snapshot", lambda: self.world.snapshots.setdefault((pipeline, snapshot), made))

    async def find_snapshot(self, connection: FenceConnection, pipeline: str, wanted: str) -> Snapshot | None:
        found = await self.snapshots(connection, pipeline)
        return next((one for one in found if wanted in {str(one.id), one.name}), None)

    async def check_state(
        self, connection: FenceConnection, pipeline: str, checkpoint: bytes, *, start: int
    ) -> StateCheck:
        del connection, start
        return await self.gate.read("check_state", lambda: self._check_state(pipeline, checkpoint))

    def _check_state(self, pipeline: str, checkpoint: bytes) -> StateCheck:
        self._read_row(pipeline)
        missing = "chunks of state/0/0/1.zip" if checkpoint in self.world.damaged else ""
        return StateCheck(files=1, checked=1, missing=missing)

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
        row = await self.read(connection, pipeline)
        if row is None or (row.epoch, row.version, row.driver) != (epoch, version, None):
            raise Conflict("the row is elsewhere")
        fence = self.world.fence(pipeline)
        checkpoint = None if snapshot is None else self.world.snapshots[pipeline, snapshot].checkpoint
        await self._write(
            "rewind",
            lambda: fence.rewind(
                row,
                offsets=offsets,
                leader_epochs=leader_epochs,
                growth_barrier=growth_barrier,
                keeps_output=keeps_output,
                checkpoint=checkpoint,
            ),
        )

    async def first_commit(
        self, connection: FenceConnection, pipeline: str, *, epoch: int, version: int, since: datetime
    ) -> Mapping[str, int] | None:
        del connection, epoch, since
        rows = [row for row in self.world.table.history if row.pipeline == pipeline and row.version >= version]
        pairs = itertools.pairwise(rows)
        return next((before.offsets for before, after in pairs if after.committed_at != before.committed_at), None)

    async def committed_at(
        self, connection: FenceConnection, pipeline: str, moment: datetime, topics: frozenset[str]
    ) -> StartingPoint | NoStart:
        del connection
        clock = int(moment.timestamp() * 1_000_000)
        rows = [row for row in self.world.table.history if row.pipeline == pipeline]
        then = next((row for row in reversed(rows) if row.clock <= clock), None)
        if then is not None and topics <= topics_of(then.offsets):
            return StartingPoint(offsets=then.offsets, topic_ids=then.topic_ids, clock=then.clock)
        later = next((row for row in rows if row.clock > clock and topics <= topics_of(row.offsets)), None)
        return NoStart(earliest=datetime.fromtimestamp(later.clock / 1e6, UTC) if later is not None else None)

    async def drop_snapshots(self, connection: FenceConnection, pipeline: str, ids: Sequence[str]) -> None:
        del connection
        await self._write("drop_snapshots", lambda: [self.world.snapshots.pop((pipeline, one), None) for one in ids])

    async def release(self, connection: FenceConnection, pipeline: str, epoch: int, version: int) -> None:
        row = await self.read(connection, pipeline)
        if row is None:
            return
        if (row.epoch, row.version) != (epoch, version):
            raise Conflict("the row is elsewhere")
        await self._write("delete_fence", lambda: self.world.fence(pipeline).release(row))

    async def _write(self, name: str, effect: Callable[[], object]) -> None:
        try:
            await self.gate.write(name, effect)
        except (Fenced, FenceMissing) as error:
            raise Conflict(str(error)) from error
        except FenceUnavailable as error:
            raise Unreachable(str(error), remedy="check Cassandra") from error
