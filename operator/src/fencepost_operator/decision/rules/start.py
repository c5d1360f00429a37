"""When no run lives: is one allowed, is the old one fenced, is the cluster there, start."""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.actions import InstallCluster, StartRun, StopRun, TakeOverFence
from fencepost_operator.api import RETRY_ANNOTATION, FailureStatus, Reason, RunStatus, State
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.cluster import desired_cluster, is_outdated_cluster, values
from fencepost_operator.decision.context import Context, Outcome, not_observable, stalled, waiting
from fencepost_operator.decision.rules.health import pod_issue
from fencepost_operator.desired import names
from fencepost_operator.desired.driver_config import driver_config
from fencepost_operator.desired.run_job import run_job
from fencepost_operator.observation import Known, Unknown

FINAL = frozenset({Reason.BAD_SPEC, Reason.DATA_LOSS})
"""Failures that another attempt with the same spec would only repeat."""


def unconfirmed_run_holds_the_fence(context: Context) -> Outcome | None:
    """A driver that may live on is fenced before anything else is thought about."""
    run, row = context.unconfirmed_run, context.row
    if run is None or row.epoch != run.epoch or row.driver is None:
        return None
    return _fence(context, f"{run.name} is not proven dead")


def unconfirmed_run_is_not_deleted(context: Context) -> Outcome | None:
    """What is fenced and may live on is asked to go."""
    run, job = context.unconfirmed_run, context.job
    if run is None or job is None or job.deleting:
        return None
    return waiting(
        context,
        Reason.STOPPING,
        f"{run.name} is fenced; removing it",
        state=_state(context),
        action=StopRun(name=run.name),
        status=replace(context.status, run=replace(run, stop_requested_at=run.stop_requested_at or context.now)),
    )


def needs_intervention(context: Context) -> Outcome | None:
    """Some failures wait for a person, and so does a budget that is used up; a change of the spec tries again."""
    failure = current_failure(context)
    if failure is None:
        return None
    retry = f"or set the annotation {RETRY_ANNOTATION} to a new value"
    if failure.reason in FINAL:
        return stalled(
            context,
            Reason(failure.reason),
            f"Run {failure.epoch} failed: {failure.message}",
            remedy="; ".join(part for part in (failure.remedy, retry) if part),
        )
    budget = context.spec.restart.max_attempts
    if not budget or failure.count < budget:
        return None
    return stalled(
        context,
        Reason.RESTART_BUDGET_EXHAUSTED,
        f"{failure.count} runs in a row failed without a commit, the last one with {failure.reason}: {failure.message}",
        remedy="; ".join(part for part in (failure.remedy, f"change the spec {retry}") if part),
    )


def is_backing_off(context: Context) -> Outcome | None:
    """Runs that fail in a row are tried ever more rarely."""
    failure = current_failure(context)
    if failure is None or failure.next_attempt_at is None or failure.next_attempt_at <= context.now:
        return None
    left = (failure.next_attempt_at - context.now).total_seconds()
    wait = (failure.next_attempt_at - failure.at).total_seconds()
    return waiting(
        context,
        Reason.BACKING_OFF,
        f"{failure.count} runs in a row failed without a commit ({failure.reason}: {failure.message}); "
        f"the next attempt comes {format_duration(wait)} after the last one",
        remedy=failure.remedy,
        state=State.RESTARTING,
        warning=True,
        requeue_after=min(left, context.config.resync),
    )


def current_failure(context: Context) -> FailureStatus | None:
    """Return the failure of the newest run as long as nothing that it hung on has changed."""
    run, failure = context.run, context.status.failure
    if run is None or failure is None or not failure.count or failure.epoch != run.epoch:
        return None
    same = failure.spec_hash == context.desired.run and failure.retry == context.retry
    return failure if same else None


def fence_is_held(context: Context) -> Outcome | None:
    """Take over from whoever claimed last: dead, another object's, or another Kubernetes cluster's."""
    row = context.row
    if row.driver is not None:
        return _fence(context, "The last run is over")
    if row.owner != context.owner:
        return _fence(context, "The checkpoint is taken over from another pipeline object")
    return None


