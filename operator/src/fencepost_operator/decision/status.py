"""What one observation adds to the status before any rule decides: facts only."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost.contract import ExitCode
from fencepost.fence import FenceRow
from fencepost_operator.api import (
    ClusterStatus,
    DeadLettersStatus,
    FailureStatus,
    Pipeline,
    Reason,
    ReconcileConfig,
    RunStatus,
    Spec,
    Status,
)
from fencepost_operator.backoff import restart_delay
from fencepost_operator.decision.cluster.autoscale import autoscale
from fencepost_operator.decision.cluster.spark_master import is_another_master
from fencepost_operator.decision.context import Context, bounds_token, job_of, retry_token
from fencepost_operator.decision.durability import durability
from fencepost_operator.decision.failover import cluster_of, failover_status
from fencepost_operator.decision.kafka import loss_status
from fencepost_operator.decision.kafka.retention import data_risk
from fencepost_operator.decision.kafka.snapshots import snapshots_seen
from fencepost_operator.decision.run import commits
from fencepost_operator.decision.run.blindness import unobserved_since
from fencepost_operator.decision.run.diagnosis import Diagnosis, diagnose_end
from fencepost_operator.decision.run.handoff import takes_over, with_handoff, with_taken_over
from fencepost_operator.decision.run.liveness import liveness_of
from fencepost_operator.decision.run.stored_state import stored_state
from fencepost_operator.decision.specs.rollback import with_rollback
from fencepost_operator.decision.specs.stability import with_commits
from fencepost_operator.decision.specs.upgrade_trial import with_upgrade_trial
from fencepost_operator.desired import labels, names
from fencepost_operator.observation import Known, Liveness, MemoryKill, Observation, Run, Unknown, UnknownReason

MEMORY_KILL_WINDOW: Final = timedelta(minutes=3)
"""Between the kill of a worker's container and the end of the run that lost its executors by it."""
TOO_SLOW: Final = frozenset({Reason.UNRESPONSIVE, Reason.NEVER_CLAIMED, Reason.HEARTBEAT_LOST})
"""Why a run that a timeout ended was replaced; failures for one of these count as repeats of each other."""
TOO_LARGE: Final = frozenset({Reason.OUT_OF_MEMORY, Reason.UNRESPONSIVE})
"""Failures that a smaller batch may avoid."""


def update_status(pipeline: Pipeline, observation: Observation, config: ReconcileConfig) -> Status:
    """Return the status with everything that this observation shows."""
    status = with_upgrade_trial(pipeline, observation, with_rollback(pipeline, pipeline.status))
    status = _with_retry_in_time(status, pipeline.spec, observation.now)
    row = observation.fence.value if isinstance(observation.fence, Known) else None
    if row is not None:
        status = replace(status, epoch=max(row.epoch, status.epoch or 0), dead_letters=_dead_letters(row))
    status = replace(
        status,
        cluster=_cluster(status.cluster, pipeline, observation),
        failover=failover_status(pipeline, row, config.cluster_uid, observation.now),
        fence_unreachable_since=_fence_unreachable_since(pipeline, observation),
    )
    if isinstance(observation.runs, Known):
        # The epochs of another Kubernetes cluster's row are not those of the runs here.
        own_row = row if row is not None and cluster_of(row) == config.cluster_uid else None
        status = with_handoff(_run(status, pipeline, observation, own_row, config), observation.runs.value)
    shown, could_read = commits.lag(pipeline.spec, row, observation)
    status = replace(
        status,
        lag=shown,
        autoscale=autoscale(status, pipeline.spec, row, observation),
        throughput=commits.throughput(status, pipeline.spec, row, shown, observation),
        committed=commits.committed(status.committed, row, could_read, observation),
        event_time=commits.event_time(status, row, observation),
        stored_state=stored_state(status.stored_state, pipeline.spec, row),
        open_transactions=commits.open_transactions(status.open_transactions, observation),
        offline_partitions=commits.offline_partitions(status.offline_partitions, observation),
        data_risk=data_risk(status.data_risk, pipeline.spec, observation),
        durability=durability(pipeline, observation.durability, observation.now),
        snapshots=snapshots_seen(status.snapshots, observation),
    )
    status = replace(status, unobserved_since=unobserved_since(pipeline, observation, status))
    status = loss_status.update(status, row, observation)
    return _reset_restart_budget(status, pipeline.spec, row, could_read, observation.now)


