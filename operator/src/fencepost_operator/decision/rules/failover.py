"""Failover between Kubernetes clusters with one fence: wait while another one owns it, take over, hand over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from fencepost.fence import FenceRow
from fencepost_operator.actions import StopRun, TakeOverFence
from fencepost_operator.api import ADOPT_ANNOTATION, Reason, State
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.context import RunContext, SpecContext
from fencepost_operator.decision.failover import MISSED, asked_target, cluster_of, look_interval, may_take_over_at
from fencepost_operator.decision.outcome import Outcome, reconciling
from fencepost_operator.decision.rules.cluster_removal import uninstall
from fencepost_operator.decision.run.handoff import without_handoff
from fencepost_operator.decision.run.liveness import has_ended
from fencepost_operator.decision.run.stop import stop_run
from fencepost_operator.desired.names import fence_owner
from fencepost_operator.observation import Known, LifeSigns, Unknown


def another_cluster_owns(context: SpecContext, row: FenceRow, unfit: Outcome | None) -> Outcome:
    """Remove what this cluster has of a pipeline that runs in another one, and wait until that one is lost.

    `unfit` is why this cluster could not run it.
    """
    lasted = format_duration(context.spec.failover.take_over_after if context.spec.failover is not None else 0.0)
    return (
        _stop(context, row)
        or (_take_over(context, row, lasted) if unfit is None else None)
        or _remove(context, row)
        or unfit
        or _is_never_lost(context, row)
        or _is_too_soon(context, row, lasted)
        or _wait(context, row, lasted)
    )


def move_is_asked_for(context: RunContext) -> Outcome | None:
    """Hand the row over to a cluster that waits for it: after the last commit of the run, and in one update.

    Without a sign of life from a cluster that could run it the pipeline stays, also where its run has stopped.
    """
    target, spec = asked_target(context.pipeline, context.row), context.spec
    seen = context.observation.other_cluster
    signs = seen.value if isinstance(seen, Known) else None
    if target is None or spec.failover is None or signs is None or signs.cluster != target:
        return None
    if not signs.has_moved or signs.note or signs.silent_for >= MISSED:
        return None
    why, run = f"Moving to cluster {target}", context.active_run
    if run is not None:
        return stop_run(context, run, why=why, reason=Reason.STOPPING, state=State.STANDBY)
    row = context.row
    return reconciling(
        context,
        Reason.FENCED,
        f"{why}: epoch {row.epoch + 1} begins there, at the last commit",
        state=State.STANDBY,
        action=TakeOverFence(epoch=row.epoch, version=None, owner=fence_owner(target, "")),
    )


def _stop(context: SpecContext, row: FenceRow) -> Outcome | None:
    """Stop what runs here: its epoch is over, so it can commit no more."""
    why = f"Cluster {cluster_of(row)} has taken the pipeline over"
    if (run := context.active_run) is not None:
        return stop_run(context, run, why=why, reason=Reason.STOPPING, state=State.STANDBY)
    job = next((job for job in context.runs if not job.deleting and not has_ended(job)), None)
    if job is None:
        return None
    return reconciling(
        context,
        Reason.STOPPING,
        f"{why}: stopping {job.name}",
        state=State.STANDBY,
        action=StopRun(name=job.name),
        status=without_handoff(context.status),
    )


def _take_over(context: SpecContext, row: FenceRow, lasted: str) -> Outcome | None:
    """Take over from an owner that is silent, or to which the row was moved and that cannot run the pipeline.

    A commit meanwhile proves the contrary: the version is a condition.
    """
    failover, signs, there = context.spec.failover, _signs(context), cluster_of(row)
    if failover is None or signs is None:
        return None
    if signs.silent_for >= failover.take_over_after:
        if _waits_until(context) is not None:
            return None
        why = f"Cluster {there} has given no sign of life for {lasted}"
    elif row.owner == fence_owner(there, "") and signs.note:
        why = f"The pipeline was moved to cluster {there}, and cannot run there for the reason {signs.note}"
    else:
        return None
    return reconciling(
        context,
        Reason.FENCED,
        f"{why}: epoch {row.epoch + 1} begins here, and no driver of an older epoch can commit",
        state=State.PROVISIONING,
        action=TakeOverFence(epoch=row.epoch, version=row.version, owner=context.owner),
    )


def _signs(context: SpecContext) -> LifeSigns | None:
    seen = context.observation.other_cluster
    return seen.value if isinstance(seen, Known) else None


def _remove(context: SpecContext, row: FenceRow) -> Outcome | None:
    why = f"Cluster {cluster_of(row)} owns the checkpoint"
    return uninstall(context, why=why, reason=Reason.STOPPING, state=State.STANDBY)


def _is_never_lost(context: SpecContext, row: FenceRow) -> Outcome | None:
    """Leave the row to an owner that is not known to give signs: its silence proves no loss."""
    if _signs(context) is not None:
        return None
    there, seen = cluster_of(row), context.observation.other_cluster
    if isinstance(seen, Unknown) and seen.is_transient:
        return None
    why = f"cannot be read: {seen.message}" if isinstance(seen, Unknown) else "has not been seen in the last hour"
    return reconciling(
        context,
        Reason.FENCE_OWNED_ELSEWHERE,
        f"Cluster {there} owns the checkpoint {row.pipeline}, and a sign of life of its operator {why}; this one does "
        "not take over without a request",
        remedy="set spec.failover there too, and let its operator write to fence_progress; if that cluster is gone, "
        f"run: {_adopt(context, row)}",
        state=State.STANDBY,
        warning=True,
        requeue_after=look_interval(context.spec),
    )


def _waits_until(context: SpecContext) -> datetime | None:
    """Return until when this cluster does not take over again, None where it may now."""
    failover = context.spec.failover
    until = may_take_over_at(context.status, failover.take_over_after) if failover is not None else None
    return until if until is not None and until > context.now else None


def _is_too_soon(context: SpecContext, row: FenceRow, lasted: str) -> Outcome | None:
    """Say that nothing runs, and until when this cluster does not take over again."""
    failover, signs, until = context.spec.failover, _signs(context), _waits_until(context)
    if failover is None or signs is None or until is None or signs.silent_for < failover.take_over_after:
        return None
    taken = context.status.failover.takeovers if context.status.failover is not None else 0
    return reconciling(
        context,
        Reason.FENCE_OWNED_ELSEWHERE,
        f"Cluster {cluster_of(row)} has given no sign of life for {lasted}, and this one took over {taken} times in a "
        f"row: it does so again at {until:%H:%M:%S} UTC",
        remedy="see which of the two clusters loses the store at times, and suspend the pipeline there; to take over "
        f"now, run: {_adopt(context, row)}",
        state=State.STANDBY,
        warning=True,
        requeue_after=look_interval(context.spec),
    )


def _adopt(context: SpecContext, row: FenceRow) -> str:
    key = context.pipeline.key
    return (
        f"kubectl annotate streamingpipeline {key.name} --namespace {key.namespace} --overwrite "
        f"{ADOPT_ANNOTATION}={cluster_of(row)}@{row.epoch}"
    )


def _wait(context: SpecContext, row: FenceRow, lasted: str) -> Outcome:
    """Say whose the pipeline is, when that changes, and how to move it."""
    key, here, there = context.pipeline.key, context.config.cluster_uid, cluster_of(row)
    signs = _signs(context)
    why_not = signs.note if signs is not None else ""
    does = f"has the state {why_not}" if why_not else "runs the pipeline"
    return Outcome(
        reason=Reason.FAILOVER_STANDBY,
        message=f"Cluster {there} owns the checkpoint and {does}; this one takes over when that gives no "
        f"sign of life for {lasted}. To move the pipeline here, run in the other cluster: fencepost failover "
        f"{key.namespace}/{key.name} --to {here}",
        state=State.STANDBY,
        status=replace(without_handoff(context.status), planned_restart_since=None),
        ready=True,
        requeue_after=look_interval(context.spec),
    )
