"""Deletion of a pipeline: stop the run, uninstall the cluster, clean up the fence, remove the finalizer."""

from __future__ import annotations

from dataclasses import replace

from fencepost.fence import FenceRow
from fencepost_operator.actions import ReleaseFence, RemoveFinalizer, StopRun, TakeOverFence, UninstallCluster
from fencepost_operator.api import ABANDON_ANNOTATION, DeletionPolicy, Reason, Spec, State, Status, asks_to_abandon
from fencepost_operator.decision.checkpoint_reasons import checkpoint_reasons, database_name
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.outcome import KUBERNETES_REASONS, Outcome, reconciling, unless_busy
from fencepost_operator.decision.run.liveness import has_ended, stop_timeout
from fencepost_operator.desired.identity.hashes import checkpoint_secrets
from fencepost_operator.desired.names import fence_owner
from fencepost_operator.observation import Known, Run, Unknown, UnknownReason


def is_deleted(context: Context) -> Outcome | None:
    """Clean up a deleted pipeline, whatever else is wrong with it."""
    if context.pipeline.deleting_since is None:
        return None
    if not context.pipeline.has_finalizer:
        message, again = "Cleanup is done and the finalizer is removed", context.config.resync_interval
        return reconciling(context, Reason.RELEASED, message, state=State.DELETING, requeue_after=again)
    for step in (_stop_runs, _uninstall, _clean_up_fence):
        if outcome := step(context):
            return replace(outcome, state=State.DELETING)
    return reconciling(
        context,
        Reason.RELEASED,
        "Cleanup is done" + _what_is_kept(context),
        state=State.DELETING,
        action=RemoveFinalizer(),
        remedy=_how_to_delete_it_later(context),
        warning=_keeps_what_was_to_go(context),
    )


def _stop_runs(context: Context) -> Outcome | None:
    """Ask every driver to stop, and wait until each has stopped or its grace period is over."""
    observation = context.observation
    if isinstance(observation.runs, Unknown):
        message = f"The driver's Jobs cannot be listed: {observation.runs.message}"
        reason = KUBERNETES_REASONS[observation.runs.reason]
        return reconciling(context, reason, message, remedy=observation.runs.remedy, warning=True)
    living = [run for run in context.runs if not has_ended(run) and not run.orphaned]
    not_asked = [run for run in living if not run.deleting]
    if not_asked:
        return reconciling(
            context,
            Reason.STOPPING,
            f"Stopping {not_asked[0].name}; it finishes and commits its batch first",
            action=StopRun(name=not_asked[0].name),
            status=_asked(context, not_asked[0]),
        )
    waited_for = [run.name for run in living if _may_still_stop(context, run)]
    if run := context.active_run:
        waited_for.insert(0, run.name)
    return reconciling(context, Reason.STOPPING, f"Waiting for {waited_for[0]} to stop") if waited_for else None


def _may_still_stop(context: Context, job: Run) -> bool:
    """Return whether a driver that was asked to stop is still within its grace period."""
    run, observation = context.run, context.observation
    requested = observation.stop_measured_since if run is not None and run.name == job.name else None
    since = requested or observation.deletion_measured_since or context.now
    return context.now - since <= stop_timeout(job, context.config.stop_margin)


def _asked(context: Context, target: Run) -> Status:
    run = context.run
    if run is None or run.name != target.name:
        return context.status
    return replace(context.status, run=replace(run, stop_requested_at=run.stop_requested_at or context.now))


def _uninstall(context: Context) -> Outcome | None:
    release = context.observation.release
    if isinstance(release, Unknown):
        message = f"The Helm release cannot be read: {release.message}"
        reason = KUBERNETES_REASONS[release.reason]
        return reconciling(context, reason, message, remedy=release.remedy, warning=True)
    if release.value is None:
        return None
    return reconciling(context, Reason.DELETING, "Uninstalling the Spark cluster", action=UninstallCluster())


def _clean_up_fence(context: Context) -> Outcome | None:
    """Fence a driver that may still be alive, and release the row when deletionPolicy is Delete.

    With Retain and a dead driver, Cassandra is not needed: a successor takes the fence over before it starts.  A row
    that is given up stays as it is; a driver that may still live continues with it, which no successor suffers from.
    Where neither a kept spec nor an invalid one says where the row is, the deletion waits.
    """
    release = context.pipeline.deletion_policy is DeletionPolicy.DELETE
    if (not release and context.unconfirmed_run is None) or _is_given_up(context):
        return None
    if context.pipeline.checkpoint is None:
        return _wait_for_spec(context, "The spec is invalid, so it is not known where the checkpoint is")
    fence = context.observation.fence
    return _wait_for_checkpoint(context, fence) if isinstance(fence, Unknown) else _end(context, fence.value)


def _end(context: Context, row: FenceRow | None) -> Outcome | None:
    """End the epoch of a driver that may still be alive, then release the row where the policy says so."""
    if row is None and _may_be_elsewhere(context):
        return _wait_for_spec(context, "The spec is invalid, and the checkpoint is not where it says")
    if row is None or row.owner.partition("/")[0] != context.config.cluster_uid:
        return None
    if row.owner == fence_owner(context.config.cluster_uid, ""):
        return None  # it was moved here, and no object has taken it: another Kubernetes cluster takes it again
    release = context.pipeline.deletion_policy is DeletionPolicy.DELETE
    return _end_epoch(context, row) or (_release(context, row) if release else None)


def _end_epoch(context: Context, row: FenceRow) -> Outcome | None:
    run = context.unconfirmed_run
    if run is None or row.epoch != run.epoch:
        return None
    return reconciling(
        context,
        Reason.FENCED,
        f"{run.name} is not proven dead: epoch {row.epoch} ends, and it cannot commit any more",
        action=TakeOverFence(epoch=row.epoch, version=None, owner=context.owner),
    )


