"""The end of a pipeline: stop the run, take the cluster down, settle the fence, let go."""

from __future__ import annotations

from dataclasses import replace

from fencepost.fence import FenceRow
from fencepost_operator.actions import DeleteFence, Fence, RemoveFinalizer, StopRun, UninstallCluster
from fencepost_operator.api import DeletionPolicy, Reason, Spec, State, Status
from fencepost_operator.observation import Known, Run, Unknown
from fencepost_operator.rules.situation import Ruling, Situation, waiting
from fencepost_operator.rules.tracking import patience
from fencepost_operator.rules.vitals import is_over


def is_deleted(situation: Situation) -> Ruling | None:
    """A deleted pipeline goes through its cleanup, whatever else is wrong with it."""
    if situation.pipeline.deleting_since is None:
        return None
    if not situation.pipeline.has_finalizer:
        message, again = "Cleanup is done", situation.policy.resync
        return waiting(situation, Reason.RELEASED, message, state=State.DELETING, again=again)
    for step in (_stop_runs, _uninstall, _settle_fence):
        if ruling := step(situation):
            return replace(ruling, state=State.DELETING)
    return waiting(
        situation,
        Reason.RELEASED,
        "Nothing of the pipeline is left" + _what_stays(situation),
        state=State.DELETING,
        action=RemoveFinalizer(),
    )


def _stop_runs(situation: Situation) -> Ruling | None:
    """Ask every driver to stop, and wait for them as long as they may take."""
    observation = situation.observation
    if isinstance(observation.runs, Unknown):
        message = f"The driver's Jobs cannot be listed: {observation.runs.message}"
        return waiting(situation, Reason.KUBERNETES_UNREACHABLE, message, remedy=observation.runs.remedy, warning=True)
    living = [run for run in situation.runs if not is_over(run) and not run.orphaned]
    unasked = [run for run in living if not run.deleting]
    if unasked:
        return waiting(
            situation,
            Reason.STOPPING,
            f"Stopping {unasked[0].name}: its batch is finished and committed first",
            action=StopRun(name=unasked[0].name),
            status=_asked(situation, unasked[0]),
        )
    run = situation.living_run
    if run is None and not (living and _may_wait(situation)):
        return None
    name = run.name if run else living[0].name
    return waiting(situation, Reason.STOPPING, f"Waiting for {name} to stop")


def _may_wait(situation: Situation) -> bool:
    """Return whether a driver that was asked to stop still has time to."""
    run, since = situation.run, situation.pipeline.deleting_since
    asked = (run.stop_requested_at if run else None) or since or situation.now
    return situation.now - asked <= patience(situation.pipeline, situation.policy)


def _asked(situation: Situation, target: Run) -> Status:
    run = situation.run
    if run is None or run.name != target.name:
        return situation.status
    return replace(situation.status, run=replace(run, stop_requested_at=run.stop_requested_at or situation.now))


def _uninstall(situation: Situation) -> Ruling | None:
    release = situation.observation.release
    if isinstance(release, Unknown):
        message = f"The Helm release cannot be looked up: {release.message}"
        return waiting(situation, Reason.KUBERNETES_UNREACHABLE, message, remedy=release.remedy, warning=True)
    if release.value is None:
        return None
    return waiting(situation, Reason.DELETING, "Taking the Spark cluster down", action=UninstallCluster())


def _settle_fence(situation: Situation) -> Ruling | None:
    """Fence a driver that may live on, and drop the row when the pipeline's policy says so.

    Retain needs no Cassandra as long as the driver is dead; a successor fences before it starts in any case.
    """
    drop = situation.pipeline.deletion_policy is DeletionPolicy.DELETE
    if not drop and situation.doubtful_run is None:
        return None
    if not isinstance(situation.pipeline.spec, Spec) or _is_forsaken(situation):
        return None
    fence = situation.observation.fence
    if isinstance(fence, Unknown):
        return _wait_for_checkpoint(situation, fence)
    row = fence.value
    if row is None or row.owner.partition("/")[0] != situation.policy.cluster_uid:
        return None
    return _end_epoch(situation, row) or (_drop(situation, row) if drop else None)


def _end_epoch(situation: Situation, row: FenceRow) -> Ruling | None:
    run = situation.doubtful_run
    if run is None or row.epoch != run.epoch:
        return None
    return waiting(
        situation,
        Reason.FENCED,
        f"{run.name} is not proven dead: its epoch {row.epoch} is ended so that it commits no more",
        action=Fence(epoch=row.epoch, version=row.version, owner=situation.owner),
    )


def _drop(situation: Situation, row: FenceRow) -> Ruling:
    return waiting(
        situation,
        Reason.DELETING,
        "Dropping the checkpoint (deletionPolicy: Delete)",
        action=DeleteFence(epoch=row.epoch, version=row.version),
    )


def _wait_for_checkpoint(situation: Situation, fence: Unknown) -> Ruling:
    if situation.doubtful_run is not None:
        why = "the driver is not proven dead and must be fenced"
        remedy = "make Cassandra reachable, or remove the finalizer when you know that the driver is dead"
    else:
        why, remedy = "deletionPolicy is Delete", "make Cassandra reachable, or set deletionPolicy to Retain"
    return waiting(
        situation,
        Reason.CHECKPOINT_UNREACHABLE,
        f"The checkpoint cannot be reached, and {why}: {fence.message}",
        remedy=remedy,
        warning=True,
        again=situation.policy.resync,
    )


def _is_forsaken(situation: Situation) -> bool:
    """Return whether the credentials went first, as when a whole namespace is deleted: nobody can wait for that."""
    references, since = situation.observation.references, situation.pipeline.deleting_since
    secret = situation.spec.checkpoint.credentials_secret
    if secret is None or since is None or not isinstance(references, Known):
        return False
    gone = references.value.hashes.get(f"Secret/{secret}", "") is None
    return gone and (situation.now - since).total_seconds() > situation.policy.forsaken_grace


def _what_stays(situation: Situation) -> str:
    if situation.status.epoch is None:
        return ""
    if situation.pipeline.deletion_policy is DeletionPolicy.RETAIN:
        return "; its checkpoint is kept (deletionPolicy: Retain)"
    return "; its checkpoint is kept, for nobody has its credentials any more" if _forsaken(situation) else ""


def _forsaken(situation: Situation) -> bool:
    return isinstance(situation.pipeline.spec, Spec) and _is_forsaken(situation)
