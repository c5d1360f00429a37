"""From an observation to a decision: preconditions first, then rules.  Pure: equal inputs give equal decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from fencepost_operator.api import Pipeline, Reason, ReconcileConfig, Spec
from fencepost_operator.decision.cluster.autoscale import with_chosen_workers
from fencepost_operator.decision.context import Context, RunContext, SpecContext
from fencepost_operator.decision.decision import ActionFailure, Decision
from fencepost_operator.decision.failover import sign_interval
from fencepost_operator.decision.kafka.retention import backlog, data_risk
from fencepost_operator.decision.kafka.retention_risk import RETENTION_RISK
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.pausing import PAUSED, is_paused, paused
from fencepost_operator.decision.reporting.conditions import with_retention_risk
from fencepost_operator.decision.reporting.events import new_condition, status_events
from fencepost_operator.decision.rewind.queue import rewinding
from fencepost_operator.decision.rules import (
    deletion,
    failover,
    handoff,
    health,
    lost_records,
    preconditions,
    restart,
    rollback,
    standby,
    start,
    suspend,
    upgrade,
    upgrade_trial,
)
from fencepost_operator.decision.run import open_batch
from fencepost_operator.decision.specs.rollback import stable_spec_is_missing
from fencepost_operator.decision.specs.upgrade_trial import code_before_is_missing
from fencepost_operator.decision.stages import (
    Draft,
    add_housekeeping,
    add_snapshot,
    add_standby,
    link_runbook,
    note_queue,
    record,
    report_failure,
    report_invalid_spec,
    report_rollback,
    report_upgrade_trial,
    rewind_updates,
)
from fencepost_operator.decision.status import update_status
from fencepost_operator.observation import Observation

C = TypeVar("C", bound=Context)

Stage: TypeAlias = Callable[[Draft], Draft]
Precondition: TypeAlias = Callable[[Context], Outcome | None]
Rule: TypeAlias = Callable[[RunContext], Outcome | None]

PRECONDITIONS: Final[tuple[Precondition, ...]] = (
    deletion.is_deleted,
    preconditions.kubernetes_is_unreachable,
    preconditions.finalizer_is_missing,
    handoff.next_run_is_unwanted,
)
"""What needs neither a spec nor a fence row. The first one that concludes something decides."""

SPEC_PRECONDITIONS: Final[tuple[Callable[[SpecContext], Outcome | None], ...]] = (
    suspend.is_suspended,
    stable_spec_is_missing,
    code_before_is_missing,
)
"""What needs a valid spec but no fence row."""

RULES: Final[tuple[Rule, ...]] = (
    failover.move_is_asked_for,
    # A run is active.
    health.run_has_no_cluster,
    upgrade.run_is_being_stopped,
    health.run_is_superseded,
    health.run_is_unresponsive,
    upgrade_trial.new_code_is_tried,
    handoff.next_run_gets_warm,
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
    standby.standby_does_not_fit,
    restart.failure_is_backing_off,
    health.topics_are_missing,
    health.reading_is_unobserved,
    # A run is active and up to date.
    health.replacement_is_queued,
    health.run_is_starting,
    upgrade.run_is_finishing,
    upgrade.restart_is_queued,
    health.run_is_streaming,
)
"""The first rule that concludes something decides.  A rule may rely on what those before it have ruled out.

When none does, no run is active and nothing stands in the way of the next one: see `start.next_run`.
"""


STAGES: Final[tuple[Stage, ...]] = (
    report_failure,
    note_queue,
    report_rollback,
    report_upgrade_trial,
    report_invalid_spec,
    link_runbook,
    add_standby,
    record,
    add_snapshot,
    add_housekeeping,
)
"""What follows a conclusion: how it is reported, what is recorded, and what else is due."""


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
    status = update_status(pipeline, observation, config)
    if status.cluster is not None:  # a standby that has taken over brought its own
        observation = observation.seen_from(status.cluster.generation)
    context = Context(
        pipeline=with_chosen_workers(pipeline, status), status=status, observation=observation, config=config
    )
    draft = _concluded(context, failures)
    for stage in STAGES:
        draft = stage(draft)
    outcome, status = draft.outcome, draft.status
    return Decision(
        reason=outcome.reason,
        status=status,
        events=status_events(pipeline.status, status, outcome, config, asks_to_run=_asks_to_run(pipeline)),
        action=draft.action,
        requeue_after=min(
            config.resync_interval if outcome.requeue_after is None else outcome.requeue_after,
            sign_interval(pipeline.spec) if isinstance(pipeline.spec, Spec) else config.resync_interval,
        ),
        backlog=backlog(pipeline.spec, observation, status.data_risk),
        rewinds=rewind_updates(draft),
        is_queued=draft.is_queued,
    )


def _concluded(context: Context, failures: Collection[ActionFailure]) -> Draft:
    """Return what a rewind concludes, or else a precondition or a rule."""
    prepared = prepare(context)
    rewinds = rewinding(context, prepared)
    outcome = rewinds.outcome or outcome_of(prepared)
    return Draft(
        context=context,
        prepared=prepared,
        failures=tuple(failures),
        rewinds=rewinds,
        outcome=outcome,
        status=outcome.status,
        action=outcome.action,
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
        events=(*new_condition(before, status, PAUSED), *new_condition(before, status, RETENTION_RISK)),
        action=None,
        requeue_after=min(config.resync_interval, sign_interval(pipeline.spec))
        if isinstance(pipeline.spec, Spec)
        else config.resync_interval,
        backlog=backlog(pipeline.spec, observation, risk),
    )


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
