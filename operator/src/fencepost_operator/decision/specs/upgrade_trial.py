"""New code that is tried before it runs: until when the code before stays in effect, and how that is reported.

The object keeps its spec, so that whoever manages it sees no drift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fencepost_operator.actions import TryCode
from fencepost_operator.api import (
    ACCEPT_CODE_ANNOTATION,
    Pipeline,
    Reason,
    Spec,
    State,
    Status,
    Trial,
    TrialPhase,
    UpgradeStrategy,
    UpgradeTrialState,
    UpgradeTrialStatus,
)
from fencepost_operator.api.promotion import unmet
from fencepost_operator.decision.context import Context, SpecContext
from fencepost_operator.decision.kafka import trial_start
from fencepost_operator.decision.outcome import Outcome, stalled
from fencepost_operator.decision.wording import detail, with_remedy
from fencepost_operator.desired.identity.code import code_identity, tried_identity
from fencepost_operator.desired.identity.hashes import config_maps, optional_references
from fencepost_operator.desired.upgrade_trial import upgrade_trial
from fencepost_operator.observation import Known, Observation


def remedy(tried: UpgradeTrialStatus) -> str:
    """Return what a user can do where the new code may not run."""
    return (
        "correct the code; or, to run it nevertheless, set the annotation "
        f"{ACCEPT_CODE_ANNOTATION}={tried.name}; or, to try it again, delete PipelineTrial {tried.name}"
    )


def is_held(pipeline: Pipeline, own: Spec, references: Mapping[str, str | None]) -> bool:
    """Return whether the object still asks for what is tried; `references` has the hashes of its ConfigMaps."""
    tried = pipeline.status.upgrade_trial
    if tried is None or tried.may_run or own.upgrade.strategy is not UpgradeStrategy.TRIAL:
        return False
    is_missing = any(references.get(name) is None for name in set(config_maps(own)) - optional_references(own))
    return is_missing or tried.code == tried_identity(own, references)


def with_upgrade_trial(pipeline: Pipeline, observation: Observation, status: Status) -> Status:
    """Return the status with what is known of the trial, or without one that is over."""
    tried = status.upgrade_trial
    if tried is None or pipeline.deleting_since is not None or pipeline.refused or not isinstance(pipeline.spec, Spec):
        return status
    own = pipeline.superseded or pipeline.spec
    if pipeline.superseded is not None or pipeline.irretrievable:
        return replace(status, upgrade_trial=_judged(tried, own, pipeline, observation))
    return status if _is_awaited(tried, own, status, observation) else replace(status, upgrade_trial=None)


def trial_to_create(context: Context) -> TryCode | None:
    """Return the creation of the trial, once it is known not to exist."""
    pipeline, tried = context.pipeline, context.status.held_trial
    own = pipeline.superseded or pipeline.spec
    if tried is None or context.observation.upgrade_trial != Known(None) or not isinstance(own, Spec):
        return None
    if pipeline.deleting_since is not None or pipeline.refused or pipeline.status.upgrade_trial is None:
        return None
    if not trial_start.is_due(context, tried, own):
        return None
    return TryCode(trial=upgrade_trial(pipeline, own, tried.name, snapshot=tried.snapshot))


def code_before_is_missing(context: SpecContext) -> Outcome | None:
    """Start nothing of new code that may not run, while the code before cannot be read."""
    tried, pipeline = context.status.held_trial, context.pipeline
    if tried is None or not pipeline.irretrievable or pipeline.refused:
        return None
    effect = "the run continues" if context.active_run else "nothing is started"
    message = f"The new code is not tried yet; the code before cannot be used, and {effect}: {pipeline.irretrievable}"
    return stalled(context, Reason.TRIAL_NOT_PASSED, message, remedy(tried))


def under_upgrade_trial(context: Context, outcome: Outcome, why_not_created: str) -> Outcome:
    """Report the new code, while all rules continue with the code before."""
    tried, own = context.status.held_trial, context.pipeline.superseded
    if tried is None or own is None or outcome.state is State.SUSPENDED:
        return outcome
    instead = f"revision {tried.revision} is in effect instead: {outcome.message}"
    if tried.state == UpgradeTrialState.NOT_PASSED:
        return _without_new_code(tried, outcome, f"The new code does not run: {tried.message}; {instead}")
    awaits = trial_start.awaited(context, tried, own)
    obstacle = detail(why_not_created or tried.message or trial_start.obstacle(context))
    found = f"{f' {awaits}' if awaits else ''}{f' ({obstacle})' if obstacle else ''}"
    message = f"PipelineTrial {tried.name} tries the new code{found}; {instead}"
    if not outcome.ready:
        return replace(outcome, message=message)
    waited = (context.now - trial_start.due_at(tried, own)).total_seconds()
    if obstacle and waited >= context.config.page_not_ready_after:
        return _without_new_code(tried, outcome, message)
    return replace(
        outcome, reason=Reason.TRYING, message=message, ready=False, warning=outcome.warning or bool(why_not_created)
    )


def _without_new_code(tried: UpgradeTrialStatus, outcome: Outcome, message: str) -> Outcome:
    """Report that new code waits for a user; where the code before is not ready either, that is more urgent."""
    message = with_remedy(message, remedy(tried))
    return outcome.as_stalled(Reason.TRIAL_NOT_PASSED, message) if outcome.ready else replace(outcome, message=message)


def _is_awaited(tried: UpgradeTrialStatus, own: Spec, status: Status, observation: Observation) -> bool:
    """Return whether code that may run is still to be rolled out."""
    if not tried.may_run or own.upgrade.strategy is not UpgradeStrategy.TRIAL:
        return False
    references = observation.references
    if isinstance(references, Known) and tried.code != tried_identity(own, references.value.hashes):
        return False
    return status.run is not None and status.run.code != code_identity(own)


def _judged(tried: UpgradeTrialStatus, own: Spec, pipeline: Pipeline, observation: Observation) -> UpgradeTrialStatus:
    if pipeline.annotations.get(ACCEPT_CODE_ANNOTATION) == tried.name:
        return replace(tried, state=UpgradeTrialState.ACCEPTED, message="a user accepts the new code")
    seen = observation.upgrade_trial
    if not isinstance(seen, Known):
        return tried
    state, message = _verdict(seen.value, own, pipeline)
    return trial_start.with_start(replace(tried, state=state, message=detail(message)), own, observation)


def _verdict(trial: Trial | None, own: Spec, pipeline: Pipeline) -> tuple[UpgradeTrialState, str]:
    if trial is None or trial.deleting_since is not None:
        return UpgradeTrialState.TRYING, _obstacle(trial) if trial is not None else ""
    status, name = trial.status, f"PipelineTrial {trial.key.name}"
    if trial.owner_uid != pipeline.uid:
        return UpgradeTrialState.NOT_PASSED, f"{name} belongs to another object, which has its name; delete it"
    if status.phase == TrialPhase.FAILED:
        return UpgradeTrialState.NOT_PASSED, f"{name} ended without a result: {status.message}"
    if status.phase != TrialPhase.COMPLETED:
        return UpgradeTrialState.TRYING, _obstacle(trial)
    if why := unmet(own.upgrade.trial.promote_when, status):
        return UpgradeTrialState.NOT_PASSED, f"{name} found what upgrade.trial.promoteWhen does not allow: {why}"
    return UpgradeTrialState.PASSED, status.message


def _obstacle(trial: Trial) -> str:
    """Return what keeps a trial from its work; how far it is changes too often for the pipeline's status."""
    if trial.deleting_since is not None:
        return "it is being deleted; if it stays, remove the finalizer that keeps it"
    status = trial.status
    reason = status.conditions[0].reason if status.conditions else ""
    is_held_up = bool(reason) and (reason != Reason.TRYING or status.phase == TrialPhase.WAITING)
    return status.message if is_held_up else ""
