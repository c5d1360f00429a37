"""While a run is active: is it the run, on the cluster, that the spec asks for."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.actions import InstallCluster, RestoreCluster
from fencepost_operator.api import Reason, RunStatus, State
from fencepost_operator.decision.cluster.readiness import (
    damage,
    has_lost_its_master,
    is_up_to_date,
    target_cluster,
    values,
)
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.outcome import Outcome, reconciling
from fencepost_operator.decision.rules.cluster_removal import cluster_is_superfluous
from fencepost_operator.decision.rules.health import has_started, topics_are_missing
from fencepost_operator.decision.run.stop import stop_run
from fencepost_operator.decision.specs.rollout import was_ready
from fencepost_operator.decision.wording import listed, with_remedy
from fencepost_operator.desired.identity.hashes import is_same_spec

AHEAD: Final = "ahead of its turn"
"""Said of a restart that does not wait for a permit."""


def run_is_being_stopped(context: RunContext) -> Outcome | None:
    """Wait for a run that was asked to stop, for whatever reason it was asked."""
    run = context.active_run
    if run is None or run.stop_requested_at is None:
        return None
    changed = run.spec_hash != context.desired.run
    state, why = (State.UPGRADING, "Upgrading") if changed else (State.RESTARTING, "Restarting")
    return stop_run(context, run, why=why, reason=Reason.STOPPING, state=state)


def run_is_outdated(context: RunContext) -> Outcome | None:
    """Stop a run of another spec gracefully, unless the new one could not start at all.

    A healthy one waits until few enough other pipelines are restarted at the same time: see `restart_is_queued`.  It
    does not wait where its cluster is to be scaled or repaired, and that cannot be had but with the new configuration.
    """
    run = context.active_run
    if run is None or run.spec_hash == context.desired.run:
        return None
    if outcome := topics_are_missing(context):
        return outcome
    healthy = has_started(context, run)
    urgent = "" if context.observation.may_restart else _needs_new_cluster(context)
    if healthy and not context.observation.may_restart and not urgent:
        return None
    ahead = f", {AHEAD}: {urgent}" if healthy and urgent else ""
    why = f"Upgrading to {cause(run, context)}{ahead}{_not_beside(context)}"
    found = stop_run(context, run, why=why, reason=Reason.UPGRADING, state=State.UPGRADING)
    if not healthy:
        return found
    return replace(found, status=replace(found.status, planned_restart_since=restarts_since(context)))


def _not_beside(context: RunContext) -> str:
    """Return why the next run does not start beside this one, '' where it was not to."""
    handoff = context.status.handoff
    return f" ({handoff.given_up})" if handoff is not None and handoff.given_up else ""


def restarts_since(context: RunContext) -> datetime:
    """Return since when the pipeline restarts; what an expired permit began is over, and a later restart is counted."""
    since, timeout = context.status.planned_restart_since, timedelta(seconds=context.config.restart_timeout)
    is_valid = since is not None and timedelta() <= context.now - since < timeout
    return since if since is not None and is_valid else context.now


def _needs_new_cluster(context: RunContext) -> str:
    """Return what the live cluster lacks that would bring the new configuration into it, '' where it lacks nothing.

    A cluster of the same configuration is scaled and repaired in place: see `cluster_has_drifted`.
    """
    run, recorded, workers = context.active_run, context.status.cluster, context.spec.cluster.workers
    if run is not None and _has_no_cluster(run) and workers:
        return f"scaling from 0 to {workers} {'worker' if workers == 1 else 'workers'} needs a Spark cluster"
    if recorded is None or recorded.config_hash == context.desired.cluster:
        return ""
    lacks = recorded.workers < workers if context.spec.cluster.autoscale else recorded.workers != workers
    if workers and lacks:
        return f"scaling from {recorded.workers} to {workers} workers needs the new Spark cluster"
    return "" if is_up_to_date(context, recorded) else "repairing the Spark cluster needs the new one"


def _has_no_cluster(run: RunStatus) -> bool:
    return not run.cluster_generation


def cause(run: RunStatus, context: RunContext) -> str:
    """Return what the next run is for: the user's change, or the operator's."""
    if is_same_spec(run.spec_hash, context.desired.run):
        return "the operator's new chart of the Spark cluster"
    return "the new spec"


def restart_is_queued(context: RunContext) -> Outcome | None:
    """Let a healthy run continue until it is this pipeline's turn to be restarted.

    The pipeline stays Ready where its spec is the same: something that it names has changed, or the operator has.
    """
    run = context.active_run
    if run is None or run.spec_hash == context.desired.run:
        return None
    return Outcome(
        reason=Reason.RESTART_QUEUED,
        message=with_remedy(
            f"{run.name} continues, and its restart for {cause(run, context)} waits for its turn: the operator limits "
            "how many healthy pipelines restart at the same time",
            "wait; or raise maxConcurrentRestarts of the operator's chart",
        ),
        state=context.state,
        status=context.status,
        ready=was_ready(context),
        requeue_after=context.config.resync_interval,
    )


def run_is_finishing(context: RunContext) -> Outcome | None:
    """Wait for a run that only finishes the batch that its code began."""
    run, batch = context.active_run, context.finishes
    if run is None or batch is None:
        return None
    left = sum(end - context.row.offsets.get(key, end) for key, end in batch.until.items())
    return reconciling(
        context,
        Reason.UPGRADING,
        f"Upgrading: {run.name} finishes the batch of {left} records that revision {batch.revision} began; "
        "then the new spec takes effect",
        state=State.UPGRADING,
    )


def master_is_lost(context: RunContext) -> Outcome | None:
    """Move a run to a new Spark cluster when its master is gone, as after a drain, and no successor knows the run.

    Without its master no worker that is replaced gets ready, so the disruption budget lets no further one be evicted
    and the drain waits; and an executor that ends is the last one of its worker.
    """
    run, recorded = context.active_run, context.status.cluster
    if run is None or recorded is None or run.cluster_generation != recorded.generation:
        return None
    if not has_lost_its_master(context, recorded):
        return None
    why = "The Spark master was drained or deleted, and its successor does not know the run: moving to a new cluster"
    return stop_run(context, run, why=why, reason=Reason.DRAINED, state=State.RESTARTING)


def cluster_has_drifted(context: RunContext) -> Outcome | None:
    """Scale the workers and restore what was lost of the cluster, under the living driver."""
    run = context.active_run
    if run is not None and not context.spec.cluster.exists:
        return cluster_is_superfluous(context) if _has_no_cluster(run) else None
    recorded, target = context.status.cluster, target_cluster(context)
    if run is None or recorded is None or target is None or target.generation != recorded.generation:
        return None
    if is_up_to_date(context, target):
        return damage_is_repaired(context)
    resized, chosen = recorded.workers != target.workers, context.spec.cluster.autoscale is not None
    message = (
        f"Scaling from {recorded.workers} to {target.workers} workers" if resized else "Repairing the Spark cluster"
    )
    scaled = Reason.AUTOSCALED if chosen else Reason.SCALED
    found = reconciling(
        context,
        scaled if resized else Reason.PROVISIONING,
        message,
        action=InstallCluster(values=values(context, target)),
        status=replace(context.status, cluster=target),
    )
    # What the spec asks for is that the number follows the load: that it changes does not make the pipeline unready.
    # Nor does a release that a standby which failed has left behind.
    is_well = chosen if resized else context.status.standby is not None
    return replace(found, ready=was_ready(context)) if is_well else found


def damage_is_repaired(context: RunContext) -> Outcome | None:
    """Restore objects of the cluster that were deleted or changed: no run reaches a master without its Service."""
    found = damage(context)
    if not found:
        return None
    return reconciling(
        context,
        Reason.CLUSTER_CHANGED,
        f"Restoring the Spark cluster: {listed(found)}",
        action=RestoreCluster(damage=found),
        warning=True,
    )