def cluster_is_not_there(context: Context) -> Outcome | None:
    """Bring up the cluster that the run will use; what it will be is recorded first."""
    wanted = desired_cluster(context)
    cluster, release = context.observation.cluster, context.observation.release
    for unseen in (cluster, release):
        if isinstance(unseen, Unknown):
            return not_observable(
                context, Reason.KUBERNETES_UNREACHABLE, unseen, what="The Spark cluster cannot be seen"
            )
    if wanted is None or not is_outdated_cluster(context):
        return None
    return waiting(
        context,
        Reason.PROVISIONING,
        f"Bringing up Spark cluster {names.cluster_name(context.pipeline.key.name, wanted.generation)} "
        f"with {wanted.workers} {'worker' if wanted.workers == 1 else 'workers'}",
        state=_state(context),
        action=InstallCluster(values=values(context, wanted)),
        status=replace(context.status, cluster=wanted),
    )


def cluster_is_not_ready(context: Context) -> Outcome | None:
    """A driver needs the master; workers may join while it starts, unless none can and a pod says why."""
    cluster = context.observation.cluster
    seen = cluster.value if isinstance(cluster, Known) else None
    trouble = pod_issue(context)
    if seen is not None and seen.master_ready and (seen.ready_workers or trouble is None):
        return None
    if trouble is None:
        return waiting(context, Reason.PROVISIONING, "Waiting for the Spark master", state=_state(context))
    return waiting(
        context,
        trouble.category,
        trouble.message,
        remedy=trouble.remedy,
        state=_state(context),
        warning=True,
    )


def epoch_is_used(context: Context) -> Outcome | None:
    """Each run gets an epoch of its own; one that was made and never had a run is used, not skipped."""
    run, row = context.run, context.row
    if row.epoch == 0:
        return _fence(context, "The first run needs an epoch")
    if run is not None and run.epoch == row.epoch and run.created_at is not None:
        return _fence(context, f"{run.name} is over")
    return None


def start_run(context: Context) -> Outcome:
    """Record the run under the row's epoch, then make its Job."""
    status, cluster, row = context.status, context.status.cluster, context.row
    if cluster is None:
        raise TypeError("no cluster is recorded, and a rule before this one must have brought one up")
    run, spec_hash = status.run, context.desired.run
    recorded = RunStatus(
        name=names.job_name(context.pipeline.key.name, row.epoch),
        epoch=row.epoch,
        spec_hash=spec_hash,
        cluster_generation=cluster.generation,
        recorded_at=run.recorded_at if run is not None and run.epoch == row.epoch else context.now,
        resumed_from=row.committed_at,
    )
    replaces_failed = run is not None and run.epoch < row.epoch and _failed(context, run)
    return waiting(
        context,
        Reason.RUN_STARTED,
        f"Starting {recorded.name} on cluster generation {cluster.generation}",
        state=State.RESTARTING if replaces_failed else State.STARTING,
        action=StartRun(epoch=row.epoch, job=_job(context, recorded)),
        status=replace(status, run=recorded, restarts=status.restarts + replaces_failed),
    )


def _failed(context: Context, run: RunStatus) -> bool:
    failure = context.status.failure
    return failure is not None and failure.epoch == run.epoch


def _job(context: Context, run: RunStatus) -> dict[str, object]:
    references = context.observation.references
    config = driver_config(
        key=context.pipeline.key,
        spec=context.spec,
        references=references.value.hashes if isinstance(references, Known) else {},
        config=context.config,
        epoch=run.epoch,
        generation=run.cluster_generation,
    )
    return run_job(
        pipeline=context.pipeline,
        spec=context.spec,
        config=config,
        generation=run.cluster_generation,
        spec_hash=run.spec_hash,
    )


def _fence(context: Context, why: str) -> Outcome:
    row = context.row
    return waiting(
        context,
        Reason.FENCED,
        f"{why}: epoch {row.epoch + 1} begins, and no driver of an older one can commit",
        state=_state(context),
        action=TakeOverFence(epoch=row.epoch, version=row.version, owner=context.owner),
    )


def _state(context: Context) -> State:
    """Return the phase on the way to a new run: why it is needed."""
    run = context.run
    if run is None:
        return State.PROVISIONING
    if _failed(context, run):
        return State.RESTARTING
    return State.UPGRADING if run.spec_hash != context.desired.run else State.PROVISIONING
