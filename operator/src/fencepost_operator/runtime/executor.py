"""Carries out one action: each is one call of one port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from fencepost_operator.actions import (
    AcceptLoss,
    Action,
    AddFinalizer,
    CreateFence,
    DeleteRun,
    DropSnapshots,
    InstallCluster,
    KeepRevision,
    PruneCluster,
    ReleaseFence,
    RemoveFinalizer,
    RestoreCluster,
    RewindFence,
    StartPurge,
    StartRun,
    StopRun,
    TakeOverFence,
    TakeSnapshot,
    UninstallCluster,
)
from fencepost_operator.api import CassandraConnection, Pipeline, Reason, ReconcileConfig
from fencepost_operator.desired import names
from fencepost_operator.desired.connections import cassandra_connection
from fencepost_operator.errors import Conflict, Denied, FencepostError, Rejected
from fencepost_operator.ports import Ports


@dataclass(frozen=True, slots=True)
class Executor:
    """Executes actions. Raises PortError and Conflict as the ports do."""

    ports: Ports
    config: ReconcileConfig

    async def execute(self, pipeline: Pipeline, action: Action) -> None:  # noqa: C901, PLR0912 - a table
        """Do it; done twice, it is done once. Raises NotLeading, having done nothing, without the lease."""
        key, ports = pipeline.key, self.ports
        ports.may_write()
        match action:
            case AddFinalizer():
                await ports.pipelines.set_finalizer(pipeline, present=True)
            case RemoveFinalizer():
                await ports.pipelines.set_finalizer(pipeline, present=False)
            case InstallCluster(values=values):
                await ports.releases.install(key, values)
            case RestoreCluster():
                await ports.releases.restore(key)
            case UninstallCluster():
                await ports.releases.uninstall(key)
            case PruneCluster(objects=objects):
                await ports.releases.prune(key, objects)
            case StartRun(job=job, config_map=config_map, revision=revision, keep=keep):
                await ports.revisions.store(key, revision, keep)
                await ports.runs.start(key, job, config_map)
            case KeepRevision(revision=revision, keep=keep):
                await ports.revisions.store(key, revision, keep)
            case StopRun(name=name) | DeleteRun(name=name):
                await ports.runs.stop(key, name)
            case CreateFence(owner=owner):
                await ports.fences.create(self._connection(pipeline), self._row(pipeline), owner)
            case TakeOverFence(epoch=epoch, version=version, owner=owner):
                await ports.fences.take_over(self._connection(pipeline), self._row(pipeline), epoch, version, owner)
            case AcceptLoss(committed_ms=committed_ms, loss=loss, by=by, choice=choice):
                await ports.fences.accept_loss(
                    self._connection(pipeline), self._row(pipeline), committed_ms, loss, by=by, choice=choice
                )
            case TakeSnapshot() | DropSnapshots():
                await self._keep_snapshots(pipeline, action)
            case StartPurge(job=job, config_map=config_map):
                await ports.purges.start(key, job, config_map)
            case RewindFence():
                await self._rewind(pipeline, action)
            case ReleaseFence(epoch=epoch, version=version):
                await ports.fences.release(self._connection(pipeline), self._row(pipeline), epoch, version)
            case _:
                assert_never(action)

    async def _rewind(self, pipeline: Pipeline, action: RewindFence) -> None:
        await self.ports.fences.rewind(
            self._connection(pipeline),
            self._row(pipeline),
            epoch=action.epoch,
            version=action.version,
            offsets=action.offsets,
            leader_epochs=action.leader_epochs,
            growth_barrier=action.growth_barrier,
            keeps_output=action.keeps_output,
        )

    async def _keep_snapshots(self, pipeline: Pipeline, action: TakeSnapshot | DropSnapshots) -> None:
        connection, row, fences = self._connection(pipeline), self._row(pipeline), self.ports.fences
        match action:
            case TakeSnapshot(id=found, trigger=trigger, name=name, owner=owner):
                await fences.take_snapshot(connection, row, owner=owner, snapshot=found, trigger=trigger, name=name)
            case DropSnapshots(ids=ids):
                await fences.drop_snapshots(connection, row, ids)
            case _:
                assert_never(action)

    def _row(self, pipeline: Pipeline) -> str:
        return names.fence_key(self.config.scope, pipeline.key)

    @staticmethod
    def _connection(pipeline: Pipeline) -> CassandraConnection:
        if pipeline.checkpoint is None:
            raise Rejected("the spec is invalid, so the checkpoint cannot be found", remedy="correct the spec")
        return cassandra_connection(pipeline.key, pipeline.checkpoint)


def reason_of_failure(action: Action, error: FencepostError) -> Reason:
    """Return the word for an action that failed."""
    match action:
        case AddFinalizer() | RemoveFinalizer() | KeepRevision():
            return Reason.UPDATE_FAILED
        case InstallCluster() | RestoreCluster():
            return Reason.INSTALL_FAILED
        case UninstallCluster() | PruneCluster():
            return Reason.UNINSTALL_FAILED
        case StartRun() | StartPurge():
            return Reason.START_FAILED
        case StopRun() | DeleteRun():
            return Reason.STOP_FAILED
        case (
            CreateFence()
            | TakeOverFence()
            | RewindFence()
            | ReleaseFence()
            | AcceptLoss()
            | TakeSnapshot()
            | DropSnapshots()
        ):
            return _reason_of_checkpoint(error)
        case _:
            assert_never(action)


def _reason_of_checkpoint(error: FencepostError) -> Reason:
    if isinstance(error, Denied):
        return Reason.CASSANDRA_CREDENTIALS_REJECTED
    return Reason.CASSANDRA_REJECTED if isinstance(error, (Rejected, Conflict)) else Reason.CASSANDRA_UNREACHABLE
