"""While a run lives: is it the right one, does it move, does it have what it needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost_operator.actions import Fence, InstallCluster
from fencepost_operator.api import Reason, RunStatus, State
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.diagnosis import Diagnosis, diagnose_trouble
from fencepost_operator.observation import Known, Obstacle, Unknown
from fencepost_operator.rules.cluster import desired_cluster, differs, values
from fencepost_operator.rules.situation import Ruling, Situation, holding, waiting
from fencepost_operator.rules.stopping import stop
from fencepost_operator.rules.tracking import failure_after, has_progressed

BEHIND: Final = 2
"""Batches of lag from which a run is catching up; it has caught up at half of that."""
STALL_FACTOR: Final = 3
"""Intervals, or times the last batch took, that may pass without a commit."""


def is_being_stopped(situation: Situation) -> Ruling | None:
    """A run that was asked to stop is over for us, whatever it was asked for."""
    run = situation.living_run
    if run is None or run.stop_requested_at is None:
        return None
    changed = run.spec_hash != situation.desired.run
    state, why = (State.UPGRADING, "Upgrading") if changed else (State.RESTARTING, "Restarting")
    return stop(situation, run, why=why, reason=Reason.STOPPING, state=state)


def is_superseded(situation: Situation) -> Ruling | None:
    """A run of an older epoch can commit nothing; it will find out, and is helped to."""
    run, row = situation.living_run, situation.row
    if run is None or row.epoch <= run.epoch:
        return None
    why = f"The fence moved on to epoch {row.epoch} without {run.name}"
    return stop(situation, run, why=why, reason=Reason.SUPERSEDED, state=State.RESTARTING)


def is_unresponsive(situation: Situation) -> Ruling | None:
    """A driver that could commit and does not is fenced first; it may be frozen and come back at any moment.

    It is given up in the status before it is fenced, so that a crash in between changes nothing.
    """
    run = situation.living_run
    if run is None:
        return None
    diagnosis = _never_claimed(situation, run) or _stalled(situation, run)
    if diagnosis is None:
        return None
    status, row = situation.status, situation.row
    failure = failure_after(
        situation.pipeline, status, run, diagnosis, progressed=has_progressed(run, row), now=situation.now
    )
    given_up = replace(run, ended_at=situation.now, dead=False)
    return waiting(
        situation,
        diagnosis.category,
        diagnosis.message,
        remedy=diagnosis.remedy,
        state=State.RESTARTING,
        warning=True,
        status=replace(status, run=given_up, failure=failure),
        action=Fence(epoch=row.epoch, version=row.version, owner=situation.owner),
    )


def _never_claimed(situation: Situation, run: RunStatus) -> Diagnosis | None:
    if run.claimed_at is not None or run.started_at is None:
        return None
    limit = timedelta(seconds=situation.policy.start_timeout)
    if not _passed(situation, limit, run.started_at):
        return None
    return Diagnosis(
        category=Reason.NEVER_CLAIMED,
        summary=f"{run.name} has not claimed its epoch within {format_duration(limit.total_seconds())} of its start",
        remedy="read the driver's log with kubectl logs",
    )


def _stalled(situation: Situation, run: RunStatus) -> Diagnosis | None:
    committed = situation.status.committed
    if run.claimed_at is None or not situation.status.lag or committed is None or committed.since is None:
        return None
    limit = stall_limit(situation)
    if not _passed(situation, limit, committed.since, run.claimed_at):
        return None
    return Diagnosis(
        category=Reason.UNRESPONSIVE,
        summary=f"{run.name} has records to read and has committed nothing for "
        f"{format_duration(limit.total_seconds())}",
        remedy="raise restart.stallTimeout if its batches take that long",
    )


def stall_limit(situation: Situation) -> timedelta:
    """Return how long a run with records to read may commit nothing."""
    spec, row = situation.spec, situation.row
    last_batch = (row.duration_ms or 0) / 1000
    return timedelta(
        seconds=max(spec.restart.stall_timeout, STALL_FACTOR * spec.batch_interval, STALL_FACTOR * last_batch)
    )


def _passed(situation: Situation, limit: timedelta, *since: datetime) -> bool:
    """Return whether all moments are that long ago, Kafka and Cassandra having answered all that time."""
    committed = situation.status.committed
    if committed is None or committed.observable_since is None:
        return False
    return situation.now - max(committed.observable_since, *since) >= limit


def is_outdated(situation: Situation) -> Ruling | None:
    """A run of another spec is stopped gracefully, unless the new one could not start at all."""
    run, source = situation.living_run, situation.observation.source
    if run is None or run.spec_hash == situation.desired.run:
        return None
    if isinstance(source, Known) and source.value.missing_topics:
        return topics_are_missing(situation)
    why = "Upgrading to the new spec"
    return stop(situation, run, why=why, reason=Reason.UPGRADING, state=State.UPGRADING)


def topics_are_missing(situation: Situation) -> Ruling | None:
    """Topics are the user's to make: Fencepost knows neither their partitions nor their retention."""
    source = situation.observation.source
    if not isinstance(source, Known) or not source.value.missing_topics:
        return None
    names = ", ".join(source.value.missing_topics)
    effect = "; the run goes on" if situation.living_run else ""
    return waiting(
        situation,
        Reason.TOPIC_NOT_FOUND,
        f"Kafka has no topic {names}{effect}",
        remedy="create it, or correct source.kafka.topics",
        warning=True,
        again=situation.policy.resync,
    )