def _with_retry_in_time(status: Status, spec: object, now: datetime) -> Status:
    """Return the status with a retry at most its delay away, whichever clock recorded it."""
    failure = status.failure
    if failure is None or failure.next_attempt_at is None:
        return status
    latest = now + restart_delay(failure.count, longest=_longest_delay(spec))
    return replace(status, failure=replace(failure, next_attempt_at=min(failure.next_attempt_at, latest)))


def _longest_delay(spec: object) -> float:
    return spec.restart.max_backoff if isinstance(spec, Spec) else 300.0


def observed_since(context: Context) -> datetime | None:
    """Return since when the status is about the spec's generation.

    How long a correction takes counts from there: Ready's transition time stays while one spec after another waits.
    """
    before = context.pipeline.status
    if before.observed_generation == context.pipeline.generation:
        return before.observed_since
    return context.now.replace(microsecond=0)


def _fence_unreachable_since(pipeline: Pipeline, observation: Observation) -> datetime | None:
    """Return since when the Cassandra of a deleted pipeline has not answered at all."""
    fence = observation.fence
    if pipeline.deleting_since is None or not isinstance(fence, Unknown):
        return None
    if fence.reason is not UnknownReason.UNREACHABLE:
        return None
    return pipeline.status.fence_unreachable_since or observation.now


def _dead_letters(row: FenceRow) -> DeadLettersStatus | None:
    return DeadLettersStatus(count=row.dead_letters, last=row.last_dead_letter) if row.dead_letters else None


def failure_after(  # one place that counts, for runs that ended and runs that are given up
    pipeline: Pipeline, status: Status, run: RunStatus, diagnosis: Diagnosis, *, row: FenceRow | None, now: datetime
) -> FailureStatus:
    """Return the failure of a run; the count continues unless there was a commit or a change since the last failure."""
    before, retry, bounds = status.failure, retry_token(pipeline), bounds_token(pipeline)
    asked = (run.spec_hash, retry, bounds)
    same = before is not None and (before.spec_hash, before.retry, before.batch_bounds) == asked
    if not same or has_progressed(run, row):
        before = None
    count = (before.count if before is not None else 0) + 1
    attempts = attempts_used(before) if before is not None else 0
    repeats = before.repeats if before is not None and count > 1 and _alike(before.reason, diagnosis.category) else 0
    records, smallest = _batch(before, run, diagnosis, row)
    return FailureStatus(
        count=count,
        epoch=run.epoch,
        at=now,
        reason=diagnosis.category,
        message=diagnosis.message,
        remedy=diagnosis.remedy,
        exit_code=diagnosis.exit_code,
        next_attempt_at=now + restart_delay(count, longest=_longest_delay(pipeline.spec)),
        spec_hash=run.spec_hash,
        repeats=repeats + 1,
        attempts=attempts + (0 if diagnosis.is_environment else 1),
        batch_records=records,
        smallest=smallest,
        loss=diagnosis.loss,
        log=diagnosis.log,
        retry=retry,
        batch_bounds=bounds,
    )


def _batch(
    before: FailureStatus | None, run: RunStatus, diagnosis: Diagnosis, row: FenceRow | None
) -> tuple[int | None, int]:
    """Return how many records the batch had that failed, and how many runs in a row lacked memory for a single one.

    A run that never claimed its epoch has tried no batch: what is planned is its predecessor's, and so is what is known
    of it.
    """
    known = before if before is not None and before.reason in TOO_LARGE else None
    if run.claimed_at is None and not _is_claimed(run, row):
        return (known.batch_records, known.smallest) if known is not None else (None, 0)
    records = planned_records(row)
    if diagnosis.category is not Reason.OUT_OF_MEMORY or records != 1:
        return records, 0
    return records, (before.smallest if before is not None else 0) + 1


def attempts_used(failure: FailureStatus) -> int:
    """Return how much of restart.maxAttempts is used up."""
    return failure.count if failure.attempts is None else failure.attempts


def planned_records(row: FenceRow | None) -> int | None:
    """Return how many offsets the planned batch covers, None when none is planned."""
    if row is None:
        return None
    return sum(max(0, end - row.offsets.get(key, end)) for key, end in row.planned.items()) or None


def _alike(before: str, now: str) -> bool:
    return before == now or {before, now} <= TOO_SLOW


def has_committed(run: RunStatus, row: FenceRow | None) -> bool:
    """Return whether something was committed since the run was recorded."""
    return row is not None and row.committed_at is not None and row.committed_at != run.resumed_from


