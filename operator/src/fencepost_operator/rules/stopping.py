"""Asking a run to stop, and suspension, which is that and nothing after it."""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.actions import Fence, StopRun, UninstallCluster
from fencepost_operator.api import Reason, RunStatus, State
from fencepost_operator.observation import Known, Unknown
from fencepost_operator.rules.situation import Ruling, Situation, waiting


def stop(situation: Situation, run: RunStatus, *, why: str, reason: Reason, state: State) -> Ruling:
    """Ask a living run to finish its batch, commit and end; recorded before it is asked, asked again after a crash."""
    job = situation.job
    asked = run.stop_requested_at is not None
    if asked and (job is None or job.deleting):
        return waiting(situation, reason, f"{why}: waiting for {run.name} to stop", state=state)
    recorded = replace(run, stop_requested_at=run.stop_requested_at or situation.now)
    return waiting(
        situation,
        reason,
        f"{why}: stopping {run.name}; its batch is finished and committed first",
        state=state,
        action=StopRun(name=run.name),
        status=replace(situation.status, run=recorded),
    )


def is_suspended(situation: Situation) -> Ruling | None:
    """Suspended means that no driver and no cluster are there; the fence row stays."""
    if not situation.spec.suspend:
        return None
    run = situation.living_run
    if run is not None:
        return stop(situation, run, why="Suspending", reason=Reason.STOPPING, state=State.SUSPENDED)
    return _fence_doubtful(situation) or _uninstall(situation) or _rest(situation)


def _fence_doubtful(situation: Situation) -> Ruling | None:
    """A run that did not stop in time must at least not commit any more."""
    run, fence = situation.doubtful_run, situation.observation.fence
    if run is None:
        return None
    if isinstance(fence, Unknown):
        return waiting(
            situation,
            Reason.CHECKPOINT_UNREACHABLE,
            f"Suspending: {run.name} did not stop in time and the checkpoint cannot be reached to fence it: "
            f"{fence.message}",
            remedy=fence.remedy,
            state=State.SUSPENDED,
            warning=True,
            again=situation.policy.resync,
        )
    row = fence.value
    if row is None or row.epoch != run.epoch or row.driver is None:
        return None
    return waiting(
        situation,
        Reason.FENCED,
        f"Suspending: {run.name} did not stop in time and is fenced",
        state=State.SUSPENDED,
        action=Fence(epoch=row.epoch, version=row.version, owner=situation.owner),
    )


def _uninstall(situation: Situation) -> Ruling | None:
    release, cluster = situation.observation.release, situation.status.cluster
    if isinstance(release, Known) and release.value is None:
        return None
    message = "Suspending: taking the Spark cluster down"
    if isinstance(release, Unknown):
        return waiting(situation, Reason.KUBERNETES_UNREACHABLE, f"{message}: {release.message}", warning=True)
    forgotten = replace(cluster, config_hash="", ready_at=None, workers=0, ready_workers=0) if cluster else None
    return waiting(
        situation,
        Reason.STOPPING,
        message,
        state=State.SUSPENDED,
        action=UninstallCluster(),
        # No hash fits: the next cluster gets names of its own, and does not wait for this one's to be free.
        status=replace(situation.status, cluster=forgotten),
    )


def _rest(situation: Situation) -> Ruling:
    return Ruling(
        reason=Reason.SUSPENDED,
        message="Suspended: no driver and no cluster; set spec.suspend to false to go on from the last commit",
        state=State.SUSPENDED,
        status=situation.status,
        ready=True,
        again=situation.policy.resync,
    )
