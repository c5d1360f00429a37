"""What is done when nothing else is to do."""

from __future__ import annotations

from fencepost_operator.actions import DeleteRun, StopRun
from fencepost_operator.rules.situation import Situation
from fencepost_operator.rules.vitals import is_over


def tidy(situation: Situation) -> DeleteRun | StopRun | None:
    """Return what to remove: an old run that does not end by itself, or the oldest that history does not keep.

    Only what is older than the recorded run is touched: a newer one may be a driver whose record was lost.
    """
    recorded = situation.run
    if recorded is None or situation.pipeline.deleting_since is not None:
        return None
    older = [run for run in situation.runs if run.epoch < recorded.epoch and not run.deleting]
    for run in older:
        age = (situation.now - run.created_at).total_seconds()
        if not is_over(run) and age > situation.policy.stray_grace:
            return StopRun(name=run.name)
    ended = [run for run in older if is_over(run)]
    return DeleteRun(name=ended[0].name) if len(ended) >= situation.policy.history else None
