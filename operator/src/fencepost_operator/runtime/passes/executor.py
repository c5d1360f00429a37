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
    TryCode,
    UninstallCluster,
)
from fencepost_operator.api import FenceConnection, Pipeline, Reason, ReconcileConfig
from fencepost_operator.decision.checkpoint_reasons import checkpoint_reasons
from fencepost_operator.desired.connections import fence_place
from fencepost_operator.errors import Conflict, Denied, FencepostError, Rejected
from fencepost_operator.observation import UnknownReason
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
            case InstallCluster(values=values, keep=generation):
                await ports.releases.install(key, values, keep=generation)
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
            case TryCode(trial=trial):
                await ports.trials.create(trial)
            case StopRun(name=name) | DeleteRun(name=name):
                await ports.runs.stop(key, name)
            case CreateFence(owner=owner):
                await ports.fences.create(*self._fence(pipeline), owner)
            case TakeOverFence(epoch=epoch, version=version, owner=owner):
                await ports.fences.take_over(*self._fence(pipeline), epoch, version, owner)
            case AcceptLoss(committed_ms=committed_ms, loss=loss, by=by, choice=choice):
                await ports.fences.accept_loss(*self._fence(pipeline), committed_ms, loss, by=by, choice=choice)
            case TakeSnapshot(id=found, trigger=trigger, name=name, owner=owner, of=of):
                await ports.fences.take_snapshot(
                    *self._fence(pipeline), owner=owner, snapshot=found, trigger=trigger, name=name, of=of
                )
            case DropSnapshots(ids=ids):
                await ports.fences.drop_snapshots(*self._fence(pipeline), ids)
            case StartPurge(job=job, config_map=config_map):
                await ports.purges.start(key, job, config_map)
            case RewindFence():
                await ports.fences.rewind(
                    *self._fence(pipeline),
                    epoch=action.epoch,
                    version=action.version,
                    offsets=action.offsets,
                    leader_epochs=action.leader_epochs,
                    growth_barrier=action.growth_barrier,
                    keeps_output=action.keeps_output,
                    snapshot=action.snapshot,
                )
            case ReleaseFence(epoch=epoch, version=version):
                await ports.fences.release(*self._fence(pipeline), epoch, version)
            case _:
                assert_never(action)

    def _fence(self, pipeline: Pipeline) -> tuple[FenceConnection, str]:
        if pipeline.checkpoint is None:
            raise Rejected("the spec is invalid, so the checkpoint cannot be found", remedy="correct the spec")
        return fence_place(pipeline.key, pipeline.checkpoint, self.config.scope)


def reason_of_failure(pipeline: Pipeline, action: Action, error: FencepostError) -> Reason:
    """Return the word for an action on a pipeline that failed."""
    match action:
        case AddFinalizer() | RemoveFinalizer() | KeepRevision():
            return Reason.UPDATE_FAILED
        case InstallCluster() | RestoreCluster():
            return Reason.INSTALL_FAILED
        case UninstallCluster() | PruneCluster():
            return Reason.UNINSTALL_FAILED
        case StartRun() | StartPurge() | TryCode():
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
            return _reason_of_checkpoint(pipeline, error)
        case _:
            assert_never(action)


def _reason_of_checkpoint(pipeline: Pipeline, error: FencepostError) -> Reason:
    reasons = checkpoint_reasons(pipeline)
    if isinstance(error, Denied):
        return reasons[UnknownReason.DENIED]
    is_refused = isinstance(error, (Rejected, Conflict))
    return reasons[UnknownReason.REJECTED if is_refused else UnknownReason.UNREACHABLE]
