"""Handoff: the next run starts beside the one that works, and gets warm, before that one is asked to stop.

The run that works is stopped by `upgrade.run_is_outdated`, as for any change; the rule here comes before it, and waits.
The next run may change nothing before its epoch begins.  Its Job and its cluster have names of their own, so whatever
happens to either run, the rules for the next epoch find that it has begun, that its Job has used it, or nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Final

from fencepost_operator.actions import InstallCluster, StopRun
from fencepost_operator.api import (
    ClusterStatus,
    HandoffStatus,
    Reason,
    RollbackStatus,
    RunStatus,
    Spec,
    Standby,
    State,
    UpgradeStrategy,
)
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.cluster.readiness import has_lost_its_master, is_up_to_date, next_cluster, values
from fencepost_operator.decision.context import Context, RunContext
from fencepost_operator.decision.outcome import Outcome, reconciling
from fencepost_operator.decision.rules.health import has_started, offsets_are_unread, topics_are_missing
from fencepost_operator.decision.rules.rollback import BY_THE_IMAGE
from fencepost_operator.decision.rules.start import cluster_is_not_ready, start_action
from fencepost_operator.decision.rules.upgrade import cause, damage_is_repaired, restarts_since
from fencepost_operator.decision.run.diagnosis import ENVIRONMENT, Diagnosis, diagnose_end, diagnose_pod_issue
from fencepost_operator.decision.run.handoff import standby_of, waiting_run, without_handoff
from fencepost_operator.decision.run.liveness import has_ended, stop_timeout
from fencepost_operator.decision.run.open_batch import START_PATIENCE
from fencepost_operator.decision.specs.rollout import was_ready
from fencepost_operator.decision.wording import detail
from fencepost_operator.desired import names
from fencepost_operator.desired.identity.code import code_identity, code_text
from fencepost_operator.desired.identity.hashes import fingerprints
from fencepost_operator.desired.identity.revision import revision_of
from fencepost_operator.desired.identity.spec_identity import attempt
from fencepost_operator.observation import Known, References, Run, Unknown

NO_ROOM: Final = frozenset({Reason.QUOTA_EXCEEDED, Reason.UNSCHEDULABLE})
"""What keeps a pod from starting beside the run that works, and may not once that has stopped."""

MASTER_LOST: Final = "its Spark master was drained or deleted"


def next_run_is_unwanted(context: Context) -> Outcome | None:
    """Stop a run that waits for its epoch where that is not to be its: before the epoch may begin for another reason.

    A suspension and a rewind wait for its end, for as long as it may take: a driver that is lost is fenced later.
    """
    job = waiting_run(context)
    if job is None or not (why := _why_unwanted(context, job)):
        return None
    if not job.deleting:
        outcome = reconciling(
            context,
            Reason.STOPPING,
            f"{why}: stopping {job.name}, which has not begun",
            action=StopRun(name=job.name),
            status=without_handoff(context.status),
        )
        beside_a_healthy_run = standby_of(context.status) is not None and not _is_held_back(context)
        return replace(outcome, ready=beside_a_healthy_run and was_ready(context))
    if not _is_held_back(context) or has_ended(job) or _is_overdue(context, job):
        return None
    return reconciling(context, Reason.STOPPING, f"{why}: waiting for {job.name} to stop")


def _why_unwanted(context: Context, job: Run) -> str:
    handoff, spec = context.status.handoff, context.pipeline.spec
    if isinstance(spec, Spec) and spec.suspend:
        return "Suspending"
    if _rewinds(context):
        return "Rewinding"
    if handoff is None or handoff.name != job.name or handoff.withdrawn:
        return "The run that works stays"
    return _why_outdated(context, job, handoff)


def _why_outdated(context: Context, job: Run, handoff: HandoffStatus) -> str:
    spec, references = context.pipeline.spec, context.observation.references
    if job.spec_hash != handoff.spec_hash:  # the creation of a Job that was withdrawn may take effect late
        return "The spec has changed since its creation"
    if not isinstance(spec, Spec) or not isinstance(references, Known):
        return ""
    if handoff.standby:
        return why_no_standby(context, handoff, spec, references.value)
    now = fingerprints(spec, references.value.hashes, context.config.chart).run
    return "The spec has changed again" if now != handoff.spec_hash else ""


def why_no_standby(context: Context, standby: HandoffStatus, spec: Spec, references: References) -> str:
    """Return why a standby is not to take over, '' where it is: another one has the newest spec, also of the next run.

    It has as many workers as the run that works: what replaces that one must do its load.
    """
    if spec.restart.standby is not Standby.WARM:
        return "No standby is asked for"
    now = fingerprints(spec, references.hashes, context.config.chart).run
    if (now, revision_of(context.pipeline, spec, references.hashes).name) != (standby.spec_hash, standby.revision):
        return "The spec has changed"
    if standby.cluster is not None and standby.cluster.workers != spec.cluster.workers:
        return "The number of workers has changed"
    return ""


def _is_held_back(context: Context) -> bool:
    spec = context.pipeline.spec
    return (isinstance(spec, Spec) and spec.suspend) or _rewinds(context)


def _rewinds(context: Context) -> bool:
    rewinds = context.observation.rewinds
    asked = rewinds.value if isinstance(rewinds, Known) else ()
    return any(not rewind.status.is_finished and not rewind.is_cancelled for rewind in asked)


def _is_overdue(context: Context, job: Run) -> bool:
    since = job.pod.deleting_since if job.pod is not None else None
    return since is None or context.now - since > stop_timeout(job, context.config.stop_margin)


def next_run_gets_warm(context: RunContext) -> Outcome | None:
    """Start the next run beside the one that works, and wait until it is warm; None once the other one may stop."""
    run, handoff = context.active_run, context.status.handoff
    if run is None or not _is_asked_for(context, run):
        return None
    if handoff is None:
        return _begin(context, run)
    if handoff.withdrawn:
        return _await_its_end(context, handoff)
    if (handoff.spec_hash, handoff.epoch) != (context.desired.run, context.row.epoch + 1):
        what = f"{handoff.name} is not to take over any more"
        return replace(_upgrading(context, run, handoff, what), status=without_handoff(context.status))
    return None if handoff.given_up else _get_warm(context, run, handoff)


def _await_its_end(context: RunContext, handoff: HandoffStatus) -> Outcome | None:
    """Wait until the name of a next run that was withdrawn is free; where that takes too long, no other one waits."""
    job = next((job for job in context.runs if job.name == handoff.name), None)
    if job is not None and job.deleting and _is_overdue(context, job):
        return None
    return _looking(context, f"the end of {handoff.name}, which is not to take over any more")


def _get_warm(context: RunContext, run: RunStatus, handoff: HandoffStatus) -> Outcome | None:
    job = next((job for job in context.runs if job.name == handoff.name), None)
    if job is not None and has_ended(job):
        return _failed(context, run, handoff, diagnose_end(job, job.name))
    if _has_lost_its_master(context, handoff):
        return _give_up(context, run, handoff, MASTER_LOST)
    if job is None:
        prepared = _await_kafka(context, handoff) or _obstructed(context, run, handoff, job)
        return prepared or _bring_up_cluster(context, run, handoff) or _start(context, run, handoff)
    if outcome := _obstructed(context, run, handoff, job):
        return outcome
    if job.pod is not None and job.pod.ready:
        return None
    waits = damage_is_repaired(context)
    warming = _upgrading(context, run, handoff, f"{job.name} gets warm beside {run.name}, which continues")
    return warming if waits is None else replace(waits, state=State.UPGRADING)


def _has_lost_its_master(context: RunContext, handoff: HandoffStatus) -> bool:
    """Return whether the run that works has lost its master: a drain waits for its end, as in `master_is_lost`."""
    return handoff.cluster is not None and has_lost_its_master(context, handoff.cluster)


def _await_kafka(context: RunContext, handoff: HandoffStatus) -> Outcome | None:
    """Start no run while Kafka is silent; after a long silence begin again, so that the run has its time to start."""
    outcome = offsets_are_unread(context)
    if outcome is None or waited_for(context, handoff) < START_PATIENCE:
        return outcome
    return replace(outcome, status=without_handoff(context.status))


def _is_asked_for(context: RunContext, run: RunStatus) -> bool:
    """Return whether a run that works is to be replaced by another one of the pipeline's own spec."""
    spec, row = context.spec, context.row
    if spec.upgrade.strategy is not UpgradeStrategy.HANDOFF or spec.stateful is not None:
        return False
    if context.pipeline.superseded is not None or context.pipeline.refused or context.finishes is not None:
        return False
    if run.spec_hash == context.desired.run or run.finishes or run.stop_requested_at is not None:
        return False
    if (row.epoch, row.driver) != (run.epoch, run.pod_uid) or not has_started(context, run):
        return False
    recorded = context.status.cluster
    # Without its master the run is stopped at once: no drain waits for the next one to be warm.
    return context.status.handoff is not None or recorded is None or not has_lost_its_master(context, recorded)