def kafka_is_silent(situation: Situation) -> Ruling | None:
    """Without Kafka a run has nothing to read, and its lag is not known."""
    source = situation.observation.source
    if not isinstance(source, Unknown):
        return None
    reason = {
        Obstacle.UNREACHABLE: Reason.KAFKA_UNREACHABLE,
        Obstacle.DENIED: Reason.KAFKA_CREDENTIALS_REJECTED,
        Obstacle.REJECTED: Reason.KAFKA_REJECTED,
    }[source.obstacle]
    return holding(situation, reason, source, what="Kafka cannot be asked for its offsets")


def cluster_drifted(situation: Situation) -> Ruling | None:
    """Workers come and go, and what was lost of the cluster is put back, under the living driver."""
    run = situation.living_run
    if run is None or not differs(situation):
        return None
    recorded = situation.status.cluster
    wanted = desired_cluster(situation)
    if wanted is None or recorded is None or wanted.generation != recorded.generation:
        return None
    resized = recorded.workers != wanted.workers
    message = f"Scaling from {recorded.workers} to {wanted.workers} workers" if resized else "Mending the Spark cluster"
    ruling = waiting(
        situation,
        Reason.SCALED if resized else Reason.PROVISIONING,
        message,
        action=InstallCluster(values=values(situation, wanted)),
        status=replace(situation.status, cluster=wanted),
    )
    return replace(ruling, ready=situation.streams)


def is_starting(situation: Situation) -> Ruling | None:
    """Until a run has claimed its epoch and committed, or has nothing to read, it is on its way."""
    run = situation.living_run
    if run is None or _flows(situation, run):
        return None
    if trouble := trouble_of(situation):
        again = situation.policy.moving
        return waiting(situation, trouble.category, trouble.message, remedy=trouble.remedy, warning=True, again=again)
    return waiting(situation, _stage(situation), _progress(run), state=_phase(situation))


def _stage(situation: Situation) -> Reason:
    return Reason.RESTARTING if _phase(situation) is State.RESTARTING else Reason.STARTING


def _phase(situation: Situation) -> State:
    run, failure = situation.run, situation.status.failure
    failed = run is not None and failure is not None and failure.count and failure.epoch == run.epoch - 1
    return State.RESTARTING if failed else State.STARTING


def _progress(run: RunStatus) -> str:
    if run.claimed_at is not None:
        return f"{run.name} holds the fence at epoch {run.epoch}; its first batch is under way"
    if run.started_at is not None:
        return f"{run.name} starts Spark and warms up before it claims epoch {run.epoch}"
    return f"Waiting for the pod of {run.name}"


def _flows(situation: Situation, run: RunStatus) -> bool:
    if run.claimed_at is None:
        return False
    return has_progressed(run, situation.row) or situation.status.lag == 0 or _was_ready(situation)


def _was_ready(situation: Situation) -> bool:
    before = situation.pipeline.status
    same_run = before.run is not None and situation.run is not None and before.run.name == situation.run.name
    return same_run and any(c.type == "Ready" and c.status == "True" for c in before.conditions)


def trouble_of(situation: Situation) -> Diagnosis | None:
    """Return why the run's or the cluster's pods cannot get going, if one cannot."""
    job, cluster = situation.job, situation.observation.cluster
    own = [job.trouble, job.pod.trouble if job.pod else None] if job else []
    parts = cluster.value.troubles if isinstance(cluster, Known) and cluster.value is not None else ()
    found = [trouble for trouble in (*own, *parts) if trouble is not None]
    return diagnose_trouble(found[0]) if found else None


def is_streaming(situation: Situation) -> Ruling | None:
    """The good end of the chain."""
    run = situation.living_run
    if run is None:
        return None
    lag, batch = situation.status.lag or 0, situation.spec.source.max_records_per_batch
    was_behind = situation.pipeline.status.state is State.CATCHING_UP
    behind = lag > BEHIND * batch or (was_behind and lag > batch)
    workers = situation.status.cluster
    short = workers is not None and workers.ready_workers < workers.workers
    seats = f"; {workers.ready_workers} of {workers.workers} workers are ready" if workers and short else ""
    return Ruling(
        reason=Reason.CATCHING_UP if behind else Reason.STREAMING,
        message=f"{run.name} commits under epoch {run.epoch}{', catching up' if behind else ''}{seats}",
        state=State.CATCHING_UP if behind else State.RUNNING,
        status=situation.status,
        ready=True,
        again=situation.policy.resync,
    )
