"""When no run lives: is one allowed, is the old one fenced, is the cluster there, start."""

from __future__ import annotations

from dataclasses import replace

from fencepost_operator.actions import Fence, InstallCluster, StartRun, StopRun
from fencepost_operator.api import RETRY_ANNOTATION, FailureStatus, Reason, RunStatus, State
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.desired import names
from fencepost_operator.desired.driver_config import driver_config
from fencepost_operator.desired.run_job import run_job
from fencepost_operator.observation import Known, Unknown
from fencepost_operator.rules.cluster import desired_cluster, differs, values
from fencepost_operator.rules.running import trouble_of
from fencepost_operator.rules.situation import Ruling, Situation, holding, stalled, waiting

FINAL = frozenset({Reason.BAD_SPEC, Reason.DATA_LOSS})
"""Failures that another attempt with the same spec would only repeat."""


def doubtful_run_holds_the_fence(situation: Situation) -> Ruling | None:
    """A driver that may live on is fenced before anything else is thought about."""
    run, row = situation.doubtful_run, situation.row
    if run is None or row.epoch != run.epoch or row.driver is None:
        return None
    return _fence(situation, f"{run.name} is not proven dead")


def doubtful_run_lingers(situation: Situation) -> Ruling | None:
    """What is fenced and may live on is asked to go."""
    run, job = situation.doubtful_run, situation.job
    if run is None or job is None or job.deleting:
        return None
    return waiting(
        situation,
        Reason.STOPPING,
        f"{run.name} is fenced; removing it",
        state=_state(situation),
        action=StopRun(name=run.name),
        status=replace(situation.status, run=replace(run, stop_requested_at=run.stop_requested_at or situation.now)),
    )


def is_beyond_repair(situation: Situation) -> Ruling | None:
    """Some failures wait for a person, and so does a budget that is used up; a change of the spec tries again."""
    failure = standing_failure(situation)
    if failure is None:
        return None
    retry = f"or set the annotation {RETRY_ANNOTATION} to a new value"
    if failure.reason in FINAL:
        return stalled(
            situation,
            Reason(failure.reason),
            f"Run {failure.epoch} failed: {failure.message}",
            remedy="; ".join(part for part in (failure.remedy, retry) if part),
        )
    budget = situation.spec.restart.max_attempts
    if not budget or failure.count < budget:
        return None
    return stalled(
        situation,
        Reason.RESTART_BUDGET_EXHAUSTED,
        f"{failure.count} runs in a row failed without a commit, the last one with {failure.reason}: {failure.message}",
        remedy="; ".join(part for part in (failure.remedy, f"change the spec {retry}") if part),
    )


def is_backing_off(situation: Situation) -> Ruling | None:
    """Runs that fail in a row are tried ever more rarely."""
    failure = standing_failure(situation)
    if failure is None or failure.next_attempt_at is None or failure.next_attempt_at <= situation.now:
        return None
    left = (failure.next_attempt_at - situation.now).total_seconds()
    wait = (failure.next_attempt_at - failure.at).total_seconds()
    return waiting(
        situation,
        Reason.BACKING_OFF,
        f"{failure.count} runs in a row failed without a commit ({failure.reason}: {failure.message}); "
        f"the next attempt comes {format_duration(wait)} after the last one",
        remedy=failure.remedy,
        state=State.RESTARTING,
        warning=True,
        again=min(left, situation.policy.resync),
    )


def standing_failure(situation: Situation) -> FailureStatus | None:
    """Return the failure of the newest run as long as nothing that it hung on has changed."""
    run, failure = situation.run, situation.status.failure
    if run is None or failure is None or not failure.count or failure.epoch != run.epoch:
        return None
    same = failure.spec_hash == situation.desired.run and failure.retry == situation.retry
    return failure if same else None


def fence_is_held(situation: Situation) -> Ruling | None:
    """Take over from whoever claimed last: dead, another object's, or another Kubernetes cluster's."""
    row = situation.row
    if row.driver is not None:
        return _fence(situation, "The last run is over")
    if row.owner != situation.owner:
        return _fence(situation, "The checkpoint is taken over from another pipeline object")
    return None


