"""While a run is active: does it make progress, and does it have what it needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from fencepost.contract.guidance import remedy_of
from fencepost_operator.actions import TakeOverFence
from fencepost_operator.api import Reason, RunStatus, State, UnprovenDeath, condition_of
from fencepost_operator.api.quantities import format_duration
from fencepost_operator.decision.cluster.readiness import has_another_master
from fencepost_operator.decision.cluster.silent_nodes import quiet_since, silent_node_issue, silent_nodes
from fencepost_operator.decision.context import RunContext
from fencepost_operator.decision.kafka.lag import readable, unanswered
from fencepost_operator.decision.kafka.throughput import catch_up_seconds
from fencepost_operator.decision.outcome import Outcome, reconciling, unobservable
from fencepost_operator.decision.run import batch_progress
from fencepost_operator.decision.run.blindness import is_blind, unknown_life
from fencepost_operator.decision.run.diagnosis import Diagnosis, diagnose_pod_issue, pod_issue
from fencepost_operator.decision.run.handoff import is_warm, job_named, standby_of
from fencepost_operator.decision.run.heartbeats import LOOK, PATIENCE, STANDBY_PATIENCE, silence
from fencepost_operator.decision.run.stop import stop_run
from fencepost_operator.decision.specs.rollout import is_rolled_out, was_ready
from fencepost_operator.decision.status import TOO_SLOW, failure_after, has_committed
from fencepost_operator.decision.wording import SHOWN, detail, listed, with_remedy
from fencepost_operator.observation import NODE_LOST, Known, Unknown, UnknownReason

CATCHING_UP_BATCHES: Final = 2
"""Batches of lag from which a run is catching up; it has caught up at half of that."""
CATCHING_UP_SECONDS: Final = 60.0
"""Estimate from which a run is catching up, whatever the number of records; it has caught up at half of that."""
QUIET: Final = 20.0
"""Seconds without progress after which a silent node is the reason: about half of what Kubernetes waits for."""
BATCHES_WITHOUT_COMMIT: Final = 3
"""Batch intervals, or times the last batch took, that may pass without a commit."""
FIRST_COMMIT: Final = 30.0
"""Least seconds that a run may take from its claim to its first commit: executors start their Python workers."""
TAKES_OVER_IN: Final = timedelta(seconds=15)
"""Within which a warm standby claims: a look takes 0.25 s, an exercise in progress and the claim some seconds."""
MAX_DOUBLINGS: Final = 6
"""Of the timeouts of a run, for runs in a row that were too slow."""

LEADERLESS: Final = "check that the brokers of these partitions run and that each partition has a leader"

KAFKA_REASONS: Final = {
    UnknownReason.UNREACHABLE: Reason.KAFKA_UNREACHABLE,
    UnknownReason.DENIED: Reason.KAFKA_CREDENTIALS_REJECTED,
    UnknownReason.REJECTED: Reason.KAFKA_REJECTED,
    UnknownReason.BUSY: Reason.OPERATOR_BUSY,
}


def run_is_superseded(context: RunContext) -> Outcome | None:
    """Stop a run of an older epoch: it can commit nothing, and ends on its own once it notices.

    One that is asked to stop by another hand, as for a drain, may have ended its epoch itself.
    """
    run, row = context.active_run, context.row
    if run is None or row.epoch <= run.epoch:
        return None
    pod = context.job.pod if context.job is not None else None
    if row.driver is None and row.epoch == run.epoch + 1 and pod is not None and pod.deleting_since is not None:
        return None
    why = f"The fence moved to epoch {row.epoch} without {run.name}"
    return stop_run(context, run, why=why, reason=Reason.SUPERSEDED, state=State.RESTARTING)


def run_has_no_cluster(context: RunContext) -> Outcome | None:
    """Fence a run that can finish no batch, for its workers or its master are gone, also while it is being stopped."""
    run = context.active_run
    if run is None or context.row.epoch > run.epoch:
        return None
    diagnosis = _lost_cluster(context, run)
    return _give_up(context, run, diagnosis) if diagnosis is not None else None


def run_is_unresponsive(context: RunContext) -> Outcome | None:
    """Fence a driver that could commit and does not: it may continue at any moment."""
    run = context.active_run
    if run is None:
        return None
    diagnosis = (
        _cut_off(context, run)
        or _never_claimed(context, run)
        or _stalled(context, run)
        or _lifeless(context, run)
        or _without_heartbeat(context, run)
    )
    return _give_up(context, run, diagnosis) if diagnosis is not None else None


def _give_up(context: RunContext, run: RunStatus, diagnosis: Diagnosis) -> Outcome:
    """Fence a run. The status gives it up before the fence is taken over: a crash in between changes nothing."""
    status, row = context.status, context.row
    failure = status.failure
    if run.stop_requested_at is None:
        failure = failure_after(context.pipeline, status, run, diagnosis, row=row, now=context.now)
    given_up = replace(run, ended_at=context.now, dead=False)
    # The standby would have the next epoch at once: see `restart.unproven_death_is_waited_for`.
    waits = context.spec.restart.on_unproven_death is UnprovenDeath.WAIT and standby_of(status) is not None
    return reconciling(
        context,
        diagnosis.category,
        diagnosis.message,
        remedy=diagnosis.remedy,
        state=State.RESTARTING,
        warning=True,
        status=replace(status, run=given_up, failure=failure),
        action=None if waits else TakeOverFence(epoch=row.epoch, version=row.version, owner=context.owner),
    )


def _lost_cluster(context: RunContext, run: RunStatus) -> Diagnosis | None:
    """Return why a run cannot continue: all its workers, or the master that it starts with, are gone with their nodes.

    It would only wait for a timeout. A run that claimed its epoch needs no master while it has an executor.
    """
    seen = context.observation.cluster_of(run.cluster_generation)
    if seen is None:
        return None
    if has_another_master(context, run.cluster_generation) and (seen.master_ready or not seen.ready_workers):
        return Diagnosis(
            category=Reason.DRAINED,
            summary=f"{run.name} has no executor left, and the Spark master that it started with is gone",
            detail="; ".join(f"{issue.pod}: {detail(issue.message)}" for issue in seen.issues[:SHOWN]),
        )
    issues = [issue for issue in seen.issues if issue.reason == NODE_LOST]
    workers = max(seen.workers, context.spec.cluster.workers)  # those that are still to come have nodes of their own
    without_workers = not seen.ready_workers and len({issue.pod for issue in issues}) >= workers
    without_master = not seen.master_ready and run.claimed_at is None
    return diagnose_pod_issue(issues[0]) if issues and (without_workers or without_master) else None


def _cut_off(context: RunContext, run: RunStatus) -> Diagnosis | None:
    """Return why a run on a silent node that commits nothing cannot continue, before Kubernetes has noticed."""
    issue, quiet = silent_node_issue(context), quiet_since(context.status)
    if issue is None or quiet is None or run.started_at is None or not _readable(context):
        return None
    if not _elapsed(context, _quiet(context), quiet, run.claimed_at or run.started_at):
        return None
    return diagnose_pod_issue(issue)


def _quiet(context: RunContext) -> timedelta:
    """Return how long a run may make no progress while its node is silent."""
    return timedelta(seconds=max(QUIET, _without_commit(context)))


def _without_commit(context: RunContext) -> float:
    """Return how many seconds may pass without a commit, by the batches so far."""
    return BATCHES_WITHOUT_COMMIT * max(context.spec.batch_interval, (context.row.duration_ms or 0) / 1000)


def _never_claimed(context: RunContext, run: RunStatus) -> Diagnosis | None:
    if run.claimed_at is not None or run.started_at is None:
        return None
    job = context.job
    if run.stood_by and job is not None and job.pod is not None and job.pod.ready:
        return _never_took_over(context, run, run.started_at)
    timeout = _longer_after_slow_runs(context, context.spec.restart.start_timeout)
    if not _elapsed(context, timeout, run.started_at, run.recorded_at):
        return None
    return Diagnosis(
        category=Reason.NEVER_CLAIMED,
        summary=f"{run.name} has not claimed its epoch within {format_duration(timeout.total_seconds())} of its start",
        special="read the driver's log with kubectl logs; raise restart.startTimeout "
        f"({format_duration(context.spec.restart.start_timeout)}) if the imports take that long; the next run gets "
        "twice the time",
    )


def _never_took_over(context: RunContext, run: RunStatus, started_at: datetime) -> Diagnosis | None:
    """Return why a standby counts as hung that was warm: it has nothing to do but to claim."""
    if not _elapsed(context, TAKES_OVER_IN, started_at, run.recorded_at):
        return None
    within = format_duration(TAKES_OVER_IN.total_seconds())
    return Diagnosis(
        category=Reason.NEVER_CLAIMED,
        summary=f"{run.name} was a warm standby and has not claimed its epoch within {within}",
        special="read the driver's log with kubectl logs",
    )


def _stalled(context: RunContext, run: RunStatus) -> Diagnosis | None:
    quiet = quiet_since(context.status)
    if run.claimed_at is None or not _readable(context) or quiet is None:
        return None
    timeout, unreadable = stall_timeout(context), batch_progress.refusal(context.observation.progress)
    if unreadable:
        timeout *= batch_progress.UNREADABLE_FACTOR
    if not _elapsed(context, timeout, quiet, run.claimed_at):
        return None
    return Diagnosis(
        category=Reason.UNRESPONSIVE,
        summary=f"{run.name} has records to read and has made no progress for "
        f"{format_duration(timeout.total_seconds())}",
        detail=unreadable,
        special=f"{batch_progress.REMEDY}; {remedy_of(Reason.UNRESPONSIVE)}" if unreadable else "",
    )


def _lifeless(context: RunContext, run: RunStatus) -> Diagnosis | None:
    """Return why a run counts as hung that says nothing, where only it may ask Kafka whether records wait."""
    committed, source, row = context.status.committed, context.observation.source, context.row
    if not isinstance(source, Known) or not source.value.by_driver or not row.is_between_batches:
        return None
    if run.claimed_at is None or committed is None or committed.alive_at is None:
        return None
    if batch_progress.refusal(context.observation.progress):
        return None
    timeout = stall_timeout(context)
    if not _elapsed(context, timeout, committed.alive_at, run.claimed_at):
        return None
    return Diagnosis(
        category=Reason.UNRESPONSIVE,
        summary=f"{run.name} has neither committed nor given a sign of life for "
        f"{format_duration(timeout.total_seconds())}",
    )


def _without_heartbeat(context: RunContext, run: RunStatus) -> Diagnosis | None:
    """Return why a run is replaced whose heartbeats have ended: not now where those of many have, unless its node has.

    The kubelet of a lost node is silent as well, which an outage of the database is not the cause of.
    """
    is_held = not context.observation.may_replace and run.node_name not in silent_nodes(context)
    return None if is_held else _lost_heartbeat(context, run)


def _lost_heartbeat(context: RunContext, run: RunStatus) -> Diagnosis | None:
    """Return why a run counts as frozen or cut off whose heartbeats have ended, while records wait for it."""
    found, quiet = silence(context.status.committed, context.observation), quiet_since(context.status)
    if run.claimed_at is None or found is None or quiet is None or not _readable(context):
        return None
    if context.spec.restart.on_unproven_death is UnprovenDeath.WAIT:  # it may continue: only we cannot see it
        return None
    patience, (since, asked) = _heartbeat_patience(context), found
    if not _elapsed(context, patience, since, quiet, run.claimed_at, until=asked):
        return None
    where = f" on node {run.node_name}" if run.node_name else ""
    return Diagnosis(
        category=Reason.HEARTBEAT_LOST,
        summary=f"{run.name}{where} has records to read and has given no heartbeat for "
        f"{format_duration(patience.total_seconds())}",
    )


def replacement_is_queued(context: RunContext) -> Outcome | None:
    """Let a run without heartbeats be until it is its turn to be replaced, or another judge says so.

    Many lose them at once for what they share, and the operator may be wrong: a pipeline that was Ready stays so.
    """
    run = context.active_run
    lost = _lost_heartbeat(context, run) if run is not None else None
    if lost is None:
        return None
    return Outcome(
        reason=lost.category,
        message=with_remedy(
            f"{lost.message}; so do many others at once, so the operator replaces only a few of them at a time, unless "
            "restart.stallTimeout or a lost node is the reason",
            "check the checkpoint's database, and the network between it and the drivers' nodes",
        ),
        state=context.state,
        status=context.status,
        ready=was_ready(context),
        warning=True,
        requeue_after=LOOK.total_seconds(),
    )


def _heartbeat_patience(context: RunContext) -> timedelta:
    """Return how long a run may be without a heartbeat; longer after such an end of a run that had come too far."""
    standby = standby_of(context.status)
    job = job_named(context.runs, standby.name) if standby is not None else None
    patience = STANDBY_PATIENCE if job is not None and is_warm(job) else PATIENCE
    return _longer_after_slow_runs(context, patience.total_seconds())


def _next_look(context: RunContext, run: RunStatus) -> float:
    """Return the seconds until the next look: not later than from when on the run counts as stalled or frozen."""
    committed, quiet, longest = context.status.committed, quiet_since(context.status), context.config.resync_interval
    if committed is None or quiet is None or committed.observable_since is None:
        return longest
    since = max(committed.observable_since, quiet, run.claimed_at or quiet)
    due = [since + stall_timeout(context)]
    before = context.pipeline.status.committed
    if silence(committed, context.observation) and before is not None and before.heartbeat == committed.heartbeat:
        due.append(context.now + LOOK)
    left = ((moment - context.now).total_seconds() for moment in due)
    return min([longest, *(seconds for seconds in left if seconds > 0)])


def stall_timeout(context: RunContext) -> timedelta:
    """Return how long a run with records to read may neither commit nor report progress inside its batch.

    It doubles after each run in a row that was too slow, so that a batch that only needs longer gets there.
    """
    usual = max(context.spec.restart.stall_timeout, _without_commit(context))
    if context.run is not None and not has_committed(context.run, context.row):
        usual = max(usual, FIRST_COMMIT)
    return _longer_after_slow_runs(context, usual)


def _longer_after_slow_runs(context: RunContext, seconds: float) -> timedelta:
    """Return the timeout, doubled for each run in a row that was replaced because it was too slow.

    Slow to claim and slow to commit count together: on an overloaded node the two alternate, and a timeout that
    starts from the beginning each time would replace every run.
    """
    failure = context.status.failure
    if failure is None or failure.count == 0 or failure.reason not in TOO_SLOW:
        return timedelta(seconds=seconds)
    return timedelta(seconds=seconds * 2 ** min(failure.repeats, MAX_DOUBLINGS))


def _elapsed(context: RunContext, timeout: timedelta, *since: datetime, until: datetime | None = None) -> bool:
    """Return whether all moments are that long ago, by this operator's clock; Kafka and Cassandra answered since."""
    committed, measured = context.status.committed, context.observation.measured_since
    if committed is None or committed.observable_since is None:
        return False
    own = (measured,) if measured is not None else ()
    return (until or context.now) - max(committed.observable_since, *since, *own) >= timeout


