"""Whether a new spec fails on its own before it is stable, so that the last stable one replaces it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from fencepost.contract import LOSSES
from fencepost_operator.api import FailureStatus, Reason, Revision, Rollback, RollbackStatus, Spec, StableStatus
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.outcome import KUBERNETES_REASONS, Outcome, reconciling, unobservable
from fencepost_operator.decision.rules.restart import current_failure
from fencepost_operator.decision.run.diagnosis import ENVIRONMENT, Diagnosis, diagnose_pod_issue, pod_issue
from fencepost_operator.decision.run.open_batch import CANNOT_START, START_PATIENCE
from fencepost_operator.decision.status import attempts_used
from fencepost_operator.decision.wording import detail
from fencepost_operator.desired.identity.hashes import Fingerprints, config_maps, fingerprints, optional_references
from fencepost_operator.desired.identity.revision import revision_of
from fencepost_operator.desired.identity.spec_identity import attempt, identity
from fencepost_operator.observation import Began, Known, NotAsked, Unknown, UnknownReason

AT_ONCE: Final = frozenset({Reason.BAD_SPEC, Reason.POISON_RECORD})
"""Failures that another run of the same spec would only repeat."""
NEVER: Final = frozenset({*ENVIRONMENT, Reason.DRIVER_CUT_OFF, Reason.DATA_LOSS, *LOSSES})
"""Failures that say nothing of the new spec, or that the stable one would have as well."""
BY_THE_IMAGE: Final = frozenset({*CANNOT_START, Reason.CRASH_LOOP})
"""What keeps pods from starting, and comes with what the spec names; no room and no quota do not."""


def new_spec_has_failed(context: RunContext) -> Outcome | None:
    """Return to the last stable spec when a new one fails on its own; recorded first, as any change of the status.

    Never twice for the same spec: the record stays until the object asks for something else.
    """
    stable = _replacement(context)
    if stable is None or not (_may_have_failed(context) or _may_not_start(context)):
        return None
    seen = context.observation.stable
    if isinstance(seen, Unknown) and seen.reason is not UnknownReason.REJECTED:
        return unobservable(context, KUBERNETES_REASONS[seen.reason], seen, what="The stable spec cannot be read")
    if isinstance(seen, NotAsked):
        return reconciling(
            context, Reason.PROVISIONING, f"Looking for revision {stable.revision}, which is stable", requeue_after=0.0
        )
    kept = seen.value if isinstance(seen, Known) else None
    other = _other_spec(context, kept) if kept is not None else None
    failed = (_failure(context) or _cannot_start(context, other.cluster)) if other is not None else None
    return _roll_back(context, stable, *failed) if failed is not None else None


def _other_spec(context: RunContext, kept: Began) -> Fingerprints | None:
    """Return what the stable spec would run now; None where that is the same, or cannot be had any more."""
    revision, now = kept.revision, kept.references.hashes
    spec = revision.spec if revision is not None else ()
    if revision is None or not isinstance(spec, Spec) or _has_changed(revision, spec, now):
        return None
    if set(kept.references.missing()) - optional_references(spec):
        return None  # its run could not start, where the new one at least says why it fails
    if identity(spec, now) == identity(context.spec, context.references.hashes):
        return None
    return fingerprints(spec, now, context.config.chart)


def _replacement(context: RunContext) -> StableStatus | None:
    """Return the stable spec that may take the place of a new one that is in effect."""
    pipeline, run, stable = context.pipeline, context.run, context.status.stable
    if context.spec.upgrade.rollback is not Rollback.ENABLED or stable is None or run is None:
        return None
    if pipeline.superseded is not None or pipeline.refused or context.finishes is not None:
        return None
    return stable if context.status.loss is None else None


def _has_changed(revision: Revision, spec: Spec, now: Mapping[str, str | None]) -> bool:
    """Return whether a ConfigMap that the stable code comes from has changed since, or is gone."""
    return any(revision.config_maps.get(name) != now.get(name) for name in config_maps(spec))


def _may_have_failed(context: RunContext) -> bool:
    return context.active_run is None and current_failure(context) is not None


def _may_not_start(context: RunContext) -> bool:
    run, issue = context.active_run, pod_issue(context)
    return (run is None or run.claimed_at is None) and issue is not None and issue.category in BY_THE_IMAGE


def _failure(context: RunContext) -> tuple[Reason, str] | None:
    """Return why the newest run's failure is the new spec's, and one too many."""
    failure = current_failure(context) if context.active_run is None else None
    if failure is None or failure.loss or failure.reason in NEVER:
        return None
    used, budget = attempts_used(failure), context.spec.restart.max_attempts
    is_spent = bool(budget) and used >= budget
    is_enough = failure.reason in AT_ONCE or used >= context.spec.upgrade.max_attempts
    if not is_spent and not (is_enough and _is_in_time(context, failure)):
        return None
    runs = f"{used} runs in a row failed" if used > 1 else f"run {failure.epoch} failed"
    return failure.reason, f"{runs} ({failure.reason}: {failure.message})"


def _is_in_time(context: RunContext, failure: FailureStatus) -> bool:
    run = context.run
    first = run.first_recorded_at if run is not None else None
    return first is not None and (failure.at - first).total_seconds() <= context.spec.upgrade.deadline


def _cannot_start(context: RunContext, stable_cluster: str) -> tuple[Reason, str] | None:
    """Return what has kept the new spec's pods from starting for so long that it counts as final."""
    is_new = context.spec.cluster.exists and context.desired.cluster != stable_cluster
    found = _issue(context, new_cluster=is_new)
    if found is None:
        return None
    since, issue = found
    if issue.category not in BY_THE_IMAGE or context.now - since < START_PATIENCE:
        return None
    return issue.category, issue.message


def _issue(context: RunContext, *, new_cluster: bool) -> tuple[datetime, Diagnosis] | None:
    """Return the issue of a pod that only exists by the new spec, and since when that is to start."""
    run, job, cluster = context.active_run, context.job, context.status.cluster
    if run is not None:
        if run.claimed_at is not None or run.spec_hash != context.desired.run:
            return None
        own = (job.issue or (job.pod.issue if job.pod else None)) if job is not None else None
        issue = diagnose_pod_issue(own) if own is not None else pod_issue(context) if new_cluster else None
        return (run.recorded_at, issue) if issue is not None else None
    issue = pod_issue(context)
    if not new_cluster or issue is None or cluster is None or cluster.config_hash != context.desired.cluster:
        return None
    return cluster.requested_at, issue


def _roll_back(context: RunContext, stable: StableStatus, reason: Reason, why: str) -> Outcome:
    hashes = context.references.hashes
    reported = RollbackStatus(
        revision=stable.revision,
        failed=revision_of(context.pipeline, context.spec, hashes).name,
        failed_spec=attempt(context.spec, hashes),
        at=context.now,
        reason=reason,
        message=detail(f"The new spec failed before it was stable: {why}"),
        retry=context.retry_token,
    )
    return reconciling(
        context,
        Reason.ROLLED_BACK,
        f"{reported.message}; rolling back to revision {stable.revision} with the newest offsets",
        warning=True,
        status=replace(context.status, rolled_back=reported),
        requeue_after=0.0,
    )