def _begin(context: RunContext, run: RunStatus) -> Outcome | None:
    """Record the next run, then install its cluster; None where the run that works has to be stopped first."""
    name, working = names.job_name(context.pipeline.key.name, context.row.epoch + 1), context.observation.working
    what = f"revision {run.revision}, with which {run.name} runs"
    if context.pipeline.status.handoff is not None:  # over since this pass: what the next one needs was not asked for
        return replace(_looking(context, what), requeue_after=0.0)
    if isinstance(working, Unknown) and working.is_transient:
        return _looking(context, what)
    if not _may_begin(context, run) or any(job.name == name for job in context.runs):
        return None
    if outcome := offsets_are_unread(context):
        return outcome
    target = next_cluster(context) if context.spec.cluster.exists else None
    if target is None and context.spec.cluster.exists:
        return _looking(context, "the Spark cluster")
    begun = HandoffStatus(
        name=name,
        epoch=context.row.epoch + 1,
        spec_hash=context.desired.run,
        cluster_generation=target.generation if target is not None else 0,
        revision=revision_of(context.pipeline, context.spec, context.references.hashes).name,
        code=code_identity(context.spec),
        since=context.now,
        cluster=context.status.cluster,
    )
    status = replace(
        context.status,
        handoff=begun,
        cluster=target or context.status.cluster,
        planned_restart_since=restarts_since(context),
    )
    outcome = _upgrading(context, run, begun, f"{name} starts beside {run.name}, which continues")
    action = _install(context, run, target) if target is not None else None
    return replace(outcome, status=status, action=action, requeue_after=0.0)


