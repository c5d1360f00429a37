"""While a run lives: is it the right one, does it move, does it have what it needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.actions import InstallCluster, TakeOverFence
from fencepost_operator.api import Reason, RunStatus, State
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.cluster import desired_cluster, is_outdated_cluster, values
from fencepost_operator.decision.context import Context, Outcome, not_observable, waiting
from fencepost_operator.decision.diagnosis import Diagnosis, diagnose_pod_issue
from fencepost_operator.decision.rules.suspend import stop
from fencepost_operator.decision.status import failure_after, has_progressed
from fencepost_operator.observation import Known, Unknown, UnknownReason

BEHIND: Final = 2
"""Batches of lag from which a run is catching up; it has caught up at half of that."""
STALL_FACTOR: Final = 3
"""Intervals, or times the last batch took, that may pass without a commit."""


def is_being_stopped(context: Context) -> Outcome | None:
    """A run that was asked to stop is over for us, whatever it was asked for."""
    run = context.active_run
    if run is None or run.stop_requested_at is None:
        return None
    changed = run.spec_hash != context.desired.run
    state, why = (State.UPGRADING, "Upgrading") if changed else (State.RESTARTING, "Restarting")
    return stop(context, run, why=why, reason=Reason.STOPPING, state=state)


def is_superseded(context: Context) -> Outcome | None:
    """A run of an older epoch can commit nothing; it will find out, and is helped to."""
    run, row = context.active_run, context.row
    if run is None or row.epoch <= run.epoch:
        return None
    why = f"The fence moved on to epoch {row.epoch} without {run.name}"
    return stop(context, run, why=why, reason=Reason.SUPERSEDED, state=State.RESTARTING)


def is_unresponsive(context: Context) -> Outcome | None:
    """A driver that could commit and does not is fenced first; it may be frozen and come back at any moment.

    It is given up in the status before it is fenced, so that a crash in between changes nothing.
    """
    run = context.active_run
    if run is None:
        return None
    diagnosis = _never_claimed(context, run) or _stalled(context, run)
    if diagnosis is None:
        return None
    status, row = context.status, context.row
    failure = failure_after(
        context.pipeline, status, run, diagnosis, progressed=has_progressed(run, row), now=context.now
    )
    given_up = replace(run, ended_at=context.now, dead=False)
    return waiting(
        context,
        diagnosis.category,
        diagnosis.message,
        remedy=diagnosis.remedy,
        state=State.RESTARTING,
        warning=True,
        status=replace(status, run=given_up, failure=failure),
        action=TakeOverFence(epoch=row.epoch, version=row.version, owner=context.owner),
    )


def _never_claimed(context: Context, run: RunStatus) -> Diagnosis | None:
    if run.claimed_at is not None or run.started_at is None:
        return None
    limit = timedelta(seconds=context.config.start_timeout)
    if not _passed(context, limit, run.started_at):
        return None
    return Diagnosis(
        category=Reason.NEVER_CLAIMED,
        summary=f"{run.name} has not claimed its epoch within {format_duration(limit.total_seconds())} of its start",
        remedy="read the driver's log with kubectl logs",
    )


def _stalled(context: Context, run: RunStatus) -> Diagnosis | None:
    committed = context.status.committed
    if run.claimed_at is None or not context.status.lag or committed is None or committed.since is None:
        return None
    limit = stall_limit(context)
    if not _passed(context, limit, committed.since, run.claimed_at):
        return None
    return Diagnosis(
        category=Reason.UNRESPONSIVE,
        summary=f"{run.name} has records to read and has committed nothing for "
        f"{format_duration(limit.total_seconds())}",
        remedy="raise restart.stallTimeout if its batches take that long",
    )


def stall_limit(context: Context) -> timedelta:
    """Return how long a run with records to read may commit nothing."""
    spec, row = context.spec, context.row
    last_batch = (row.duration_ms or 0) / 1000
    return timedelta(
        seconds=max(spec.restart.stall_timeout, STALL_FACTOR * spec.batch_interval, STALL_FACTOR * last_batch)
    )


def _passed(context: Context, limit: timedelta, *since: datetime) -> bool:
    """Return whether all moments are that long ago, Kafka and Cassandra having answered all that time."""
    committed = context.status.committed
    if committed is None or committed.observable_since is None:
        return False
    return context.now - max(committed.observable_since, *since) >= limit


def is_outdated(context: Context) -> Outcome | None:
    """A run of another spec is stopped gracefully, unless the new one could not start at all."""
    run, source = context.active_run, context.observation.source
    if run is None or run.spec_hash == context.desired.run:
        return None
    if isinstance(source, Known) and source.value.missing_topics:
        return topics_are_missing(context)
    why = "Upgrading to the new spec"
    return stop(context, run, why=why, reason=Reason.UPGRADING, state=State.UPGRADING)


def topics_are_missing(context: Context) -> Outcome | None:
    """Topics are the user's to make: Fencepost knows neither their partitions nor their retention."""
    source = context.observation.source
    if not isinstance(source, Known) or not source.value.missing_topics:
        return None
    names = ", ".join(source.value.missing_topics)
    effect = "; the run goes on" if context.active_run else ""
    return waiting(
        context,
        Reason.TOPIC_NOT_FOUND,
        f"Kafka has no topic {names}{effect}",
        remedy="create it, or correct source.kafka.topics",
        warning=True,
        requeue_after=context.config.resync,
    )


