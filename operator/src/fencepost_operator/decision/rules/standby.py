"""Warm standby: a run of the same spec waits beside the one that works, and takes over when that one fails.

It awaits its epoch as the next run of a handoff does, and nothing stops the run that works: its epoch begins with the
takeover that follows any failure (`health`, `restart`, `start.fence_is_held`).  Bringing it up is housekeeping: a
pipeline that streams is Ready without it, and what it lacks is said in the condition StandbyReady.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from fencepost_operator.actions import Action, InstallCluster, StartRun, StopRun
from fencepost_operator.api import HandoffStatus, Reason, RunStatus, Standby, StandbyStatus, Status
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.cluster.readiness import is_up_to_date, next_cluster, values
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.outcome import Outcome, reconciling
from fencepost_operator.decision.rules.handoff import waited_for, why_no_standby
from fencepost_operator.decision.rules.start import (
    cluster_is_not_ready,
    first_batch_limit,
    isolates,
    start_action,
)
from fencepost_operator.decision.run.diagnosis import Diagnosis, diagnose_end, diagnose_pod_issue
from fencepost_operator.decision.run.handoff import is_warm, job_named, standby_of, without_handoff
from fencepost_operator.decision.run.liveness import has_ended, stop_timeout
from fencepost_operator.decision.run.open_batch import START_PATIENCE
from fencepost_operator.decision.wording import detail
from fencepost_operator.desired import names
from fencepost_operator.desired.identity.code import code_identity, code_text
from fencepost_operator.desired.identity.revision import revision_of
from fencepost_operator.observation import Known, Run

NO_ROOM: Final = frozenset({Reason.QUOTA_EXCEEDED, Reason.UNSCHEDULABLE})
"""What keeps a pod from starting beside the run that works; its pods then hold room that the pipeline may need."""
LONGEST_BACKOFF: Final = timedelta(minutes=32)
"""Between two standbys that fail; the first one is tried again after START_PATIENCE, each further one after twice the
time: each try installs a Spark cluster."""


def standby_does_not_fit(context: RunContext) -> Outcome | None:
    """Withdraw a standby where the next run needs what it was not started with: a smaller batch, or a search.

    Its epoch begins once it has ended, or it would claim that.
    """
    standby = context.status.handoff
    if standby is None or not standby.standby or context.active_run is not None:
        return None
    if context.row.epoch >= standby.epoch:
        return None
    job = job_named(context.runs, standby.name)
    if standby.withdrawn:
        if job is None or not _is_stopping(context, job):
            return None
        return reconciling(context, Reason.STOPPING, f"Waiting for the standby {job.name} to stop")
    if first_batch_limit(context) is not None:
        why = "the next run takes a smaller batch"
    elif isolates(context):
        why = "the next run looks for the record that fails"
    else:
        return None
    return reconciling(
        context,
        Reason.STOPPING,
        f"{why[:1].upper()}{why[1:]}: the standby {standby.name}, which would not, is stopped",
        action=StopRun(name=standby.name) if job is not None and not job.deleting else None,
        status=without_handoff(context.status),
        requeue_after=0.0,
    )


def _is_stopping(context: RunContext, job: Run) -> bool:
    """Return whether a driver that is asked to stop may still be there, and its time is not over."""
    if job.pod is None or has_ended(job):
        return False
    since = job.pod.deleting_since
    return since is None or context.now - since <= stop_timeout(job, context.config.stop_margin)


def refused_standby(context: RunContext, found: Diagnosis) -> tuple[Status, Action | None]:
    """Return the status without the standby whose cluster Helm could not install; `found` says why."""
    standby = standby_of(context.status)
    return _failed(context, standby, found, None) if standby is not None else (context.status, None)


def with_standby(context: RunContext, outcome: Outcome, status: Status) -> tuple[Status, Action | None]:
    """Return the status with the standby that is to be, and the next step towards it."""
    if context.spec.restart.standby is not Standby.WARM:
        status = replace(status, standby=None)
    context = replace(context, status=status)
    run, standby = context.active_run, standby_of(status)
    if standby is not None and job_named(context.runs, standby.name) is None and _is_outdated(context, standby):
        return without_handoff(status), None
    if run is None or not outcome.ready or not _has_its_own_epoch(context, run):
        return status, None
    if standby is not None:
        return _bring_up(context, run, standby)
    return _begin(context, run) if _may_begin(context, run) else (status, None)


def superfluous_cluster(context: RunContext) -> InstallCluster | None:
    """Return the installation that makes Helm delete the cluster of a standby that was withdrawn.

    Helm's newest revision has that cluster, so it would restore whatever is deleted of it.  What Helm leaves, as of a
    revision that was refused, is pruned afterwards.
    """
    recorded, found, handoff = context.status.cluster, context.observation.cluster_objects, context.status.handoff
    run = context.active_run
    if recorded is None or run is None or run.cluster_generation != recorded.generation:
        return None
    if not isinstance(found, Known):
        return None
    if handoff is not None and not handoff.withdrawn:
        return None
    if recorded.config_hash != context.desired.cluster or recorded.workers != context.spec.cluster.workers:
        return None  # another rule installs a cluster, and Helm deletes what that has not
    newer = any(each.generation > recorded.generation for each in found.value.found)
    return InstallCluster(values=values(context, recorded)) if newer else None


def _is_outdated(context: RunContext, standby: HandoffStatus) -> bool:
    return bool(why_no_standby(context, standby, context.spec, context.references))


def _has_its_own_epoch(context: RunContext, run: RunStatus) -> bool:
    """Return whether a run that works under the row's epoch is one of the spec, and to stay."""
    if context.spec.restart.standby is not Standby.WARM or context.spec.stateful is not None:
        return False
    if run.spec_hash != context.desired.run or run.finishes or run.stop_requested_at is not None:
        return False
    return (context.row.epoch, context.row.driver) == (run.epoch, run.pod_uid)


