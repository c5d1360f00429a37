"""Suspension: stop the run, fence it if it did not stop, uninstall the cluster. The fence row stays."""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.actions import TakeOverFence
from fencepost_operator.api import Reason, State
from fencepost_operator.decision.checkpoint_reasons import checkpoint_reasons
from fencepost_operator.decision.context import SpecContext
from fencepost_operator.decision.failover import cluster_of
from fencepost_operator.decision.outcome import Outcome, reconciling, unless_busy
from fencepost_operator.decision.rules.cluster_removal import forgotten, uninstall
from fencepost_operator.decision.run.stop import stop_run
from fencepost_operator.desired import labels, names
from fencepost_operator.observation import Known, Unknown, UnknownReason


def is_suspended(context: SpecContext) -> Outcome | None:
    """Bring a suspended pipeline to where neither a driver nor a cluster exists."""
    if not context.spec.suspend:
        return None
    run = context.active_run
    if run is not None:
        return stop_run(context, run, why="Suspending", reason=Reason.STOPPING, state=State.SUSPENDED)
    return _fence_unconfirmed_run(context) or _uninstall(context) or _cluster_is_left(context) or _suspended(context)


def _fence_unconfirmed_run(context: SpecContext) -> Outcome | None:
    """Make sure that a run that did not stop in time commits nothing more, nor claims its epoch later."""
    run, fence = context.unconfirmed_run, context.observation.fence
    if run is None:
        return None
    if isinstance(fence, Unknown):
        return reconciling(
            context,
            unless_busy(checkpoint_reasons(context.pipeline)[UnknownReason.UNREACHABLE], fence),
            f"Suspending: {run.name} did not stop in time and the checkpoint cannot be reached to fence it: "
            f"{fence.message}",
            remedy=fence.remedy,
            state=State.SUSPENDED,
            warning=True,
            requeue_after=context.config.resync_interval,
        )
    row = fence.value
    if row is None or row.epoch != run.epoch or cluster_of(row) != context.config.cluster_uid:
        return None
    return reconciling(
        context,
        Reason.FENCED,
        f"Suspending: {run.name} did not stop in time and is fenced",
        state=State.SUSPENDED,
        action=TakeOverFence(epoch=row.epoch, version=None, owner=context.owner),
    )


def _uninstall(context: SpecContext) -> Outcome | None:
    return uninstall(context, why="Suspending", reason=Reason.STOPPING, state=State.SUSPENDED)


def _cluster_is_left(context: SpecContext) -> Outcome | None:
    """Report a cluster without a release of ours; once its hash is forgotten, what we may delete is pruned."""
    cluster, key = context.observation.cluster, context.pipeline.key
    if not isinstance(cluster, Known) or cluster.value is None:
        return None
    return reconciling(
        context,
        Reason.STOPPING,
        f"Suspending: the Spark cluster {names.cluster_name(key.name, cluster.value.generation)} still exists",
        remedy="if it stays, something else installed it; run: kubectl delete statefulsets --namespace "
        f"{key.namespace} --selector {labels.PIPELINE}={key.name}",
        state=State.SUSPENDED,
        status=replace(context.status, cluster=forgotten(context.status.cluster)),
    )


def _suspended(context: SpecContext) -> Outcome:
    return Outcome(
        reason=Reason.SUSPENDED,
        message="Suspended: no driver and no cluster; set spec.suspend to false to continue from the last commit",
        state=State.SUSPENDED,
        status=replace(context.status, planned_restart_since=None),
        ready=True,
        requeue_after=context.config.resync_interval,
    )
