"""What is done when nothing else is to do."""

from __future__ import annotations

from fencepost_operator.actions import DeleteRun, StopRun
from fencepost_operator.decision.context import Context
from fencepost_operator.decision.liveness import is_over


def prune_runs(context: Context) -> DeleteRun | StopRun | None:
    """Return what to remove: an old run that does not end by itself, or the oldest that history does not keep.

    Only what is older than the recorded run is touched: a newer one may be a driver whose record was lost.
    """
    recorded = context.run
    if recorded is None or context.pipeline.deleting_since is not None:
        return None
    older = [run for run in context.runs if run.epoch < recorded.epoch and not run.deleting]
    for run in older:
        age = (context.now - run.created_at).total_seconds()
        if not is_over(run) and age > context.config.stray_grace:
            return StopRun(name=run.name)
    ended = [run for run in older if is_over(run)]
    return DeleteRun(name=ended[0].name) if len(ended) >= context.config.history else None
