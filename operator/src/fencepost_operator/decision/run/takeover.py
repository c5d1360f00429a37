"""How the fence is taken over on the way to the next run."""

from __future__ import annotations

from fencepost_operator.actions import TakeOverFence
from fencepost_operator.api import Reason, RunStatus, State
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.decision.outcome import Outcome, reconciling


def take_over(context: RunContext, why: str) -> Outcome:
    """End the row's epoch, whoever holds it and whatever is committed meanwhile."""
    row = context.row
    return reconciling(
        context,
        Reason.FENCED,
        f"{why}: epoch {row.epoch + 1} begins, and no driver of an older epoch can commit",
        state=state_before_run(context),
        action=TakeOverFence(epoch=row.epoch, version=None, owner=context.owner),
    )


def state_before_run(context: RunContext) -> State:
    """Return the phase on the way to the next run, by why it is needed."""
    run = context.run
    if run is None:
        return State.PROVISIONING
    if has_failed(context, run):
        return State.RESTARTING
    return State.UPGRADING if run.spec_hash != context.desired.run else State.PROVISIONING


def has_failed(context: Context, run: RunStatus) -> bool:
    """Return whether the newest failure is this run's."""
    failure = context.status.failure
    return failure is not None and failure.epoch == run.epoch