def has_progressed(run: RunStatus, row: FenceRow | None) -> bool:
    """Return whether the run has committed more than batches without records, and records that it set aside.

    A run that passes no more offsets than it sets aside does no good: a transaction's marker beside each record is
    passed as well.  Nor does a stateful run that ends after the batch without records with which each one begins.
    """
    if row is None or not has_committed(run, row):
        return False
    passed, aside = sum(row.offsets.values()) - run.resumed_offsets, _set_aside(run, row)
    return passed - aside > aside if aside else passed != 0


def _set_aside(run: RunStatus, row: FenceRow) -> int:
    return max(0, row.dead_letters - run.resumed_dead_letters)


def _run(
    status: Status, pipeline: Pipeline, observation: Observation, row: FenceRow | None, config: ReconcileConfig
) -> Status:
    runs = observation.runs.value if isinstance(observation.runs, Known) else ()
    run = _newest(status, runs, row, observation.now)
    if run is None:
        return status
    status = with_taken_over(status, run)
    now, job = observation.now, job_of(run, runs)
    if not run.dead:  # a Job of its name that comes later is not its own: see `start.late_job_is_stopped`
        run = _record_master(_record_job(run, job), observation)
    run = with_commits(_record_claim(run, row, now), status, row, pipeline.spec)
    if (run.created_at is None and not _is_claimed(run, row)) or (run.ended_at is not None and run.dead):
        return replace(status, run=run)
    liveness = liveness_of(run, job, observation, stop_margin=config.stop_margin)
    if liveness in {None, Liveness.ALIVE}:
        return replace(status, run=run)
    ended = replace(run, ended_at=run.ended_at or now, dead=liveness is Liveness.DEAD)
    first_seen = run.ended_at is None and run.stop_requested_at is None
    if not first_seen or _has_finished(status, run, job, row):
        return replace(status, run=ended)
    diagnosis = diagnose_end(
        job,
        run.name,
        disruption=run.disruption or "",
        kills=_kills(run, observation),
        answered=_answered(status, run, observation),
    )
    failure = failure_after(pipeline, status, run, diagnosis, row=row, now=now)
    return replace(status, run=ended, failure=failure)


def _kills(run: RunStatus, observation: Observation) -> tuple[MemoryKill, ...]:
    """Return the containers of the cluster that the kernel killed for memory shortly before the run ended."""
    seen = observation.cluster.value if isinstance(observation.cluster, Known) else None
    since = max(run.started_at or run.recorded_at, observation.now - MEMORY_KILL_WINDOW)
    return tuple(kill for kill in seen.memory_kills if kill.at >= since) if seen is not None else ()


def _answered(status: Status, run: RunStatus, observation: Observation) -> bool:
    """Return whether Cassandra and each partition in Kafka answered the operator for as long as the run lasted."""
    source, committed = observation.source, status.committed
    if not isinstance(source, Known) or not isinstance(observation.fence, Known) or observation.is_first:
        return False
    if source.value.by_driver or source.value.offline:
        return False
    since = committed.observable_since if committed is not None else None
    return since is not None and run.started_at is not None and since <= run.started_at


def _is_claimed(run: RunStatus, row: FenceRow | None) -> bool:
    """Return whether a driver of this run claimed its epoch: it may live, also where its Job was never seen."""
    return row is not None and row.epoch == run.epoch and row.driver is not None


def _has_finished(status: Status, run: RunStatus, job: Run | None, row: FenceRow | None) -> bool:
    """Return whether a run has done what it was started for: to finish a batch, and then to end."""
    code = job.pod.exit_code if job is not None and job.pod is not None else None
    if not run.finishes or code != ExitCode.STOPPED or row is None:
        return False
    until = status.finishing.until if status.finishing is not None else {}
    return row.planned_log is None and all(row.offsets.get(key, end) >= end for key, end in until.items())


def _newest(status: Status, runs: tuple[Run, ...], row: FenceRow | None, now: datetime) -> RunStatus | None:
    """Return the recorded run, or a newer one: it waited for the epoch that has begun, or its record was lost.

    One that waited is recorded when its epoch begins: it could not claim that before.
    """
    recorded, handoff = status.run, status.handoff
    begun = (job for job in runs if row is not None and job.epoch <= row.epoch)  # a newer one awaits its epoch
    newest = max(begun, key=lambda job: job.epoch, default=None)
    if newest is None or row is None or (recorded is not None and recorded.epoch >= newest.epoch):
        return recorded
    if handoff is not None and not takes_over(handoff, newest, row):
        return recorded
    same = recorded if handoff is not None and handoff.standby else None
    return RunStatus(
        name=newest.name,
        epoch=newest.epoch,
        spec_hash=newest.spec_hash,
        cluster_generation=newest.cluster_generation,
        recorded_at=now if handoff is not None else newest.created_at,
        resumed_from=row.committed_at,
        resumed_offsets=sum(row.offsets.values()),
        resumed_dead_letters=row.dead_letters,
        revision=handoff.revision if handoff is not None else "",
        first_recorded_at=same.first_recorded_at if same else handoff.since if handoff is not None else None,
        code=handoff.code if handoff is not None else "",
        output=same.output if same else "",
        stood_by=True if same else None,
    )


