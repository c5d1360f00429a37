"""The next run while it waits beside the one that works: which Job it is, and what the status has of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from fencepost.fence import FenceRow
from fencepost_operator.api import HandoffStatus, RunStatus, Status
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.run.liveness import has_ended
from fencepost_operator.observation import Known, Run


def waiting_run(context: Context) -> Run | None:
    """Return the Job whose epoch has not begun, whether or not its driver lives; None without one.

    One that is not recorded counts once it is old: facts of different moments may show a new run beside an old row.
    """
    newest, fence, handoff = (
        context.runs[-1] if context.runs else None,
        context.observation.fence,
        context.status.handoff,
    )
    row = fence.value if isinstance(fence, Known) else None
    if newest is None or newest.orphaned or newest == context.job:
        return None
    if handoff is not None and handoff.name == newest.name:
        return newest if row is None or newest.epoch > row.epoch else None
    is_old = context.now - newest.created_at > timedelta(seconds=context.config.stale_run_timeout)
    return newest if is_old and row is not None and newest.epoch > row.epoch else None


def standby_of(status: Status) -> HandoffStatus | None:
    """Return the run that waits until the one that works fails; None without one, and once it is withdrawn."""
    handoff = status.handoff
    return handoff if handoff is not None and handoff.standby and not handoff.withdrawn else None


def job_named(runs: Collection[Run], name: str) -> Run | None:
    """Return the Job of that name."""
    return next((job for job in runs if job.name == name), None)


def is_warm(job: Run) -> bool:
    """Return whether a run that awaits its epoch waits for nothing else."""
    return not has_ended(job) and not job.deleting and job.pod is not None and job.pod.ready


def without_handoff(status: Status) -> Status:
    """Return the status with a next run that is withdrawn, and with the cluster that the run works on."""
    handoff = status.handoff
    if handoff is None or handoff.withdrawn:
        return status
    cluster = status.cluster if handoff.standby else handoff.cluster
    return replace(status, handoff=replace(handoff, withdrawn=True), cluster=cluster)


def with_taken_over(before: Status, run: RunStatus) -> Status:
    """Return the status with the run that works now; what a standby leads to is what a start would have recorded."""
    standby, replaced = before.handoff, before.run
    if standby is None or not standby.standby or replaced is None or not replaced.epoch < run.epoch == standby.epoch:
        return before
    failure = before.failure
    has_failed = failure is not None and failure.epoch == replaced.epoch
    return replace(before, cluster=standby.cluster or before.cluster, restarts=before.restarts + has_failed)


def with_handoff(status: Status, runs: Collection[Run]) -> Status:
    """Return the status without a handoff that is over: its epoch has a run, or its Job is deleted as it should be."""
    run, handoff = status.run, status.handoff
    if handoff is None:
        return status
    has_begun = run is not None and run.epoch >= handoff.epoch
    is_gone = handoff.withdrawn and all(job.name != handoff.name for job in runs)
    return replace(status, handoff=None) if has_begun or is_gone else status


def takes_over(handoff: HandoffStatus, job: Run, row: FenceRow) -> bool:
    """Return whether a run that waited has the epoch that began, or will claim it.

    It refuses one that begins with a batch of other code; a standby's is that of the run before.
    """
    if handoff.name != job.name:
        return False
    if handoff.standby:
        return row.driver is not None or not has_ended(job)
    return row.driver is not None or not (row.written_until or has_ended(job))