def _may_begin(context: RunContext, run: RunStatus) -> bool:
    """Return whether a standby may start now: while nothing is wrong, and not sooner after one that failed than due."""
    observation, failed, failure = context.observation, context.status.standby, context.status.failure
    if context.status.handoff is not None or any(job.epoch > run.epoch for job in context.runs):
        return False
    if not _is_all_known(context) or observation.rewinds != Known(()):
        return False
    if failure is not None and failure.count:  # the next run may need a smaller batch
        return False
    is_due = failed is None or failed.next_attempt_at is None or failed.next_attempt_at <= context.now
    return is_due or failed is None or failed.revision != _revision(context)


def _revision(context: RunContext) -> str:
    return revision_of(context.pipeline, context.spec, context.references.hashes).name


def _begin(context: RunContext, run: RunStatus) -> tuple[Status, Action | None]:
    """Record the standby, then its cluster is installed; without workers its Job is created."""
    target = next_cluster(context) if context.spec.cluster.exists else None
    if target is None and context.spec.cluster.exists:
        return context.status, None
    standby = HandoffStatus(
        name=names.job_name(context.pipeline.key.name, run.epoch + 1),
        epoch=run.epoch + 1,
        spec_hash=context.desired.run,
        cluster_generation=target.generation if target is not None else 0,
        revision=_revision(context),
        code=code_identity(context.spec),
        since=context.now,
        cluster=replace(target, avoided_nodes=_elsewhere(run, target.avoided_nodes)) if target is not None else None,
        standby=True,
    )
    return _step(replace(context, status=replace(context.status, handoff=standby)), run, standby)


