"""After a run: fence it if it may still live, and decide whether another attempt is due."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fencepost.contract import LOSSES
from fencepost_operator.actions import StopRun
from fencepost_operator.api import (
    RETRY_ANNOTATION,
    FailureStatus,
    Reason,
    Spec,
    State,
    UnprovenDeath,
)
from fencepost_operator.api.quantities import format_duration, mebibytes
from fencepost_operator.decision.context import RunContext, bounds_token
from fencepost_operator.decision.outcome import Outcome, reconciling, stalled
from fencepost_operator.decision.run.confirmation import how_to_prove, is_confirmed, proof_is_late
from fencepost_operator.decision.run.diagnosis import ENVIRONMENT
from fencepost_operator.decision.run.takeover import state_before_run, take_over
from fencepost_operator.decision.status import attempts_used
from fencepost_operator.desired.resources import driver_resources

FINAL: Final = frozenset({Reason.BAD_SPEC, Reason.DATA_LOSS, *LOSSES, Reason.POISON_RECORD})
"""Failures that another attempt with the same spec would only repeat."""
SMALLEST_ATTEMPTS: Final = 2
"""Runs that may run out of memory with one record: the first may have met what else took the memory then."""


def unproven_death_is_waited_for(context: RunContext) -> Outcome | None:
    """With onUnprovenDeath: wait, leave the fence to a driver that may live until its death is proven or confirmed."""
    run, job = context.unconfirmed_run, context.job
    if run is None or context.spec.restart.on_unproven_death is not UnprovenDeath.WAIT:
        return None
    if is_confirmed(context, run):
        return None
    where = f" on node {run.node_name}" if run.node_name else ""
    to_delete = job is not None and not job.deleting
    if run.stop_requested_at is None and (job is not None or run.pod_uid is not None):
        # Asked to stop, so that a node that comes back proves the driver's end. Of what was never seen, it proves none.
        run = replace(run, stop_requested_at=context.now)
    action, status = StopRun(name=run.name) if to_delete else None, replace(context.status, run=run)
    if not proof_is_late(context, run):
        return reconciling(
            context,
            Reason.STOPPING,
            f"Waiting for proof that the driver of {run.name}{where} has ended",
            state=State.RESTARTING,
            action=action,
            status=status,
        )
    return reconciling(
        context,
        Reason.DEATH_UNPROVEN,
        f"Nothing proves that the driver of {run.name}{where} is dead; it may still commit, and the next run waits "
        "(restart.onUnprovenDeath: wait)",
        remedy=f"{how_to_prove(context, run)}; or set restart.onUnprovenDeath to fence",
        state=State.RESTARTING,
        action=action,
        status=status,
        warning=True,
        requeue_after=context.config.resync_interval,
    )


def unconfirmed_run_holds_the_fence(context: RunContext) -> Outcome | None:
    """Fence a driver that may still live before anything else."""
    run, row = context.unconfirmed_run, context.row
    if run is None or row.epoch != run.epoch or row.driver is None:
        return None
    return take_over(context, f"{run.name} is not proven dead")


def unconfirmed_run_is_not_deleted(context: RunContext) -> Outcome | None:
    """Delete the Job of a fenced run that may still live."""
    run, job = context.unconfirmed_run, context.job
    if run is None or job is None or job.deleting:
        return None
    return reconciling(
        context,
        Reason.STOPPING,
        f"{run.name} is fenced; deleting it",
        state=state_before_run(context),
        action=StopRun(name=run.name),
        status=replace(context.status, run=replace(run, stop_requested_at=run.stop_requested_at or context.now)),
    )


def failure_needs_a_person(context: RunContext) -> Outcome | None:
    """Stall after a final failure or an exhausted restart budget; a change of the spec tries again."""
    failure = current_failure(context)
    if failure is None:
        return None
    retry = f"or set the annotation {RETRY_ANNOTATION} or restart.nonce to a new value"
    if failure.reason in FINAL:
        message = f"Run {failure.epoch} failed: {failure.message}"
        return stalled(context, failure.reason, message, failure.remedy, retry)
    if failure.smallest >= SMALLEST_ATTEMPTS:
        message = (
            f"{failure.smallest} runs in a row ran out of memory with a batch of one record, which cannot be cut "
            f"({_limits(context.spec)}): {failure.message}"
        )
        return stalled(context, Reason.OUT_OF_MEMORY, message, failure.remedy, f"change the spec {retry}")
    budget, used = context.spec.restart.max_attempts, attempts_used(failure)
    if not budget or used < budget:
        return None
    return stalled(
        context,
        Reason.RESTART_BUDGET_EXHAUSTED,
        f"{used} runs in a row failed without progress, as many as restart.maxAttempts allows, the last one with "
        f"{failure.reason}: {failure.message}",
        failure.remedy,
        f"change the spec {retry}",
    )


def failure_is_backing_off(context: RunContext) -> Outcome | None:
    """Wait longer after each run that fails without progress."""
    failure = current_failure(context)
    if failure is None or failure.next_attempt_at is None or failure.next_attempt_at <= context.now:
        return None
    left = (failure.next_attempt_at - context.now).total_seconds()
    delay = (failure.next_attempt_at - failure.at).total_seconds()
    return reconciling(
        context,
        Reason.BACKING_OFF,
        f"{failure.count} runs in a row failed without progress ({failure.reason}: {failure.message}); "
        f"the next attempt starts {format_duration(delay)} after the last one{_budget(context, failure)}",
        remedy=failure.remedy,
        state=State.RESTARTING,
        warning=True,
        requeue_after=min(left, context.config.resync_interval),
    )


def _limits(spec: Spec) -> str:
    """Return the memory limits of the pods, for a message."""
    driver = f"the driver's limit {driver_resources(spec)['limits']['memory']}"
    return (
        f"cluster.worker.memory is {mebibytes(spec.cluster.worker.memory)}, {driver}" if spec.cluster.exists else driver
    )


def _budget(context: RunContext, failure: FailureStatus) -> str:
    """Return how much of the budget is used up, '' without a budget."""
    budget, used = context.spec.restart.max_attempts, attempts_used(failure)
    if not budget:
        return ""
    if failure.reason in ENVIRONMENT:
        return "; such failures do not count towards restart.maxAttempts"
    return f"; {used} of {budget} attempts of restart.maxAttempts are used up"


def current_failure(context: RunContext) -> FailureStatus | None:
    """Return the failure of the newest run until something changes that the next run may succeed with.

    That is the spec, the bounds of batches, the retry annotation, or the acceptance of the loss that stopped the run.
    """
    run, failure = context.run, context.status.failure
    if run is None or failure is None or not failure.count or failure.epoch != run.epoch:
        return None
    if any(each.id == failure.loss and each.epoch >= failure.epoch for each in context.status.accepted_losses):
        return None
    asked = (context.desired.run, context.retry_token, bounds_token(context.pipeline))
    return failure if (failure.spec_hash, failure.retry, failure.batch_bounds) == asked else None
