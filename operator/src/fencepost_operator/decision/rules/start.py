"""When no run is active: take the fence over, bring up the cluster, start the next run."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost.contract import SESSION_LIMIT
from fencepost_operator.actions import InstallCluster, StartRun, StopRun
from fencepost_operator.api import ClusterStatus, Reason, Revision, RunStatus, State
from fencepost_operator.decision.cluster.readiness import is_up_to_date, target_cluster, values
from fencepost_operator.decision.cluster.silent_nodes import nodes_to_avoid
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.outcome import KUBERNETES_REASONS, Outcome, reconciling, unobservable
from fencepost_operator.decision.rules.cluster_removal import cluster_is_superfluous, forgotten
from fencepost_operator.decision.rules.upgrade import damage_is_repaired
from fencepost_operator.decision.run.diagnosis import pod_issue
from fencepost_operator.decision.run.liveness import has_ended, stop_timeout
from fencepost_operator.decision.run.open_batch import mixed_output
from fencepost_operator.decision.run.takeover import has_failed, state_before_run, take_over
from fencepost_operator.decision.specs.revisions import needed_revisions
from fencepost_operator.decision.status import TOO_LARGE, attempts_used, planned_records
from fencepost_operator.desired import names
from fencepost_operator.desired.identity.code import code_identity, code_text, output_shape
from fencepost_operator.desired.identity.revision import controller_revision, revision_of
from fencepost_operator.desired.jobs.driver_config import driver_config
from fencepost_operator.desired.jobs.run_config import run_config
from fencepost_operator.desired.jobs.run_job import run_job
from fencepost_operator.observation import Known, Unknown

FRESH: Final = timedelta(seconds=30)
"""Age of a cluster whose master is expected soon. No driver starts early that must claim before it stops waiting."""


def next_run(context: RunContext) -> Outcome:
    """Take the next step towards the next run."""
    if outcome := late_job_is_stopped(context) or fence_is_held(context):
        return outcome
    if not context.spec.cluster.exists:
        superfluous = cluster_is_superfluous(context, state_before_run(context))
        return superfluous or epoch_is_used(context) or start_run(context, None)
    cluster = require_cluster(context)
    if isinstance(cluster, Outcome):
        return cluster
    # The epoch first: it is taken over while the cluster starts.
    return epoch_is_used(context) or cluster_is_not_ready(context, cluster) or start_run(context, cluster)


def late_job_is_stopped(context: RunContext) -> Outcome | None:
    """Stop a second Job of the last run, which was created after that had ended.

    A create that timed out may take effect when another attempt has succeeded and its Job is gone.  The second driver
    cannot claim the epoch, but it would start beside the next one on the same Spark cluster.
    """
    run, job = context.run, context.job
    if run is None or not run.dead or job is None or job.orphaned or has_ended(job):
        return None
    pod = job.pod
    if run.created_at is None or job.created_at <= run.created_at or (pod is not None and pod.uid == run.pod_uid):
        return None
    requested = pod.deleting_since if pod is not None else None
    overdue = requested is not None and context.now - requested > stop_timeout(job, context.config.stop_margin)
    message = f"A second Job {run.name} was created after that run had ended"
    if overdue or (pod is not None and pod.node_ready is False):
        status = replace(context.status, run=replace(run, dead=False))
        return reconciling(context, Reason.STOP_TIMED_OUT, f"{message}; nothing proves its end", status=status)
    return reconciling(
        context,
        Reason.STOPPING,
        f"{message}; it is stopped before the next run starts",
        state=state_before_run(context),
        action=None if job.deleting else StopRun(name=run.name),
    )


def fence_is_held(context: RunContext) -> Outcome | None:
    """Take over from whoever claimed last: a dead driver, another object's, or another Kubernetes cluster's."""
    row = context.row
    if row.driver is not None:
        return take_over(context, "The last run has ended")
    if row.owner != context.owner:
        return take_over(context, "The checkpoint is taken over from another pipeline object")
    return None


def require_cluster(context: RunContext) -> ClusterStatus | Outcome:
    """Return the cluster that the run will use, or bring it up; what it will be is recorded first."""
    for fact in (context.observation.cluster, context.observation.release):
        if isinstance(fact, Unknown):
            reason = KUBERNETES_REASONS[fact.reason]
            return unobservable(context, reason, fact, what="The Spark cluster cannot be observed")
    target, recorded = target_cluster(context), context.status.cluster
    if target is None:
        return reconciling(context, Reason.PROVISIONING, "Looking for the Spark cluster")
    if recorded is not None and is_up_to_date(context, target):
        return damage_is_repaired(context) or recorded
    return reconciling(
        context,
        Reason.PROVISIONING,
        f"Installing Spark cluster {names.cluster_name(context.pipeline.key.name, target.generation)} "
        f"with {target.workers} {'worker' if target.workers == 1 else 'workers'}",
        state=state_before_run(context),
        action=InstallCluster(values=values(context, target)),
        status=replace(context.status, cluster=target),
    )


def cluster_is_not_ready(context: RunContext, recorded: ClusterStatus) -> Outcome | None:
    """Wait for the master; workers may join while the driver starts, unless none can and a pod says why.

    The driver of a new cluster starts beside its master, whose volume takes some seconds, and waits for its port.  A
    master that needs much longer, or was ready before and is not now, may need longer than a driver waits.
    """
    cluster = context.observation.cluster
    seen = cluster.value if isinstance(cluster, Known) else None
    issue = pod_issue(context)
    if seen is not None and seen.master_ready and (seen.ready_workers or issue is None):
        return None
    is_fresh = context.now - recorded.requested_at < FRESH and context.spec.restart.start_timeout > SESSION_LIMIT
    comes_soon = seen is not None and (seen.master_runs or is_fresh)
    if comes_soon and recorded.ready_at is None and issue is None:
        return None
    if issue is None:
        return reconciling(
            context, Reason.PROVISIONING, "Waiting for the Spark master", state=state_before_run(context)
        )
    return reconciling(
        context,
        issue.category,
        issue.message,
        remedy=issue.remedy,
        state=state_before_run(context),
        warning=True,
    )


def epoch_is_used(context: RunContext) -> Outcome | None:
    """Begin a new epoch for each run; one that never had a run is used, not skipped."""
    run, row = context.run, context.row
    if row.epoch == 0:
        return take_over(context, "The first run needs an epoch")
    if run is not None and run.epoch == row.epoch and run.created_at is not None:
        return take_over(context, f"{run.name} has ended")
    waited = next((job for job in context.runs if job.epoch == row.epoch and job != context.job), None)
    if waited is not None and (run is None or run.epoch < row.epoch):
        return take_over(context, f"{waited.name} waited for its epoch and does not claim it")
    return None


def start_run(context: RunContext, cluster: ClusterStatus | None) -> Outcome:
    """Record the run under the row's epoch, then create its Job; without a cluster the driver's pod runs the tasks."""
    status, row, run = context.status, context.row, context.run
    revision = _revision(context)
    code = (
        row.code if context.finishes and row.code else code_text(context.spec, context.references.hashes, revision.name)
    )
    recorded = RunStatus(
        name=names.job_name(context.pipeline.key.name, row.epoch),
        epoch=row.epoch,
        spec_hash=context.desired.run,
        cluster_generation=cluster.generation if cluster is not None else 0,
        recorded_at=run.recorded_at if run is not None and run.epoch == row.epoch else context.now,
        resumed_from=row.committed_at,
        resumed_offsets=sum(row.offsets.values()),
        resumed_dead_letters=row.dead_letters,
        revision=revision.name,
        finishes=True if context.finishes else None,
        first_recorded_at=_first_recorded_at(context),
        code=code_identity(context.spec),
        output=output_shape(context.spec, context.references.hashes),
    )
    where = f"on cluster generation {cluster.generation}" if cluster is not None else "without a Spark cluster"
    replaces_failed = run is not None and run.epoch < row.epoch and has_failed(context, run)
    return reconciling(
        context,
        Reason.RUN_STARTED,
        f"Starting {recorded.name} {where}{_cut(context)}",
        state=State.RESTARTING if replaces_failed else State.STARTING,
        action=start_action(
            context, epoch=recorded.epoch, generation=recorded.cluster_generation, revision=revision, code=code
        ),
        status=replace(
            status,
            run=recorded,
            cluster=cluster or forgotten(status.cluster),
            restarts=status.restarts + replaces_failed,
            mixed_output=mixed_output(context, recorded, code),
        ),
    )


def _first_recorded_at(context: RunContext) -> datetime:
    """Return since when runs of this spec are started, one after another."""
    run = context.run
    is_same = run is not None and run.spec_hash == context.desired.run
    return (run.first_recorded_at if is_same and run is not None else None) or context.now


def _cut(context: RunContext) -> str:
    """Return that the planned batch is cut, and why; '' when it is not."""
    limit, failure, planned = first_batch_limit(context), context.status.failure, planned_records(context.row)
    if limit is None or failure is None or planned is None or limit >= planned:
        return ""
    why = "ran out of memory" if failure.reason == Reason.OUT_OF_MEMORY else "made no progress"
    return f"; the planned batch of {planned} records {why} and is cut to {limit}"


def first_batch_limit(context: RunContext) -> int | None:
    """Return how many records the next run may take of the planned batch, None for all of them.

    A batch that ran out of memory or made no progress is tried again at half its size, and half of that each time: the
    claim records the cut batch as the planned one, so the next cut starts from there.  A run that failed so before its
    claim has tried no batch.
    """
    failure, row = context.status.failure, context.row
    if failure is None or not failure.count or failure.reason not in TOO_LARGE or failure.batch_records is None:
        return None
    if context.spec.stateful:  # what tasks have stored of a planned batch's state is of all its records
        return None
    if (failure.spec_hash, failure.retry) != (context.desired.run, context.retry_token):
        return None
    planned = planned_records(row)
    return max(1, planned >> 1) if planned else None


def isolates(context: RunContext) -> bool:
    """Return whether the next run cuts a failing batch down to the record that fails, or names that of a stateful one.

    After some failures in a row of the same batch for which one of its records may be the cause; and where a record was
    found, whatever has changed since: the batch is tried whole first.
    """
    failure = context.status.failure
    if failure is None or not failure.count:
        return False
    if failure.reason == Reason.POISON_RECORD:
        return True
    same = (failure.spec_hash, failure.retry) == (context.desired.run, context.retry_token)
    enough, budget = context.spec.on_poison.failures, context.spec.restart.max_attempts
    is_last = bool(budget) and attempts_used(failure) >= budget - 1
    return same and failure.reason == Reason.BATCH_FAILED and (is_last or failure.repeats >= enough)


def _avoided_nodes(context: RunContext) -> tuple[str, ...]:
    """Return where the driver had better not be: where its cluster is not, or else where that would not be."""
    cluster = context.status.cluster
    if not context.spec.cluster.exists:
        return nodes_to_avoid(context)
    return cluster.avoided_nodes if cluster is not None else ()


def _revision(context: RunContext) -> Revision:
    """Return the revision of the spec that the next run runs with."""
    began = context.observation.began
    if context.finishes and isinstance(began, Known) and began.value.revision:
        return began.value.revision
    return revision_of(context.pipeline, context.spec, context.references.hashes)


def start_action(
    context: RunContext,
    *,
    epoch: int,
    generation: int,
    revision: Revision,
    code: str,
    awaits_epoch: bool = False,
    stands_by: bool = False,
    avoided_nodes: tuple[str, ...] | None = None,
) -> StartRun:
    """Return the creation of the Job of an epoch, which may not have begun."""
    config = driver_config(
        key=context.pipeline.key,
        spec=context.spec,
        references=context.references.hashes,
        config=context.config,
        epoch=epoch,
        generation=generation,
        owner=context.owner,
        first_batch_limit=first_batch_limit(context),
        isolate=isolates(context),
        code=code,
        finish_until=context.finishes.until if context.finishes else {},
        awaits_epoch=awaits_epoch,
        stands_by=stands_by,
    )
    job = run_job(
        pipeline=context.pipeline,
        spec=context.spec,
        config=config,
        generation=generation,
        spec_hash=context.desired.run,
        avoided_nodes=_avoided_nodes(context) if avoided_nodes is None else avoided_nodes,
    )
    return StartRun(
        epoch=epoch,
        job=job,
        config_map=run_config(pipeline=context.pipeline, config=config),
        revision=controller_revision(context.pipeline, revision),
        keep=needed_revisions(context.pipeline.key.name, context.status, context.row),
    )