def cluster_is_not_there(situation: Situation) -> Ruling | None:
    """Bring up the cluster that the run will use; what it will be is recorded first."""
    wanted = desired_cluster(situation)
    cluster, release = situation.observation.cluster, situation.observation.release
    for unseen in (cluster, release):
        if isinstance(unseen, Unknown):
            return holding(situation, Reason.KUBERNETES_UNREACHABLE, unseen, what="The Spark cluster cannot be seen")
    if wanted is None or not differs(situation):
        return None
    return waiting(
        situation,
        Reason.PROVISIONING,
        f"Bringing up Spark cluster {names.cluster_name(situation.pipeline.key.name, wanted.generation)} "
        f"with {wanted.workers} {'worker' if wanted.workers == 1 else 'workers'}",
        state=_state(situation),
        action=InstallCluster(values=values(situation, wanted)),
        status=replace(situation.status, cluster=wanted),
    )


def cluster_is_not_ready(situation: Situation) -> Ruling | None:
    """A driver needs the master; workers may join while it starts, unless none can and a pod says why."""
    cluster = situation.observation.cluster
    seen = cluster.value if isinstance(cluster, Known) else None
    trouble = trouble_of(situation)
    if seen is not None and seen.master_ready and (seen.ready_workers or trouble is None):
        return None
    if trouble is None:
        return waiting(situation, Reason.PROVISIONING, "Waiting for the Spark master", state=_state(situation))
    return waiting(
        situation,
        trouble.category,
        trouble.message,
        remedy=trouble.remedy,
        state=_state(situation),
        warning=True,
    )


def epoch_is_spent(situation: Situation) -> Ruling | None:
    """Each run gets an epoch of its own; one that was made and never had a run is used, not skipped."""
    run, row = situation.run, situation.row
    if row.epoch == 0:
        return _fence(situation, "The first run needs an epoch")
    if run is not None and run.epoch == row.epoch and run.created_at is not None:
        return _fence(situation, f"{run.name} is over")
    return None


def run_is_due(situation: Situation) -> Ruling:
    """Record the run under the row's epoch, then make its Job."""
    status, cluster, row = situation.status, situation.status.cluster, situation.row
    if cluster is None:
        raise TypeError("no cluster is recorded, and a rule before this one must have brought one up")
    run, spec_hash = status.run, situation.desired.run
    recorded = RunStatus(
        name=names.job_name(situation.pipeline.key.name, row.epoch),
        epoch=row.epoch,
        spec_hash=spec_hash,
        cluster_generation=cluster.generation,
        recorded_at=run.recorded_at if run is not None and run.epoch == row.epoch else situation.now,
        resumed_from=row.committed_at,
    )
    replaces_failed = run is not None and run.epoch < row.epoch and _failed(situation, run)
    return waiting(
        situation,
        Reason.RUN_STARTED,
        f"Starting {recorded.name} on cluster generation {cluster.generation}",
        state=State.RESTARTING if replaces_failed else State.STARTING,
        action=StartRun(epoch=row.epoch, job=_job(situation, recorded)),
        status=replace(status, run=recorded, restarts=status.restarts + replaces_failed),
    )


def _failed(situation: Situation, run: RunStatus) -> bool:
    failure = situation.status.failure
    return failure is not None and failure.epoch == run.epoch


def _job(situation: Situation, run: RunStatus) -> dict[str, object]:
    references = situation.observation.references
    config = driver_config(
        key=situation.pipeline.key,
        spec=situation.spec,
        references=references.value.hashes if isinstance(references, Known) else {},
        policy=situation.policy,
        epoch=run.epoch,
        generation=run.cluster_generation,
    )
    return run_job(
        pipeline=situation.pipeline,
        spec=situation.spec,
        config=config,
        generation=run.cluster_generation,
        spec_hash=run.spec_hash,
    )


def _fence(situation: Situation, why: str) -> Ruling:
    row = situation.row
    return waiting(
        situation,
        Reason.FENCED,
        f"{why}: epoch {row.epoch + 1} begins, and no driver of an older one can commit",
        state=_state(situation),
        action=Fence(epoch=row.epoch, version=row.version, owner=situation.owner),
    )


def _state(situation: Situation) -> State:
    """Return the phase on the way to a new run: why it is needed."""
    run = situation.run
    if run is None:
        return State.PROVISIONING
    if _failed(situation, run):
        return State.RESTARTING
    return State.UPGRADING if run.spec_hash != situation.desired.run else State.PROVISIONING