def _elsewhere(run: RunStatus, avoided: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the nodes that the standby had better not be on: the loss of one must not take both runs."""
    return tuple(sorted({*avoided, *((run.node_name,) if run.node_name else ())}))


def _bring_up(context: RunContext, run: RunStatus, standby: HandoffStatus) -> tuple[Status, Action | None]:
    job = job_named(context.runs, standby.name)
    if job is not None and has_ended(job):
        return _failed(context, standby, diagnose_end(job, job.name), job)
    if job is not None and is_warm(job):
        return replace(context.status, standby=None), None
    if found := _obstruction(context, standby, job):
        return _failed(context, standby, found, job)
    return _step(context, run, standby) if job is None else (context.status, None)


def _step(context: RunContext, run: RunStatus, standby: HandoffStatus) -> tuple[Status, Action | None]:
    """Return the next step: the cluster, then the Job once that has a master."""
    cluster, beside = standby.cluster, _beside(context, standby)
    if not _is_all_known(context):
        return context.status, None
    if cluster is not None and not is_up_to_date(beside, cluster):
        return context.status, InstallCluster(values=values(beside, cluster), keep=run.cluster_generation)
    if cluster is not None and cluster_is_not_ready(beside, cluster) is not None:
        return context.status, None
    return context.status, _start(beside, run, standby)


def _is_all_known(context: RunContext) -> bool:
    """Return whether Kafka answers, and all is known of Kubernetes: a standby is worth no start into the unknown."""
    seen = context.observation
    facts = (seen.source, seen.release, seen.cluster, seen.cluster_objects, seen.rewinds)
    return all(isinstance(fact, Known) for fact in facts)


def _beside(context: RunContext, standby: HandoffStatus) -> RunContext:
    """Return the context in which the standby's cluster is the pipeline's."""
    observation = context.observation.seen_from(standby.cluster_generation)
    return replace(context, observation=observation, status=replace(context.status, cluster=standby.cluster))


def _start(context: RunContext, run: RunStatus, standby: HandoffStatus) -> StartRun:
    """Return the creation of the Job; its code is that of the run that works, whose open batch it may repeat."""
    revision = revision_of(context.pipeline, context.spec, context.references.hashes)
    return start_action(
        context,
        epoch=standby.epoch,
        generation=standby.cluster_generation,
        revision=revision,
        code=context.row.code or code_text(context.spec, context.references.hashes, revision.name),
        awaits_epoch=True,
        stands_by=True,
        avoided_nodes=standby.cluster.avoided_nodes if standby.cluster is not None else _elsewhere(run),
    )


def _obstruction(context: RunContext, standby: HandoffStatus, job: Run | None) -> Diagnosis | None:
    """Return why the standby is not waited for any longer: for want of room, or for too long."""
    seen = context.observation.cluster_of(standby.cluster_generation)
    own = (job.issue, job.pod.issue if job.pod is not None else None) if job is not None else ()
    issues = [issue for issue in (*own, *(seen.issues if seen is not None else ())) if issue is not None]
    diagnoses = (diagnose_pod_issue(issue) for issue in issues)
    found = next((each for each in diagnoses if each.category is not Reason.PROBE_FAILED), None)
    waited = waited_for(context, standby)
    if found is not None and found.category is Reason.QUOTA_EXCEEDED:
        return found
    if found is not None and found.category in NO_ROOM and waited >= START_PATIENCE:
        return found
    longest = START_PATIENCE + timedelta(seconds=context.spec.restart.start_timeout)
    if waited < longest:
        return None
    late = f"{standby.name} is not warm after {format_duration(longest.total_seconds())}"
    return found or Diagnosis(category=Reason.NEVER_CLAIMED, summary=late)


def _failed(
    context: RunContext, standby: HandoffStatus, found: Diagnosis, job: Run | None
) -> tuple[Status, Action | None]:
    """Record why the pipeline runs without a standby, and until when; what it took is freed."""
    before, status = context.status.standby, without_handoff(context.status)
    failures = before.failures + 1 if before is not None and before.revision == standby.revision else 1
    delay = min(START_PATIENCE * 2 ** min(failures - 1, 10), LONGEST_BACKOFF)
    failed = StandbyStatus(
        revision=standby.revision,
        failures=failures,
        message=detail(found.message),
        remedy=found.remedy,
        next_attempt_at=context.now + delay,
    )
    action = StopRun(name=standby.name) if job is not None and not job.deleting else None
    return replace(status, standby=failed), action
