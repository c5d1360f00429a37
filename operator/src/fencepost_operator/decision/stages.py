"""What follows a conclusion, stage by stage: each takes the draft of a decision and returns it with its part in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from fencepost.contract.guidance import remedy_of
from fencepost_operator.actions import Action, InstallCluster, PruneCluster, TakeSnapshot
from fencepost_operator.api import Reason, Spec, Status
from fencepost_operator.decision.cluster.cluster_pruning import stale_generations
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.decision.decision import ActionFailure
from fencepost_operator.decision.kafka.snapshots import with_snapshots
from fencepost_operator.decision.outcome import Outcome
from fencepost_operator.decision.reporting.conditions import conditions
from fencepost_operator.decision.rewind.queue import Rewinding, next_rewind
from fencepost_operator.decision.rewind.step_status import RewindUpdate, reported
from fencepost_operator.decision.rules.standby import refused_standby, superfluous_cluster, with_standby
from fencepost_operator.decision.run.diagnosis import Diagnosis
from fencepost_operator.decision.run.handoff import standby_of, without_handoff
from fencepost_operator.decision.run.run_pruning import prune_runs
from fencepost_operator.decision.specs.revisions import under_invalid_spec, with_revision
from fencepost_operator.decision.specs.rollback import under_rollback
from fencepost_operator.decision.specs.stability import with_stable
from fencepost_operator.decision.specs.upgrade_trial import trial_to_create, under_upgrade_trial
from fencepost_operator.decision.status import observed_since
from fencepost_operator.decision.wording import detail, with_remedy, with_runbook


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A decision in progress.  `failures` are of the pipeline's last actions; `action` is what is due so far.

    `prepared` is the context of a pipeline that may run, or why it may not.
    """

    context: Context
    prepared: RunContext | Outcome
    failures: tuple[ActionFailure, ...]
    rewinds: Rewinding
    outcome: Outcome
    status: Status
    action: Action | None
    is_queued: bool = False
    of_standby: tuple[Action | None, ...] = ()
    """What is due for a standby while no rule asks for anything."""

    def failure_of(self, action: Action | None) -> ActionFailure | None:
        """Return how that very action failed, None if it did not."""
        return next((failure for failure in self.failures if failure.action == action), None)


def report_failure(draft: Draft) -> Draft:
    """Report why the action that is due does not succeed."""
    failure = draft.failure_of(draft.outcome.action)
    if failure is None:
        return draft
    tries = f" (tried {failure.attempts} times)" if failure.attempts > 1 else ""
    message = with_remedy(
        f"{draft.outcome.message}: {detail(failure.message)}{tries}", failure.remedy or remedy_of(failure.reason)
    )
    outcome = replace(draft.outcome, reason=failure.reason, message=message, warning=True, ready=False)
    return replace(draft, outcome=outcome)


def note_queue(draft: Draft) -> Draft:
    """Note whether the pipeline waits for its turn to be restarted, whatever else is reported of it."""
    return replace(draft, is_queued=draft.outcome.reason is Reason.RESTART_QUEUED)


def report_rollback(draft: Draft) -> Draft:
    """Report that a stable spec is in effect instead of the object's own."""
    return replace(draft, outcome=under_rollback(draft.context, draft.outcome))


def report_upgrade_trial(draft: Draft) -> Draft:
    """Report that the code before is in effect while new code is tried, and why it is not if that cannot begin."""
    failure = draft.failure_of(trial_to_create(draft.context))
    why = with_remedy(failure.message, failure.remedy) if failure is not None else ""
    return replace(draft, outcome=under_upgrade_trial(draft.context, draft.outcome, why))


def report_invalid_spec(draft: Draft) -> Draft:
    """Report the object's own spec where it is refused."""
    return replace(draft, outcome=under_invalid_spec(draft.context, draft.outcome))


def link_runbook(draft: Draft) -> Draft:
    """Name the runbook of a reason that a user may have to act on."""
    outcome = draft.outcome
    if not outcome.warning and not outcome.stalled:
        return draft
    message = with_runbook(outcome.message, outcome.reason, draft.context.config.runbook_url)
    return replace(draft, outcome=replace(outcome, message=message))


def add_standby(draft: Draft) -> Draft:
    """Bring up the standby while no rule asks for anything, and free what one that was withdrawn has left."""
    prepared, outcome, spec = draft.prepared, draft.outcome, draft.context.pipeline.spec
    if outcome.action is not None:
        return draft
    if isinstance(spec, Spec) and spec.suspend:  # its Job, where it has one, was stopped first
        status = without_handoff(outcome.status) if standby_of(outcome.status) is not None else outcome.status
        return _with_status(draft, replace(status, standby=None))
    if not isinstance(prepared, RunContext) or draft.rewinds.outcome is not None:
        return draft
    status, step = with_standby(prepared, outcome, outcome.status)
    failure = draft.failure_of(step)
    if failure is not None and isinstance(step, InstallCluster):
        found = Diagnosis(category=failure.reason, summary=failure.message, special=failure.remedy)
        status, step = refused_standby(replace(prepared, status=status), found)
    left = superfluous_cluster(replace(prepared, status=status))
    return replace(_with_status(draft, status), of_standby=(step, left))


def _with_status(draft: Draft, status: Status) -> Draft:
    return replace(draft, outcome=replace(draft.outcome, status=status))


def record(draft: Draft) -> Draft:
    """Write the outcome into the status."""
    context, outcome = draft.context, draft.outcome
    status = replace(
        outcome.status,
        observed_generation=context.pipeline.generation,
        observed_since=observed_since(context),
        state=outcome.state,
        message=outcome.message,
        rewind=draft.rewinds.in_progress,
        conditions=conditions(context, outcome),
    )
    return replace(draft, status=status)


def add_snapshot(draft: Draft) -> Draft:
    """Take or delete snapshots where the action leaves room for it, or has to wait for one."""
    context, failures = draft.context, draft.failures
    unwritten = {failure.action.id: failure.message for failure in failures if isinstance(failure.action, TakeSnapshot)}
    asked = _asked(context, draft.outcome, failures)
    status, snapshot = with_snapshots(context, draft.status, asked, unwritten)
    return replace(draft, status=status, action=snapshot or asked)


def add_housekeeping(draft: Draft) -> Draft:
    """Store revisions, note stability and delete what is old, while no rule asks for anything."""
    context = draft.context
    if draft.outcome.action is not None:
        return draft
    status, keep = with_revision(context, draft.status)
    status = with_stable(context, status)
    tries = trial_to_create(context)
    action = _housekeeping(context, draft.failures, draft.rewinds.aside, keep, tries, draft.action, *draft.of_standby)
    return replace(draft, status=status, action=action)


def rewind_updates(draft: Draft) -> tuple[RewindUpdate, ...]:
    """Return what is written of the rewinds; the current one also says why its action does not succeed."""
    rewinds = draft.rewinds
    why = draft.failure_of(rewinds.aside)
    if why is None and rewinds.outcome is not None:
        why = draft.failure_of(draft.outcome.action)
    current = next_rewind(update.rewind for update in rewinds.updates) if why is not None else None
    if why is None or current is None:
        return rewinds.updates
    message = with_remedy(detail(why.message), why.remedy)
    return tuple(
        replace(
            update, status=reported(current, update.status, f"{update.status.message}: {message}", draft.context.now)
        )
        if update.rewind is current
        else update
        for update in rewinds.updates
    )


def _asked(context: Context, outcome: Outcome, failures: Collection[ActionFailure]) -> Action | None:
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
