"""From an observation to a decision: preconditions first, then rules.  Pure: equal inputs give equal decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from fencepost.contract.guidance import remedy_of
from fencepost_operator.actions import Action, InstallCluster, PruneCluster, TakeSnapshot
from fencepost_operator.api import Pipeline, Reason, ReconcileConfig, Spec
from fencepost_operator.decision.cluster.cluster_pruning import stale_generations
from fencepost_operator.decision.context import Context, RunContext, SpecContext
from fencepost_operator.decision.decision import ActionFailure, Decision
from fencepost_operator.decision.kafka.retention import backlog, data_risk
from fencepost_operator.decision.kafka.retention_risk import RETENTION_RISK
from fencepost_operator.decision.kafka.snapshots import with_snapshots
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.pausing import is_paused, pause_events, paused
from fencepost_operator.decision.reporting.conditions import conditions, with_retention_risk
from fencepost_operator.decision.reporting.events import new_condition, status_events
from fencepost_operator.decision.rewind.queue import Rewinding, next_rewind, rewinding
from fencepost_operator.decision.rewind.step_status import RewindUpdate, reported
from fencepost_operator.decision.rules import (
    deletion,
    health,
    lost_records,
    preconditions,
    restart,
    rollback,
    start,
    suspend,
    upgrade,
)
from fencepost_operator.decision.run import open_batch
from fencepost_operator.decision.run.run_pruning import prune_runs
from fencepost_operator.decision.specs.revisions import under_invalid_spec, with_revision
from fencepost_operator.decision.specs.rollback import stable_spec_is_missing, under_rollback
from fencepost_operator.decision.specs.stability import with_stable
from fencepost_operator.decision.status import observed_since, update_status
from fencepost_operator.decision.wording import detail, with_remedy, with_runbook
from fencepost_operator.observation import Observation

C = TypeVar("C", bound=Context)

Precondition: TypeAlias = Callable[[Context], Outcome | None]
Rule: TypeAlias = Callable[[RunContext], Outcome | None]

PRECONDITIONS: Final[tuple[Precondition, ...]] = (
    deletion.is_deleted,
    preconditions.kubernetes_is_unreachable,
    preconditions.finalizer_is_missing,
)
"""What needs neither a spec nor a fence row. The first one that concludes something decides."""

SPEC_PRECONDITIONS: Final[tuple[Callable[[SpecContext], Outcome | None], ...]] = (
    suspend.is_suspended,
    stable_spec_is_missing,
)
"""What needs a valid spec but no fence row."""

RULES: Final[tuple[Rule, ...]] = (
    # A run is active.
    health.run_has_no_cluster,
    upgrade.run_is_being_stopped,
    health.run_is_superseded,
    health.run_is_unresponsive,
    upgrade.run_is_outdated,
    upgrade.master_is_lost,
    upgrade.cluster_has_drifted,
    # Whether or not a run is active.
    restart.unproven_death_is_waited_for,
    restart.unconfirmed_run_holds_the_fence,
    restart.unconfirmed_run_is_not_deleted,
    lost_records.loss_needs_an_acceptance,
    rollback.new_spec_has_failed,
    restart.failure_needs_a_person,
    restart.failure_is_backing_off,
    health.topics_are_missing,
    health.reading_is_unobserved,
    # A run is active and up to date.
    health.run_is_starting,
    upgrade.run_is_finishing,
    upgrade.restart_is_queued,
    health.run_is_streaming,
)
"""The first rule that concludes something decides.  A rule may rely on what those before it have ruled out.