def topics_are_missing(context: RunContext) -> Outcome | None:
    """Wait for the user to create the topics: Fencepost knows neither their partitions nor their retention."""
    source = context.observation.source
    if not isinstance(source, Known) or not source.value.missing_topics:
        return None
    names = ", ".join(source.value.missing_topics)
    effect = "; the run continues" if context.active_run else ""
    return reconciling(
        context,
        Reason.TOPIC_NOT_FOUND,
        f"Kafka has no topic {names}{effect}",
        warning=True,
        requeue_after=context.config.resync_interval,
    )


def offsets_are_unread(context: RunContext) -> Outcome | None:
    """Start nothing while Kafka does not answer: the next run could not read either."""
    source = context.observation.source
    if not isinstance(source, Unknown):
        return None
    return unobservable(context, KAFKA_REASONS[source.reason], source, what="Kafka's offsets cannot be read")


def reading_is_unobserved(context: RunContext) -> Outcome | None:
    """Without Kafka the lag is unknown, and so is a driver's work where it alone may ask and gives no sign of life."""
    if outcome := offsets_are_unread(context):
        return outcome
    unknown = unknown_life(context.observation, context.status)
    if unknown is None or not context.is_streaming or not is_blind(context):
        return None
    return unobservable(context, Reason.PROGRESS_UNREADABLE, unknown, what="The driver's signs of life cannot be read")


