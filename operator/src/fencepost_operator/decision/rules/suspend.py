"""Asking a run to stop, and suspension, which is that and nothing after it."""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.actions import StopRun, TakeOverFence, UninstallCluster
from fencepost_operator.api import Reason, RunStatus, State
from fencepost_operator.decision.context import Context, Outcome, waiting
from fencepost_operator.observation import Known, Unknown


def stop(context: Context, run: RunStatus, *, why: str, reason: Reason, state: State) -> Outcome:
    """Ask a living run to finish its batch, commit and end; recorded before it is asked, asked again after a crash."""
    job = context.job
    asked = run.stop_requested_at is not None
    if asked and (job is None or job.deleting):
        return waiting(context, reason, f"{why}: waiting for {run.name} to stop", state=state)
    recorded = replace(run, stop_requested_at=run.stop_requested_at or context.now)
    return waiting(
        context,
        reason,
        f"{why}: stopping {run.name}; its batch is finished and committed first",
        state=state,
        action=StopRun(name=run.name),
        status=replace(context.status, run=recorded),
    )


def is_suspended(context: Context) -> Outcome | None:
    """Suspended means that no driver and no cluster are there; the fence row stays."""
    if not context.spec.suspend:
        return None
    run = context.active_run
    if run is not None:
        return stop(context, run, why="Suspending", reason=Reason.STOPPING, state=State.SUSPENDED)
    return _fence_doubtful(context) or _uninstall(context) or _suspended(context)


def _fence_doubtful(context: Context) -> Outcome | None:
    """A run that did not stop in time must at least not commit any more."""
    run, fence = context.unconfirmed_run, context.observation.fence
    if run is None:
        return None
    if isinstance(fence, Unknown):
        return waiting(
            context,
            Reason.CASSANDRA_UNREACHABLE,
            f"Suspending: {run.name} did not stop in time and the checkpoint cannot be reached to fence it: "
            f"{fence.message}",
            remedy=fence.remedy,
            state=State.SUSPENDED,
            warning=True,
            requeue_after=context.config.resync,
        )
    row = fence.value
    if row is None or row.epoch != run.epoch or row.driver is None:
        return None
    return waiting(
        context,
        Reason.FENCED,
        f"Suspending: {run.name} did not stop in time and is fenced",
        state=State.SUSPENDED,
        action=TakeOverFence(epoch=row.epoch, version=row.version, owner=context.owner),
    )


def _uninstall(context: Context) -> Outcome | None:
    release, cluster = context.observation.release, context.status.cluster
    if isinstance(release, Known) and release.value is None:
        return None
    message = "Suspending: taking the Spark cluster down"
    if isinstance(release, Unknown):
        return waiting(context, Reason.KUBERNETES_UNREACHABLE, f"{message}: {release.message}", warning=True)
    forgotten = replace(cluster, config_hash="", ready_at=None, workers=0, ready_workers=0) if cluster else None
    return waiting(
        context,
        Reason.STOPPING,
        message,
        state=State.SUSPENDED,
        action=UninstallCluster(),
        # No hash fits: the next cluster gets names of its own, and does not wait for this one's to be free.
        status=replace(context.status, cluster=forgotten),
    )


def _suspended(context: Context) -> Outcome:
    return Outcome(
        reason=Reason.SUSPENDED,
        message="Suspended: no driver and no cluster; set spec.suspend to false to go on from the last commit",
        state=State.SUSPENDED,
        status=context.status,
        ready=True,
        requeue_after=context.config.resync,
    )