def _release(context: Context, row: FenceRow) -> Outcome:
    return reconciling(
        context,
        Reason.DELETING,
        "Deleting the committed offsets (deletionPolicy: Delete); the epoch is kept",
        action=ReleaseFence(epoch=row.epoch, version=row.version),
    )


def _may_be_elsewhere(context: Context) -> bool:
    """Return whether an invalid spec may name another Cassandra than a driver that may live commits to."""
    run = context.unconfirmed_run
    if isinstance(context.pipeline.spec, Spec) or run is None:
        return False
    return context.status.epoch is None or context.status.epoch <= run.epoch  # not fenced, nor released after that


def _wait_for_spec(context: Context, what: str) -> Outcome | None:
    """Wait for a valid spec where the row's place is not known; a pipeline that never had an epoch has no row."""
    if context.status.epoch is None and context.run is None:
        return None
    lost = f" ({context.pipeline.irretrievable.rstrip('.')})" if context.pipeline.irretrievable else ""
    return reconciling(
        context,
        Reason.INVALID_SPEC,
        f"{what}{lost}, and {_why_needed(context)}",
        remedy=f"correct the spec, which can be changed during a deletion; or {_how_to_give_up(context)}",
        warning=True,
        requeue_after=context.config.resync_interval,
    )


def _why_needed(context: Context) -> str:
    unproven = context.unconfirmed_run is not None
    return "the driver is not proven dead and must be fenced" if unproven else "deletionPolicy is Delete"


def _how_to_give_up(context: Context) -> str:
    key = context.pipeline.key
    return (
        "give the checkpoint up: kubectl annotate "
        f"streamingpipeline {key.name} --namespace {key.namespace} --overwrite {ABANDON_ANNOTATION}=true"
    )


def _wait_for_checkpoint(context: Context, fence: Unknown) -> Outcome:
    remedy = (
        f"restore access to {database_name(context.pipeline)}; or, if it is gone for good, {_how_to_give_up(context)}"
    )
    if gone := _missing_credentials(context):
        remedy = (
            f"create {gone} again; {context.config.credentials_timeout:.0f} s after the deletion the pipeline is "
            "released without it, and its checkpoint stays"
        )
    elif context.observation.namespace_ends == Known(True):
        seconds = context.config.abandon_timeout
        remedy += f"; as the namespace is being deleted, the operator does so after {seconds:.0f} s without an answer"
    return reconciling(
        context,
        unless_busy(checkpoint_reasons(context.pipeline)[UnknownReason.UNREACHABLE], fence),
        f"The checkpoint cannot be reached, and {_why_needed(context)}: {fence.message}",
        remedy=remedy,
        warning=True,
        requeue_after=context.config.resync_interval,
    )


def _is_given_up(context: Context) -> bool:
    """Return whether the row stays as it is: a user asks for that, or its credentials or Cassandra are deleted too."""
    asked = asks_to_abandon(context.pipeline.annotations.get(ABANDON_ANNOTATION))
    return asked or _credentials_are_deleted(context) or _cassandra_went_with_the_namespace(context)


def _cassandra_went_with_the_namespace(context: Context) -> bool:
    """Return whether Cassandra has not answered for long in a namespace that is being deleted with all that is in it.

    No pipeline can be created there any more, and Kubernetes ends every pod.
    """
    since = context.status.fence_unreachable_since
    if since is None or context.observation.namespace_ends != Known(True):
        return False
    return (context.now - since).total_seconds() > context.config.abandon_timeout


def _credentials_are_deleted(context: Context) -> bool:
    """Return whether credentials were deleted before the pipeline, as when a whole namespace is deleted."""
    since = context.observation.deletion_measured_since
    late = since is not None and (context.now - since).total_seconds() > context.config.credentials_timeout
    return late and bool(_missing_credentials(context))


def _missing_credentials(context: Context) -> str:
    """Return the Secret with credentials for the checkpoint that does not exist, '' where all do or it is not known."""
    checkpoint, references = context.pipeline.checkpoint, context.observation.references
    if checkpoint is None or not isinstance(references, Known):
        return ""
    return next((name for name in checkpoint_secrets(checkpoint) if references.value.hashes.get(name, "") is None), "")


def _keeps_what_was_to_go(context: Context) -> bool:
    """Return whether the checkpoint stays although deletionPolicy is Delete, and no user asked for that."""
    asked = asks_to_abandon(context.pipeline.annotations.get(ABANDON_ANNOTATION))
    release = context.pipeline.deletion_policy is DeletionPolicy.DELETE and context.status.epoch is not None
    return release and not asked and _credentials_are_deleted(context)


def _how_to_delete_it_later(context: Context) -> str:
    if not _keeps_what_was_to_go(context):
        return ""
    return "to delete it, apply the pipeline, suspended, with its Secret, and delete the pipeline before the Secret"


def _what_is_kept(context: Context) -> str:
    if context.status.epoch is None:
        return ""
    if context.pipeline.deletion_policy is DeletionPolicy.RETAIN and context.unconfirmed_run is None:
        return "; its checkpoint is kept (deletionPolicy: Retain)"
    if not _is_given_up(context):
        kept = context.pipeline.deletion_policy is DeletionPolicy.RETAIN
        return "; its checkpoint is kept (deletionPolicy: Retain)" if kept else ""
    if _credentials_are_deleted(context):
        return "; its checkpoint is kept, because its credentials are deleted"
    return "; its checkpoint is given up and stays as it is, wherever its Cassandra is"
