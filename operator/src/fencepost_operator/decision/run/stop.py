"""How a living run is asked to stop, and what happens when it takes too long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fencepost_operator.actions import StopRun
from fencepost_operator.api import Reason, RunStatus, Spec, State
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.outcome import Outcome, reconciling


def stop_run(context: Context, run: RunStatus, *, why: str, reason: Reason, state: State) -> Outcome:
    """Ask a run to finish its batch, commit and end; recorded before it is asked, asked again after a crash."""
    job = context.job
    if run.stop_requested_at is not None and (job is None or job.deleting):
        return _give_up(context, run, why, state) or reconciling(
            context, reason, f"{why}: waiting for {run.name} to stop", state=state
        )
    recorded = replace(run, stop_requested_at=run.stop_requested_at or context.now)
    return reconciling(
        context,
        reason,
        f"{why}: stopping {run.name}; it finishes and commits its batch first",
        state=state,
        action=StopRun(name=run.name),
        status=replace(context.status, run=recorded),
    )


def _give_up(context: Context, run: RunStatus, why: str, state: State) -> Outcome | None:
    """Wait no longer than restart.stopTimeout: what is given up is fenced next, whatever its process still does."""
    spec = context.pipeline.spec
    timeout = spec.restart.stop_timeout if isinstance(spec, Spec) else None
    since = context.observation.stop_measured_since
    if timeout is None or since is None or context.now - since < timedelta(seconds=timeout):
        return None
    return reconciling(
        context,
        Reason.STOP_TIMED_OUT,
        f"{why}: {run.name} did not stop within {format_duration(timeout)} (restart.stopTimeout) and is fenced",
        state=state,
        status=replace(context.status, run=replace(run, ended_at=context.now, dead=False)),
        requeue_after=0.0,
    )
