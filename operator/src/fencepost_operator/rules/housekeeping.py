"""What is done when nothing else is to do."""

from __future__ import annotations

from fencepost_operator.actions import DeleteRun, StopRun
from fencepost_operator.rules.situation import Situation


def tidy(situation: Situation) -> DeleteRun | StopRun | None:
    """Return what to remove: a run that is nobody's and does not end, or the oldest that history does not keep."""
    if situation.pipeline.deleting_since is not None:
        return None
    recorded = situation.run.name if situation.run else None
    others = [run for run in situation.runs if run.name != recorded and not run.deleting]
    for run in others:
        age = (situation.now - run.created_at).total_seconds()
        if not run.finished and age > situation.policy.stray_grace:
            return StopRun(name=run.name)
    ended = sorted((run for run in others if run.finished), key=lambda run: run.epoch, reverse=True)
    kept = situation.policy.history - 1
    return DeleteRun(name=ended[-1].name) if len(ended) > kept else None
