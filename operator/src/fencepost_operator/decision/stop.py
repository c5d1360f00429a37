"""How a living run is asked to stop."""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.actions import StopRun
from fencepost_operator.api import Reason, RunStatus, State
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.outcome import Outcome, reconciling


def stop_run(context: Context, run: RunStatus, *, why: str, reason: Reason, state: State) -> Outcome:
    """Ask a run to finish its batch, commit and end; recorded before it is asked, asked again after a crash."""
    job = context.job
    if run.stop_requested_at is not None and (job is None or job.deleting):
        return reconciling(context, reason, f"{why}: waiting for {run.name} to stop", state=state)
    recorded = replace(run, stop_requested_at=run.stop_requested_at or context.now)
    return reconciling(
        context,
        reason,
        f"{why}: stopping {run.name}; it finishes and commits its batch first",
        state=state,
        action=StopRun(name=run.name),
        status=replace(context.status, run=recorded),
    )
