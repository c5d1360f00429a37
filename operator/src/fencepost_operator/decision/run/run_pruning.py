"""Which old runs are deleted when nothing else is due."""

from __future__ import annotations

from fencepost_operator.actions import DeleteRun, StopRun
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.run.liveness import has_ended


def prune_runs(context: Context) -> DeleteRun | StopRun | None:
    """Return what to delete: an old run that does not end on its own, or the oldest one over the history limit.

    Only runs older than the recorded one are touched: a newer one may be a driver whose record was lost.
    """
    recorded = context.run
    if recorded is None or context.pipeline.deleting_since is not None:
        return None
    older = [run for run in context.runs if run.epoch < recorded.epoch and not run.deleting]
    # A run that hangs, or that nothing proves dead, while its standby has taken over.
    is_fenced = recorded.stood_by is True and recorded.claimed_at is not None
    for run in older:
        age = (context.now - run.created_at).total_seconds()
        if not has_ended(run) and (is_fenced or age > context.config.stale_run_timeout):
            return StopRun(name=run.name)
    ended = [run for run in older if has_ended(run)]
    return DeleteRun(name=ended[0].name) if len(ended) >= context.config.run_history_limit else None