def kafka_is_unreachable(context: Context) -> Outcome | None:
    """Without Kafka a run has nothing to read, and its lag is not known."""
    source = context.observation.source
    if not isinstance(source, Unknown):
        return None
    reason = {
        UnknownReason.UNREACHABLE: Reason.KAFKA_UNREACHABLE,
        UnknownReason.DENIED: Reason.KAFKA_CREDENTIALS_REJECTED,
        UnknownReason.REJECTED: Reason.KAFKA_REJECTED,
    }[source.reason]
    return not_observable(context, reason, source, what="Kafka cannot be asked for its offsets")


def cluster_drifted(context: Context) -> Outcome | None:
    """Workers come and go, and what was lost of the cluster is put back, under the living driver."""
    run = context.active_run
    if run is None or not is_outdated_cluster(context):
        return None
    recorded = context.status.cluster
    wanted = desired_cluster(context)
    if wanted is None or recorded is None or wanted.generation != recorded.generation:
        return None
    resized = recorded.workers != wanted.workers
    message = f"Scaling from {recorded.workers} to {wanted.workers} workers" if resized else "Mending the Spark cluster"
    outcome = waiting(
        context,
        Reason.SCALED if resized else Reason.PROVISIONING,
        message,
        action=InstallCluster(values=values(context, wanted)),
        status=replace(context.status, cluster=wanted),
    )
    return replace(outcome, ready=context.streams)


def is_starting(context: Context) -> Outcome | None:
    """Until a run has claimed its epoch and committed, or has nothing to read, it is on its way."""
    run = context.active_run
    if run is None or _flows(context, run):
        return None
    if trouble := pod_issue(context):
        again = context.config.moving
        return waiting(
            context, trouble.category, trouble.message, remedy=trouble.remedy, warning=True, requeue_after=again
        )
    return waiting(context, _stage(context), _progress(run), state=_phase(context))


def _stage(context: Context) -> Reason:
    return Reason.RESTARTING if _phase(context) is State.RESTARTING else Reason.STARTING


def _phase(context: Context) -> State:
    run, failure = context.run, context.status.failure
    failed = run is not None and failure is not None and failure.count and failure.epoch == run.epoch - 1
    return State.RESTARTING if failed else State.STARTING


def _progress(run: RunStatus) -> str:
    if run.claimed_at is not None:
        return f"{run.name} holds the fence at epoch {run.epoch}; its first batch is under way"
    if run.started_at is not None:
        return f"{run.name} starts Spark and warms up before it claims epoch {run.epoch}"
    return f"Waiting for the pod of {run.name}"


def _flows(context: Context, run: RunStatus) -> bool:
    if run.claimed_at is None:
        return False
    return has_progressed(run, context.row) or context.status.lag == 0 or _was_ready(context)


def _was_ready(context: Context) -> bool:
    before = context.pipeline.status
    same_run = before.run is not None and context.run is not None and before.run.name == context.run.name
    return same_run and any(c.type == "Ready" and c.status == "True" for c in before.conditions)


def pod_issue(context: Context) -> Diagnosis | None:
    """Return why the run's or the cluster's pods cannot get going, if one cannot."""
    job, cluster = context.job, context.observation.cluster
    own = [job.trouble, job.pod.trouble if job.pod else None] if job else []
    parts = cluster.value.issues if isinstance(cluster, Known) and cluster.value is not None else ()
    found = [trouble for trouble in (*own, *parts) if trouble is not None]
    return diagnose_pod_issue(found[0]) if found else None


def is_streaming(context: Context) -> Outcome | None:
    """The good end of the chain."""
    run = context.active_run
    if run is None:
        return None
    lag, batch = context.status.lag or 0, context.spec.source.max_records_per_batch
    was_behind = context.pipeline.status.state is State.CATCHING_UP
    behind = lag > BEHIND * batch or (was_behind and lag > batch)
    workers = context.status.cluster
    short = workers is not None and workers.ready_workers < workers.workers
    seats = f"; {workers.ready_workers} of {workers.workers} workers are ready" if workers and short else ""
    return Outcome(
        reason=Reason.CATCHING_UP if behind else Reason.STREAMING,
        message=f"{run.name} commits under epoch {run.epoch}{', catching up' if behind else ''}{seats}",
        state=State.CATCHING_UP if behind else State.RUNNING,
        status=context.status,
        ready=True,
        requeue_after=context.config.resync,
    )