When none does, no run is active and nothing stands in the way of the next one: see `start.next_run`.
"""


def decide(
    pipeline: Pipeline,
    observation: Observation,
    config: ReconcileConfig,
    *,
    failures: Collection[ActionFailure] = (),
) -> Decision:
    """Return the one decision about a pipeline at this moment; `failures` are of its last actions."""
    if is_paused(pipeline):
        return _left_alone(pipeline, observation, config)
    context = Context(
        pipeline=pipeline,
        status=update_status(pipeline, observation, config),
        observation=observation,
        config=config,
    )
    prepared = prepare(context)
    rewinds = rewinding(context, prepared)
    outcome = rewinds.outcome or outcome_of(prepared)
    failure = next((failure for failure in failures if failure.action == outcome.action), None)
    if failure is not None:
        outcome = _with_failure(outcome, failure)
    is_queued = outcome.reason is Reason.RESTART_QUEUED
    outcome = _with_page(under_invalid_spec(context, under_rollback(context, outcome)), config)
    aside = next((failure for failure in failures if failure.action == rewinds.aside), None)
    status = replace(
        outcome.status,
        observed_generation=pipeline.generation,
        observed_since=observed_since(context),
        state=outcome.state,
        message=outcome.message,
        rewind=rewinds.in_progress,
        conditions=conditions(context, outcome),
    )
    unwritten = {failure.action.id: failure.message for failure in failures if isinstance(failure.action, TakeSnapshot)}
    asked = _action(context, outcome, failures)
    status, snapshot = with_snapshots(context, status, asked, unwritten)
    action = snapshot or asked
    if asked is None:
        status, keep = with_revision(context, status)
        status = with_stable(context, status)
        action = _housekeeping(context, failures, rewinds.aside, keep, snapshot)
    return Decision(
        reason=outcome.reason,
        status=status,
        events=status_events(pipeline.status, status, outcome, config, asks_to_run=_asks_to_run(pipeline)),
        action=action,
        requeue_after=config.resync_interval if outcome.requeue_after is None else outcome.requeue_after,
        backlog=backlog(pipeline.spec, observation, status.data_risk),
        rewinds=_rewinds(rewinds, context, failure, aside),
        is_queued=is_queued,
    )


def _asks_to_run(pipeline: Pipeline) -> bool:
    return pipeline.deleting_since is None and isinstance(pipeline.spec, Spec) and not pipeline.spec.suspend


def _left_alone(pipeline: Pipeline, observation: Observation, config: ReconcileConfig) -> Decision:
    """Write that the pipeline is paused, once, and what threatens its unread records; do nothing."""
    before = pipeline.status
    risk = data_risk(before.data_risk, pipeline.spec, observation)
    status = replace(paused(pipeline, observation.now), data_risk=risk)
    context = Context(pipeline=pipeline, status=status, observation=observation, config=config)
    status = replace(status, conditions=with_retention_risk(context, status))
    return Decision(
        reason=Reason.PAUSED,
        status=status,
        events=(*pause_events(before, status), *new_condition(before, status, RETENTION_RISK)),
        action=None,
        requeue_after=config.resync_interval,
        backlog=backlog(pipeline.spec, observation, risk),
    )


def _rewinds(
    rewinds: Rewinding, context: Context, failure: ActionFailure | None, aside: ActionFailure | None
) -> tuple[RewindUpdate, ...]:
    """Tell in the current rewind as well why its action does not succeed."""
    why = aside or (failure if rewinds.outcome is not None else None)
    current = next_rewind(update.rewind for update in rewinds.updates) if why is not None else None
    if why is None or current is None:
        return rewinds.updates
    message = with_remedy(detail(why.message), why.remedy)
    return tuple(
        replace(update, status=reported(current, update.status, f"{update.status.message}: {message}", context.now))
        if update.rewind is current
        else update
        for update in rewinds.updates
    )


def _action(context: Context, outcome: Outcome, failures: Collection[ActionFailure]) -> Action | None:
    """Return what the rule asks for; a prune takes turns with an install that fails: neither waits for the other."""
    if not isinstance(outcome.action, InstallCluster):
        return outcome.action
    prunes = sum(failure.attempts for failure in failures if isinstance(failure.action, PruneCluster))
    prune = stale_generations(context, install_failed=True) if _tries(outcome.action, failures) > prunes else None
    return prune or outcome.action


def _housekeeping(context: Context, failures: Collection[ActionFailure], *others: Action | None) -> Action | None:
    """Return what is due while no rule asks for anything: first what failed least often, so that nothing starves."""
    candidates = (*others, prune_runs(context), stale_generations(context))
    due = [action for action in candidates if action is not None]
    return min(due, key=lambda action: _tries(action, failures), default=None)


def _tries(action: Action, failures: Collection[ActionFailure]) -> int:
    return sum(failure.attempts for failure in failures if failure.action == action)


def prepare(context: Context) -> RunContext | Outcome:
    """Return the context of a pipeline that may run, or what the first precondition concludes that concludes one."""
    if outcome := _first(PRECONDITIONS, context):
        return outcome
    with_spec = preconditions.require_spec(context)
    if isinstance(with_spec, Outcome):
        return with_spec
    if outcome := _first(SPEC_PRECONDITIONS, with_spec):
        return outcome
    return preconditions.require_fence(with_spec)


def outcome_of(prepared: RunContext | Outcome) -> Outcome:
    """Return what the preconditions conclude, or the first rule that concludes something."""
    resolved = prepared if isinstance(prepared, Outcome) else open_batch.resolve(prepared)
    if isinstance(resolved, Outcome):
        return resolved
    return _first(RULES, resolved) or start.next_run(resolved)


def _first(checks: tuple[Callable[[C], Outcome | None], ...], context: C) -> Outcome | None:
    return next((outcome for check in checks if (outcome := check(context))), None)


def _with_page(outcome: Outcome, config: ReconcileConfig) -> Outcome:
    """Name the runbook of a reason that a person may have to act on."""
    if not outcome.warning and not outcome.stalled:
        return outcome
    return replace(outcome, message=with_runbook(outcome.message, outcome.reason, config.runbook_url))


def _with_failure(outcome: Outcome, failure: ActionFailure) -> Outcome:
    """Report why the action that is due does not succeed."""
    tries = f" (tried {failure.attempts} times)" if failure.attempts > 1 else ""
    message = with_remedy(
        f"{outcome.message}: {detail(failure.message)}{tries}", failure.remedy or remedy_of(failure.reason)
    )
    return replace(outcome, reason=failure.reason, message=message, warning=True, ready=False)
