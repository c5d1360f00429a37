"""From what was seen to what is said and done.  Pure: the same snapshot always gives the same decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from fencepost_operator.actions import Action, InstallCluster
from fencepost_operator.api import Condition, Event, Pipeline, Reason, ReconcileConfig, Spec, Status
from fencepost_operator.decision.context import Context, Outcome, with_remedy
from fencepost_operator.decision.events import status_events
from fencepost_operator.decision.generations import stale_generations
from fencepost_operator.decision.history import prune_runs
from fencepost_operator.decision.rules import deletion, health, preconditions, start, suspend
from fencepost_operator.decision.status import update_status
from fencepost_operator.errors import FencepostError
from fencepost_operator.observation import Observation, Unknown

Rule: TypeAlias = Callable[[Context], Outcome | None]

CHAIN: Final[tuple[Rule, ...]] = (
    deletion.is_deleted,
    preconditions.kubernetes_is_unreachable,
    preconditions.finalizer_is_missing,
    preconditions.spec_is_invalid,
    suspend.is_suspended,
    preconditions.references_are_missing,
    preconditions.checkpoint_is_unreadable,
    preconditions.fence_is_owned_elsewhere,
    preconditions.fence_is_lost,
    preconditions.fence_is_missing,
    # a run lives
    health.is_being_stopped,
    health.is_superseded,
    health.is_unresponsive,
    health.is_outdated,
    health.cluster_drifted,
    # a run lives on, or none does
    start.unconfirmed_run_holds_the_fence,
    start.unconfirmed_run_is_not_deleted,
    start.needs_intervention,
    start.is_backing_off,
    health.topics_are_missing,
    health.kafka_is_unreachable,
    health.is_starting,
    health.is_streaming,
    # no run lives
    start.fence_is_held,
    start.cluster_is_not_there,
    start.cluster_is_not_ready,
    start.epoch_is_used,
    start.start_run,
)
"""The first rule that has something to say decides.  A rule may rely on what those before it have ruled out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailure:
    """An action that failed, and how often in a row; its words take the place of the rule's until it succeeds."""

    action: type[Action]
    reason: Reason
    error: FencepostError
    remedy: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to write, what to tell, what to do, when to look again (seconds). In that order: record before act."""

    reason: Reason
    status: Status
    events: tuple[Event, ...]
    action: Action | None
    requeue_after: float


def decide(
    pipeline: Pipeline,
    observation: Observation,
    config: ReconcileConfig,
    *,
    action_failure: ActionFailure | None = None,
) -> Decision:
    """Return the one decision about a pipeline at this moment."""
    context = Context(
        pipeline=pipeline,
        status=update_status(pipeline, observation, config),
        observation=observation,
        config=config,
    )
    outcome = _with_failure(rule(context), action_failure)
    status = _status(context, outcome)
    return Decision(
        reason=outcome.reason,
        status=status,
        events=status_events(pipeline.status, status, outcome),
        action=_action(context, outcome, action_failure),
        requeue_after=config.resync if outcome.requeue_after is None else outcome.requeue_after,
    )


def _action(context: Context, outcome: Outcome, failure: ActionFailure | None) -> Action | None:
    """Return what the rule asks for; housekeeping when it asks for nothing, or for an install that just failed."""
    if outcome.action is None:
        return prune_runs(context) or stale_generations(context)
    if isinstance(outcome.action, InstallCluster) and failure is not None and failure.action is InstallCluster:
        return stale_generations(context, install_failed=True) or outcome.action
    return outcome.action


def rule(context: Context) -> Outcome:
    """Return what the first rule says that has something to say."""
    for one in CHAIN:
        if outcome := one(context):
            return outcome
    raise AssertionError("the chain ends with a rule that always has something to say")


def _with_failure(outcome: Outcome, action_failure: ActionFailure | None) -> Outcome:
    """Say why an action does not succeed, as long as it is the one that is due."""
    if action_failure is None or outcome.action is None or type(outcome.action) is not action_failure.action:
        return outcome
    tries = f" (tried {action_failure.attempts} times)" if action_failure.attempts > 1 else ""
    message = with_remedy(f"{outcome.message}: {action_failure.error}{tries}", action_failure.remedy)
    return replace(outcome, reason=action_failure.reason, message=message, warning=True)


def _status(context: Context, outcome: Outcome) -> Status:
    generation = context.pipeline.generation
    return replace(
        outcome.status,
        observed_generation=generation,
        state=outcome.state,
        message=outcome.message,
        conditions=_conditions(context, outcome),
    )


def _conditions(context: Context, outcome: Outcome) -> tuple[Condition, ...]:
    """Return kstatus' conditions: Ready always; Reconciling or Stalled while True, never both; and Streaming."""
    found = [_condition(context, "Ready", "True" if outcome.ready else "False", outcome.reason, outcome.message)]
    if outcome.stalled:
        found.append(_condition(context, "Stalled", "True", outcome.reason, outcome.message))
    elif not outcome.ready:
        found.append(_condition(context, "Reconciling", "True", outcome.reason, outcome.message))
    found.append(_streaming(context, outcome))
    return tuple(found)


def _streaming(context: Context, outcome: Outcome) -> Condition:
    run = outcome.status.run
    lives = run is not None and run.ended_at is None and run.claimed_at is not None
    if run is None or not lives:
        return _condition(context, "Streaming", "False", outcome.reason, "No driver holds the fence")
    runs, fence = context.observation.runs, context.observation.fence
    asked = isinstance(context.pipeline.spec, Spec)  # an invalid spec does not say where the fence is
    if isinstance(runs, Unknown) or (asked and isinstance(fence, Unknown)):
        message = f"{run.name} held the fence when it was last seen"
        return _condition(context, "Streaming", "Unknown", outcome.reason, message)
    return _condition(context, "Streaming", "True", Reason.STREAMING, f"{run.name} holds the fence")


def _condition(context: Context, kind: str, status: str, reason: Reason, message: str) -> Condition:
    before = next((c for c in context.pipeline.status.conditions if c.type == kind), None)
    unchanged = before is not None and before.status == status
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=(
            before.last_transition_time if before is not None and unchanged else context.now.replace(microsecond=0)
        ),
        observed_generation=context.pipeline.generation,
    )