def run_is_starting(context: RunContext) -> Outcome | None:
    """Wait until a run has claimed its epoch, and has committed or is known to have nothing to read."""
    run = context.active_run
    if run is None or has_started(context, run):
        return None
    if issue := pod_issue(context):
        return reconciling(context, issue.category, issue.message, remedy=issue.remedy, warning=True)
    failure = context.status.failure
    restarting = failure is not None and failure.count and failure.epoch == run.epoch - 1
    state = State.RESTARTING if restarting else State.STARTING
    message, remedy = _start_progress(context, run)
    return reconciling(context, Reason.STARTING, message, remedy=remedy, state=state)


def _start_progress(context: RunContext, run: RunStatus) -> tuple[str, str]:
    """Return how far the start is, and what to do about it if anything."""
    source = context.observation.source
    if run.claimed_at is not None:
        holds = f"{run.name} holds the fence at epoch {run.epoch}"
        if isinstance(source, Known) and _readable(context) is None:
            keys = unanswered(context.spec, context.row, source.value)
            return f"{holds}; Kafka does not answer for {listed(keys)}", LEADERLESS
        return f"{holds}; its first batch is in progress", ""
    if run.started_at is not None:
        return f"{run.name} starts Spark before it claims epoch {run.epoch}", ""
    return f"Waiting for the pod of {run.name}", ""