def _record_job(run: RunStatus, job: Run | None) -> RunStatus:
    """Record what runs, and where: the node can later prove that the driver is dead.

    The Job may differ from the record: a create that timed out may take effect after the spec, and the record, changed.
    One without a pod, after the run had one, is the same or a second one: see `start.late_job_is_stopped`.
    """
    if job is None or (run.created_at is not None and run.pod_uid is not None and job.pod is None):
        return run
    run = replace(
        run,
        created_at=job.created_at,
        spec_hash=job.spec_hash,
        cluster_generation=job.cluster_generation or run.cluster_generation,
        termination_grace=job.termination_grace,
    )
    pod = job.pod
    if pod is None:
        return run
    return replace(
        run,
        pod_name=pod.name,
        pod_uid=pod.uid,
        node_name=pod.node or run.node_name,
        node_uid=pod.node_uid or run.node_uid,
        started_at=pod.started_at or run.started_at,
        force_deleted=True if pod.force_deleted else run.force_deleted,
        disruption=pod.disruption or run.disruption,
    )


def _record_master(run: RunStatus, observation: Observation) -> RunStatus:
    """Record the first master that was ready while the driver ran: it registers with no other."""
    if run.master_uid is not None or run.started_at is None or not run.is_active:
        return run
    seen = observation.cluster_of(run.cluster_generation)
    if seen is None or not seen.master_ready or is_another_master(run, seen):
        return run
    return replace(run, master_uid=seen.master_uid)


def _record_claim(run: RunStatus, row: FenceRow | None, now: datetime) -> RunStatus:
    if run.claimed_at is not None or row is None or row.epoch != run.epoch or row.driver is None:
        return run
    return replace(run, claimed_at=now) if row.driver == run.pod_uid else run


def _cluster(recorded: ClusterStatus | None, pipeline: Pipeline, observation: Observation) -> ClusterStatus | None:
    cluster, release = observation.cluster, observation.release
    if not isinstance(cluster, Known):
        return recorded
    seen = cluster.value
    if recorded is None and seen is not None and isinstance(release, Known) and release.value is not None:
        name = pipeline.key.name
        recorded = ClusterStatus(
            release=names.release_name(pipeline.key),
            generation=seen.generation,
            config_hash=seen.config_hash,
            requested_at=observation.now,
            workers=seen.workers,
            selector=labels.worker_selector(name, seen.generation),
        )
    if recorded is None:
        return None
    if seen is None or seen.generation != recorded.generation:
        return replace(recorded, ready_workers=0)
    ready_at = recorded.ready_at or (observation.now if seen.master_ready else None)
    return replace(recorded, ready_workers=seen.ready_workers, ready_at=ready_at)


def _reset_restart_budget(
    status: Status, spec: object, row: FenceRow | None, could_read: int | None, now: datetime
) -> Status:
    """Reset the count of failed runs once a living run has committed, or has held the fence with nothing to read.

    What counts towards restart.maxAttempts stays where the run has set aside all that it committed: with nothing left
    to read, that does not count as progress either.
    """
    run, failure = status.run, status.failure
    if run is None or run.ended_at is not None or failure is None or not failure.count:
        return status
    if not has_progressed(run, row) and not _idles(run, spec, could_read=could_read, now=now):
        return status
    sets_aside = row is not None and _set_aside(run, row) > 0 and not has_progressed(run, row)
    attempts = attempts_used(failure) if sets_aside else 0
    return replace(
        status,
        failure=replace(failure, count=0, attempts=attempts, smallest=0, repeats=0, next_attempt_at=None),
    )


def _idles(run: RunStatus, spec: object, *, could_read: int | None, now: datetime) -> bool:
    """Return whether a run has nothing to read, and has lived for the time in which one with records must progress."""
    if run.claimed_at is None or could_read != 0 or not isinstance(spec, Spec):
        return False
    return now - run.claimed_at >= timedelta(seconds=spec.restart.stall_timeout)