def _may_begin(context: RunContext, run: RunStatus) -> bool:
    """Return whether the next run may start beside the one that works.

    Not where only one of the two has a Spark cluster; nor where the spec of the one that works is not kept, or what it
    names has changed: the pipeline could not continue with it if the next one fails.
    """
    if not context.observation.may_restart or topics_are_missing(context) or _rewinds(context):
        return False
    if context.spec.cluster.exists != bool(run.cluster_generation):
        return False
    working = context.observation.working
    kept = working.value if isinstance(working, Known) else None
    spec = kept.revision.spec if kept is not None and kept.revision is not None else None
    if kept is None or not isinstance(spec, Spec):
        return False
    return fingerprints(spec, kept.references.hashes, context.config.chart).run == run.spec_hash


def _looking(context: RunContext, what: str) -> Outcome:
    return reconciling(context, Reason.UPGRADING, f"Upgrading: looking for {what}", state=State.UPGRADING)


def _bring_up_cluster(context: RunContext, run: RunStatus, handoff: HandoffStatus) -> Outcome | None:
    recorded = context.status.cluster
    if not handoff.cluster_generation or recorded is None:
        return None
    target = replace(recorded, workers=context.spec.cluster.workers)
    if not is_up_to_date(context, target):
        outcome = _upgrading(context, run, handoff, f"{run.name} continues while a second Spark cluster is installed")
        return replace(outcome, action=_install(context, run, target), status=replace(context.status, cluster=target))
    waits = damage_is_repaired(context) or cluster_is_not_ready(context, recorded)
    return replace(waits, state=State.UPGRADING) if waits is not None else None


def _install(context: RunContext, run: RunStatus, target: ClusterStatus) -> InstallCluster:
    return InstallCluster(values=values(context, target), keep=run.cluster_generation)


def _start(context: RunContext, run: RunStatus, handoff: HandoffStatus) -> Outcome:
    revision = revision_of(context.pipeline, context.spec, context.references.hashes)
    action = start_action(
        context,
        epoch=handoff.epoch,
        generation=handoff.cluster_generation,
        revision=revision,
        code=code_text(context.spec, context.references.hashes, revision.name),
        awaits_epoch=True,
    )
    return replace(_upgrading(context, run, handoff, f"Starting {handoff.name} beside {run.name}"), action=action)


def _upgrading(context: RunContext, run: RunStatus, handoff: HandoffStatus, message: str) -> Outcome:
    where = f" on cluster generation {handoff.cluster_generation}" if handoff.cluster_generation else ""
    why = f"Upgrading to {cause(run, context)}{where}"
    return reconciling(context, Reason.UPGRADING, f"{why}: {message}", state=State.UPGRADING)