def _readable(context: RunContext) -> int | None:
    """Return how many records the run could read now; None while that is not known."""
    source = context.observation.source
    return readable(context.spec, context.row, source.value) if isinstance(source, Known) else None


def has_started(context: RunContext, run: RunStatus) -> bool:
    """Return whether a run has claimed its epoch, and has committed or is known to have nothing to read."""
    if run.claimed_at is None:
        return False
    return has_committed(run, context.row) or _readable(context) == 0 or _was_ready_before(context, run)


def _was_ready_before(context: RunContext, run: RunStatus) -> bool:
    before = context.pipeline.status
    same_run, ready = before.run is not None and before.run.name == run.name, condition_of(before.conditions, "Ready")
    return same_run and ready is not None and ready.status == "True"


def run_is_streaming(context: RunContext) -> Outcome | None:
    """Conclude that all is well."""
    run = context.active_run
    if run is None:
        return None
    lag, batch = context.status.lag or 0, context.spec.source.kafka.max_records_per_batch
    was_behind = context.pipeline.status.state is State.CATCHING_UP
    # Batches that memory or time keeps small have a backlog long before it is worth two of the largest.
    behind = (
        lag > CATCHING_UP_BATCHES * batch or (was_behind and lag > batch) or _takes_long(context, was_behind=was_behind)
    )
    catching_up = ", catching up" if behind else ""
    return Outcome(
        reason=Reason.CATCHING_UP if behind else Reason.STREAMING,
        message=f"{run.name} commits under epoch {run.epoch}{catching_up}{_missing(context)}{_offline(context)}",
        state=State.CATCHING_UP if behind else State.RUNNING,
        status=replace(context.status, planned_restart_since=None),
        ready=is_rolled_out(context),
        requeue_after=_next_look(context, run),
    )


def _takes_long(context: RunContext, *, was_behind: bool) -> bool:
    """Return whether the estimate says so; one that varies, or comes and goes with the lag, does not turn the state."""
    figures = context.status.throughput
    if figures is None or figures.records_per_second is None:
        return False
    takes = catch_up_seconds(figures)
    if takes is None:
        return was_behind and bool(context.status.lag)
    return takes >= CATCHING_UP_SECONDS / (2 if was_behind else 1)


def _missing(context: RunContext) -> str:
    cluster = context.status.cluster
    if not is_rolled_out(context):
        return "; the Spark cluster is not known to match the spec"
    if cluster is None or cluster.ready_workers >= cluster.workers:
        return ""
    return f"; {cluster.ready_workers} of {cluster.workers} workers are ready"


def _offline(context: RunContext) -> str:
    """Return which partitions the run cannot read, and the lag does not count."""
    offline = [found.partition for found in context.status.offline_partitions]
    return f"; no leader answers for {listed(offline)}, whose lag is unknown" if offline else ""