def _obstructed(context: RunContext, run: RunStatus, handoff: HandoffStatus, job: Run | None) -> Outcome | None:
    """Conclude that the next run does not get warm: for want of room, for its image, or for too long."""
    found, waited = _issue(context, job), waited_for(context, handoff)
    is_final = waited >= START_PATIENCE
    if found is not None and found.category in NO_ROOM and (is_final or found.category is Reason.QUOTA_EXCEEDED):
        return _give_up(context, run, handoff, f"the quota or the nodes have no room for a second run: {found.message}")
    if found is not None and found.category in BY_THE_IMAGE and is_final:
        return _back_out(context, run, handoff, found.category, found.message)
    longest = START_PATIENCE + timedelta(seconds=context.spec.restart.start_timeout)
    if waited < longest:
        return None
    late = f"it is not warm after {format_duration(longest.total_seconds())}"
    category, why = (found.category, f"{late}: {found.message}") if found is not None else (Reason.NEVER_CLAIMED, late)
    return _back_out(context, run, handoff, category, why)


def waited_for(context: RunContext, handoff: HandoffStatus) -> timedelta:
    """Return for how long the next run has been to start, by this operator's clock alone.

    Another one's may be minutes behind, and a healthy next run would be out of time at the first look.
    """
    return context.now - max(handoff.since, context.observation.measured_since or handoff.since)


def _issue(context: RunContext, job: Run | None) -> Diagnosis | None:
    """Return what keeps a pod of the next run from starting; that it does not pass its probe says that it is not warm.

    Issues of the newest cluster are the next run's.
    """
    seen = context.observation.cluster_of(context.status.cluster.generation) if context.status.cluster else None
    own = (job.issue, job.pod.issue if job.pod else None) if job is not None else ()
    issues = [issue for issue in (*own, *(seen.issues if seen is not None else ())) if issue is not None]
    found = (diagnose_pod_issue(issue) for issue in issues)
    return next((each for each in found if each.category is not Reason.PROBE_FAILED), None)


def _failed(context: RunContext, run: RunStatus, handoff: HandoffStatus, end: Diagnosis) -> Outcome:
    """Conclude that the next run has ended before its epoch: try again where its surroundings are the cause.

    An outage may last, and each try installs a cluster: they begin at least START_PATIENCE apart.
    """
    if end.category is Reason.FENCED_OUT:
        return _give_up(context, run, handoff, f"its image does not wait for its epoch: {end.message}")
    if end.category not in ENVIRONMENT:
        return _back_out(context, run, handoff, end.category, end.message)
    if _has_lost_its_master(context, handoff):
        return _give_up(context, run, handoff, MASTER_LOST)
    left = START_PATIENCE - waited_for(context, handoff)
    if left > timedelta():
        again = f"{handoff.name} ended and is started again in {format_duration(math.ceil(left.total_seconds()))}"
        waits = _upgrading(context, run, handoff, f"{again}: {detail(end.message)}")
        return replace(waits, requeue_after=min(left.total_seconds(), context.config.resync_interval))
    outcome = _upgrading(context, run, handoff, f"{handoff.name} ended and is started again: {detail(end.message)}")
    return replace(outcome, action=StopRun(name=handoff.name), status=without_handoff(context.status))


def _give_up(context: RunContext, run: RunStatus, handoff: HandoffStatus, why: str) -> Outcome:
    """Record that the run that works is stopped first."""
    status = replace(context.status, handoff=replace(handoff, given_up=detail(why)))
    outcome = _upgrading(context, run, handoff, f"{run.name} is stopped first, for {why}")
    return replace(outcome, status=status, requeue_after=0.0)


def _back_out(context: RunContext, run: RunStatus, handoff: HandoffStatus, reason: Reason, why: str) -> Outcome:
    """Record that the spec of the run that works stays in effect, until the object asks for something else."""
    reported = RollbackStatus(
        revision=run.revision,
        failed=handoff.revision,
        failed_spec=attempt(context.spec, context.references.hashes),
        at=context.now,
        reason=reason,
        message=detail(f"The next run failed before it took over: {why}"),
        retry=context.retry_token,
    )
    return reconciling(
        context,
        Reason.ROLLED_BACK,
        f"{reported.message}; {run.name} continues with revision {run.revision}",
        warning=True,
        status=replace(without_handoff(context.status), rolled_back=reported, planned_restart_since=None),
        requeue_after=0.0,
    )
